"""Blockwise top-k: what ``torch.topk`` returns, in the order of a stable sort."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from transformer_blocks.fast.top_k import MIN_NUMBERS, top_k


@given(
    rows=st.integers(0, 3),
    width=st.integers(1, 40),
    count=st.integers(1, 9),
    different=st.integers(2, 50),
    seed=st.integers(0, 99),
    is_compiling=st.booleans(),
)
def test_values_and_indices_equal_those_of_a_stable_sort(
    rows: int, width: int, count: int, different: int, seed: int, is_compiling: bool
) -> None:
    count = min(count, width)
    generator = torch.Generator().manual_seed(seed)
    # Few different values, so that many are equal; the logarithm of 0 is negative infinity.
    scores = torch.randint(different, (rows, width), generator=generator).float().log()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transformer_blocks.fast.top_k.MIN_NUMBERS", 0)
        patch.setattr("transformer_blocks.fast.top_k.BLOCK_SIZE", 4)
        patch.setattr(torch.compiler, "is_compiling", lambda: is_compiling)
        values, indices = top_k(scores, count)
    expected = scores.sort(dim=-1, descending=True, stable=True)
    assert torch.equal(values, expected.values[:, :count])
    assert torch.equal(indices, expected.indices[:, :count])


@pytest.mark.parametrize("count", [1, 8])
def test_values_and_indices_of_different_numbers_equal_those_of_torch(count: int) -> None:
    scores = torch.randn(16, 4001)
    assert scores.numel() > MIN_NUMBERS
    expected = scores.topk(count)
    for device in ("cpu", "meta"):  # whatever the default device is
        with torch.device(device):
            values, indices = top_k(scores, count)
        assert torch.equal(values, expected.values)
        assert torch.equal(indices, expected.indices)


def test_nan_is_the_largest_number_as_in_torch() -> None:
    scores = torch.randn(16, 4001)
    scores[3, 17] = math.nan
    values, indices = top_k(scores, 8)
    assert torch.isnan(values[3, 0])
    assert indices[3, 0] == scores.topk(8).indices[3, 0] == 17
