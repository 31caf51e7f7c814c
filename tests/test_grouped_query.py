"""Grouped queries: multi-head attention whose heads share keys and values."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_blocks import GroupedQueryAttention, KeyValueCache, MultiHeadAttention


def spread(weight: Tensor, groups: int, repeats: int) -> Tensor:
    """Give each head of a group the group's rows."""
    return weight.unflatten(0, (groups, -1)).repeat_interleave(repeats, dim=0).flatten(0, 1)


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_it_is_multi_head_attention_with_the_weights_of_a_group_alike(groups: int) -> None:
    grouped = GroupedQueryAttention(16, 4, groups).double()
    whole = MultiHeadAttention(16, 4).double()
    for parameter in grouped.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    weights = dict(grouped.state_dict())
    for name in ("key_projection", "value_projection"):
        for kind in ("weight", "bias"):
            weights[f"{name}.{kind}"] = spread(weights[f"{name}.{kind}"], groups, 4 // groups)
    whole.load_state_dict(weights)
    x = torch.randn(2, 7, 16, dtype=torch.float64)
    mask = torch.rand(2, 1, 7, 7) < 0.3
    torch.testing.assert_close(grouped(x, x, x, mask=mask), whole(x, x, x, mask=mask))


def test_it_is_what_torch_calls_gqa() -> None:
    attention, x = GroupedQueryAttention(16, 4, 2), torch.randn(2, 7, 16)
    query = attention.query_projection(x).unflatten(-1, (4, 4)).transpose(1, 2)
    key, value = attention.project(x, x)
    assert key.shape == value.shape == (2, 2, 7, 4)
    mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    expected = attention.output_projection(mixed.transpose(1, 2).flatten(2))
    torch.testing.assert_close(attention(x, x, x, causal=True), expected)


@torch.no_grad()
def test_the_cache_is_as_much_smaller_as_heads_are_shared() -> None:
    attention, cache = GroupedQueryAttention(16, 4, 1), KeyValueCache()
    attention(*(torch.randn(3, 5, 16),) * 3, causal=True, cache=cache)
    assert [part.shape for part in cache.read()] == [(3, 1, 5, 4)] * 2


def test_it_has_fewer_weights_and_other_widths_of_what_is_looked_up() -> None:
    attention = GroupedQueryAttention(16, 4, 2, key_width=6, value_width=5, bias=False)
    shapes = {name: tuple(weight.shape) for name, weight in attention.named_parameters()}
    assert shapes == {
        "query_projection.weight": (16, 16),
        "key_projection.weight": (8, 6),
        "value_projection.weight": (8, 5),
        "output_projection.weight": (16, 16),
    }


@pytest.mark.parametrize(("groups", "message"), [(3, "divisible by num_groups"), (0, "num_groups")])
def test_groups_that_do_not_fit_are_refused(groups: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GroupedQueryAttention(16, 4, groups)
