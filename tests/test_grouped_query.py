"""Grouped-query attention: multi-head attention whose query heads share keys and values."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.pairs import every_pair
from tests.reference import attention_loop, to_numpy
from torch import Tensor

from transformer_blocks import (
    ALiBi,
    GroupedQueryAttention,
    KeyValueCache,
    MultiHeadAttention,
    attention_weights,
    fused_attention,
    scaled_dot_product_attention,
)


def repeat_rows(weight: Tensor, groups: int, times: int) -> Tensor:
    """Repeat the rows of each group of a projection for the query heads that share it."""
    return weight.unflatten(0, (groups, -1)).repeat_interleave(times, dim=0).flatten(0, 1)


@pytest.mark.parametrize("d_k", [None, 6])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_it_equals_multi_head_attention_with_repeated_key_and_value_projections(
    groups: int, d_k: int | None
) -> None:
    grouped = GroupedQueryAttention(16, 4, groups, d_k=d_k).double()
    multi = MultiHeadAttention(16, 4, d_k=d_k).double()
    for parameter in grouped.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    weights = dict(grouped.state_dict())
    for name in ("key_projection", "value_projection"):
        for kind in ("weight", "bias"):
            weights[f"{name}.{kind}"] = repeat_rows(weights[f"{name}.{kind}"], groups, 4 // groups)
    multi.load_state_dict(weights)
    x = torch.randn(2, 7, 16, dtype=torch.float64)
    mask = torch.rand(2, 1, 7, 7) < 0.3
    torch.testing.assert_close(grouped(x, x, x, mask=mask), multi(x, x, x, mask=mask))
    torch.testing.assert_close(
        grouped.attention_weights(x, x, mask=mask), multi.attention_weights(x, x, mask=mask)
    )


MASKS = {
    "none": (),
    "2D": (3, 5),
    "batch": (2, 1, 1, 5),
    "query": (1, 1, 3, 5),
    "head": (1, 4, 3, 5),
}


@every_pair(
    {
        "batch": [2, 32],  # many small matrices: explicit
        "length": [1, 3, 5],
        "shape": MASKS.values(),
        "causal": [False, True],
        "groups": [1, 2, 4],
    }
)
def test_attention_functions_equal_the_loop_over_repeated_heads(
    batch: int, length: int, shape: tuple[int, ...], causal: bool, groups: int
) -> None:
    query = torch.randn(batch, 4, length, 6, dtype=torch.float64, requires_grad=True)
    key, value = torch.randn(2, batch, groups, 5, 6, dtype=torch.float64, requires_grad=True)
    mask = None
    if shape:
        sizes = {2: batch, 3: length}
        mask = torch.rand([sizes.get(size, size) for size in shape]) < 0.4
    options: dict[str, Any] = {"mask": mask, "causal": causal}
    times = 4 // groups
    expected, weights = attention_loop(
        query, key.repeat_interleave(times, 1), value.repeat_interleave(times, 1), **options
    )
    output, found = scaled_dot_product_attention(query, key, value, **options)
    fused = fused_attention(query, key, value, **options)
    np.testing.assert_allclose(to_numpy(output), expected, rtol=0, atol=1e-12)
    np.testing.assert_allclose(to_numpy(found), weights, rtol=0, atol=1e-12)
    np.testing.assert_allclose(to_numpy(fused), expected, rtol=0, atol=1e-12)
    assert torch.equal(attention_weights(query, key, **options), found)
    gradients = (
        torch.autograd.grad(each.square().sum(), (query, key, value)) for each in (output, fused)
    )
    for explicit, of_kernel in zip(*gradients, strict=True):
        torch.testing.assert_close(explicit, of_kernel, rtol=0, atol=1e-10)


def test_an_explicit_attention_repeats_shared_heads() -> None:
    grouped = GroupedQueryAttention(16, 4, 2, attention_function=ALiBi(4))
    x = torch.randn(2, 5, 16)
    query = grouped.query_projection(x).unflatten(-1, (4, 4)).transpose(1, 2)
    key, value = (each.repeat_interleave(2, dim=1) for each in grouped.project(x, x))
    heads, _ = ALiBi(4)(query, key, value, causal=True)
    expected = grouped.output_projection(heads.transpose(1, 2).flatten(2))
    torch.testing.assert_close(grouped(x, x, x, causal=True), expected)


@pytest.mark.parametrize("fault", [torch.nan, torch.inf])
@pytest.mark.parametrize("length", [1, 4])
def test_a_key_that_is_not_finite_shows_in_all_heads_that_share_it(
    fault: float, length: int
) -> None:
    query, key = torch.randn(2, 4, length, 8), torch.randn(2, 2, 5, 8)
    key[1, 0, 2] = fault
    expected = torch.zeros(2, 4, length, 8, dtype=torch.bool)
    expected[1, :2] = True
    for attention_function in (fused_attention, scaled_dot_product_attention):
        found = attention_function(query, key, key)
        output = found[0] if isinstance(found, tuple) else found
        assert torch.equal(~output.isfinite(), expected)


@torch.no_grad()
def test_the_cache_is_smaller_by_the_number_of_heads_that_share() -> None:
    attention, cache = GroupedQueryAttention(16, 4, 1), KeyValueCache()
    attention(*(torch.randn(3, 5, 16),) * 3, causal=True, cache=cache)
    assert [part.shape for part in cache.read()] == [(3, 1, 5, 4)] * 2


def test_its_key_and_value_projections_are_smaller() -> None:
    attention = GroupedQueryAttention(16, 4, 2, bias=False)
    shapes = {name: tuple(weight.shape) for name, weight in attention.named_parameters()}
    assert shapes == {
        "query_projection.weight": (16, 16),
        "key_projection.weight": (8, 16),
        "value_projection.weight": (8, 16),
        "output_projection.weight": (16, 16),
    }


def test_all_projections_begin_with_xavier_uniform_weights_and_zero_biases() -> None:
    attention = GroupedQueryAttention(64, 8, 2)
    for name in ("query", "key", "value", "output"):
        projection = attention.get_submodule(f"{name}_projection")
        weight, bias = projection.get_parameter("weight"), projection.get_parameter("bias")
        limit = math.sqrt(6 / sum(weight.shape))
        assert 0.95 * limit < float(weight.detach().abs().max()) <= limit
        assert not bias.any()


@pytest.mark.parametrize(("heads", "message"), [(3, "divisible by num_key"), (0, "num_key_value")])
def test_numbers_of_heads_that_do_not_divide_are_refused(heads: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GroupedQueryAttention(16, 4, heads)


def test_key_heads_that_do_not_divide_the_query_heads_are_refused() -> None:
    query, key = torch.randn(1, 4, 3, 8), torch.randn(1, 3, 3, 8)
    for attention_function in (fused_attention, scaled_dot_product_attention):
        with pytest.raises(ValueError, match=r"^query and key must agree in the number"):
            attention_function(query, key, key)
