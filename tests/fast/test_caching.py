"""Appending to a buffer is ``torch.cat``, and a mask that hides nothing is no mask."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses import FakeTensorMode

from transformer_blocks.fast.caching import MIN_CAPACITY, append, drop_empty_mask, grow


@given(st.integers(0, 40), st.lists(st.integers(0, 30), min_size=1, max_size=6))
def test_appending_to_a_buffer_equals_torch_cat(first: int, lengths: list[int]) -> None:
    buffer = expected = torch.randn(2, 3, first, 4)
    for length in lengths:
        new = torch.randn(2, 3, length, 4)
        buffer = append(buffer, expected.shape[2], new)
        expected = torch.cat((expected, new), dim=2)
        assert torch.equal(buffer[:, :, : expected.shape[2]], expected)


def test_a_buffer_is_copied_only_when_it_is_full_and_then_grows_by_half() -> None:
    buffer, capacities = torch.randn(2, 1, 4), []
    for length in range(1, 60):
        larger = append(buffer, length, torch.randn(2, 1, 4))
        assert (larger is buffer) == (length < buffer.shape[1])
        buffer = larger
        capacities.append(buffer.shape[1])
    assert sorted(set(capacities)) == [MIN_CAPACITY, 24, 36, 54, 81]
    assert grow(buffer, 60, 81) is buffer


def test_only_a_mask_that_is_known_to_hide_nothing_is_dropped() -> None:
    empty, padding = torch.zeros(2, 1, 1, 3) > 0, torch.tensor([[[[False, True]]]])
    assert drop_empty_mask(None) is None
    assert drop_empty_mask(empty) is None
    with FakeTensorMode() as mode:  # its tensors have shapes, but no values
        fake = mode.from_tensor(empty)
    for mask in (padding, empty.to("meta"), fake):
        assert drop_empty_mask(mask) is mask
