"""Gated attention: the equation of its paper, and what a closed gate does."""

import numpy as np
import pytest
import torch
from tests.blocks.reference import attention_loop, randomise, to_numpy

from transformer_blocks import GatedAttention


@pytest.mark.parametrize("headwise", [False, True])
@pytest.mark.parametrize("groups", [4, 2])
@torch.no_grad()
def test_it_equals_the_loop(headwise: bool, groups: int) -> None:
    layer = GatedAttention(12, 4, num_key_value_heads=groups, headwise=headwise).double()
    randomise(layer)
    query, key = torch.randn(2, 5, 12, dtype=torch.float64), torch.randn(2, 7, 12).double()
    queries = layer.split_heads(layer.query_projection(query))
    heads, _ = attention_loop(queries, *layer.project(key, key))
    gate = layer.gate_projection
    values = to_numpy(query) @ to_numpy(gate.weight).T + to_numpy(gate.bias)
    gates = 1.0 / (1.0 + np.exp(-values))  # of a head, or of its three elements
    scaled = np.zeros((2, 5, 12))
    for b, h, i, e in np.ndindex(2, 4, 5, 3):
        factor = gates[b, i, h if headwise else 3 * h + e]
        scaled[b, i, 3 * h + e] = factor * heads[b, h, i, e]
    output = layer.output_projection
    expected = scaled @ to_numpy(output.weight).T + to_numpy(output.bias)
    found = to_numpy(layer(query, key, key))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("bias", [False, True])
def test_the_projection_to_the_gates_has_a_bias_if_the_others_have(bias: bool) -> None:
    assert (GatedAttention(8, 2, bias=bias).gate_projection.bias is not None) == bias
