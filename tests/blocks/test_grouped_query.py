"""Grouped-query attention: multi-head attention whose query heads share keys and values."""

import pytest
import torch
from torch import Tensor

from transformer_blocks import (
    KeyValueCache,
    MultiHeadAttention,
    RotaryPositionalEncoding,
)


def repeat_rows(weight: Tensor, groups: int, times: int) -> Tensor:
    """Repeat the rows of each group of a projection for the query heads that share it."""
    return weight.unflatten(0, (groups, -1)).repeat_interleave(times, dim=0).flatten(0, 1)


@pytest.mark.parametrize("d_k", [None, 6])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_it_equals_multi_head_attention_with_repeated_key_and_value_projections(
    groups: int, d_k: int | None
) -> None:
    transforms = [RotaryPositionalEncoding(d_k or 4)]
    grouped = MultiHeadAttention(
        16, 4, num_key_value_heads=groups, d_k=d_k, transforms=transforms
    ).double()
    multi = MultiHeadAttention(16, 4, d_k=d_k, transforms=transforms).double()
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


@torch.no_grad()
def test_the_cache_is_smaller_by_the_number_of_heads_that_share() -> None:
    attention, cache = MultiHeadAttention(16, 4, num_key_value_heads=1), KeyValueCache()
    attention(*(torch.randn(3, 5, 16),) * 3, causal=True, cache=cache)
    assert [part.shape for part in cache.read()] == [(3, 1, 5, 4)] * 2


def test_a_layer_prints_its_numbers_of_heads() -> None:
    for groups, shown in ((1, "num_heads=4, num_key_value_heads=1"), (4, "num_heads=4")):
        layer = MultiHeadAttention(16, 4, num_key_value_heads=groups)
        assert str(layer).splitlines()[1].strip() == shown
