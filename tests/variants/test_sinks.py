"""Attention sinks: a loop with one more term in the denominator, and weights of less than one."""

import math

import numpy as np
import pytest
import torch
from tests.blocks.reference import attention_loop, to_numpy
from torch import nn

from transformer_blocks import (
    MultiHeadAttention,
    SinkAttention,
    fused_attention,
    record_attention,
    sliding_window_mask,
)


@pytest.mark.parametrize("window", [None, 3])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("length", [7, 1])
def test_it_equals_the_loop(window: int | None, causal: bool, length: int) -> None:
    query = torch.randn(2, 4, length, 5, dtype=torch.float64)
    key, value = torch.randn(2, 2, 2, 7, 5, dtype=torch.float64).unbind()
    attention = SinkAttention(4, window=window).double()
    nn.init.normal_(attention.sinks)
    mask = torch.rand(2, 1, length, 7) < 0.3
    found, weights = attention(query, key, value, mask=mask, causal=causal)
    hidden = mask if window is None else mask | sliding_window_mask(length, 7, window=window)
    _, without = attention_loop(query, key, value, mask=hidden, causal=causal)
    expected = np.zeros_like(without)
    for b, h, i in np.ndindex(2, 4, length):
        visible = without[b, h, i].nonzero()[0]
        scores = to_numpy(key)[b, h // 2] @ to_numpy(query)[b, h, i] / math.sqrt(5)
        total = math.exp(attention.sinks[h].item()) + sum(math.exp(scores[j]) for j in visible)
        for j in visible:
            expected[b, h, i, j] = math.exp(scores[j]) / total
    np.testing.assert_allclose(to_numpy(weights), expected, rtol=0, atol=1e-12)
    repeated = to_numpy(value).repeat(2, axis=1)
    np.testing.assert_allclose(to_numpy(found), expected @ repeated, rtol=0, atol=1e-12)


@torch.no_grad()
def test_recorded_weights_sum_to_less_than_one_and_a_large_sink_takes_all() -> None:
    function = SinkAttention(2)
    attention, x = MultiHeadAttention(8, 2, attention_function=function), torch.randn(1, 5, 8)
    attention.output_projection.bias.zero_()
    with record_attention(attention) as maps:
        attention(x, x, x, causal=True)
    assert (maps[""][0].sum(-1) < 1).all()
    function.sinks.fill_(1e4)
    assert (attention(x, x, x) == 0).all()
    function.sinks.fill_(-1e4)
    plain = MultiHeadAttention(8, 2, attention_function=fused_attention)
    plain.load_state_dict(attention.state_dict(), strict=False)
    torch.testing.assert_close(attention(x, x, x), plain(x, x, x))
