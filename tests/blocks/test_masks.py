"""What masks hide, which shapes fit, and how they are formatted."""

from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from transformer_blocks import (
    causal_mask,
    document_mask,
    format_mask,
    length_mask,
    padding_mask,
    sliding_window_mask,
)
from transformer_blocks._contracts import check_mask


@given(queries=st.integers(1, 6), keys=st.integers(1, 6))
def test_a_causal_mask_hides_exactly_the_later_positions(queries: int, keys: int) -> None:
    mask = causal_mask(queries, keys)
    for i, j in product(range(queries), range(keys)):
        assert mask[i, j] == (j > i + keys - queries)
    assert not mask[-1].any()  # the last query attends to every key
    assert torch.equal(causal_mask(queries), causal_mask(queries, queries))


def test_masks_are_built_on_the_requested_device() -> None:
    assert causal_mask(2, device="meta").is_meta
    assert padding_mask(torch.zeros(2, 3, dtype=torch.int64, device="meta")).is_meta
    assert length_mask(torch.zeros(2, dtype=torch.int64, device="meta"), 3).is_meta


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.uint8], ids=str)
def test_a_padding_mask_hides_exactly_the_padding(dtype: torch.dtype) -> None:
    tokens = torch.tensor([[5, 0, 7], [0, 0, 3]], dtype=dtype)
    assert padding_mask(tokens).tolist() == [[[[False, True, False]]], [[[True, True, False]]]]
    assert padding_mask(tokens, padding_id=7).sum() == 1


@given(st.lists(st.integers(0, 6), max_size=4), st.integers(1, 6))
def test_a_length_mask_is_the_padding_mask_of_sequences_of_these_lengths(
    lengths: list[int], max_length: int
) -> None:
    tokens = torch.tensor([[i < length for i in range(max_length)] for length in lengths])
    tokens = tokens.view(len(lengths), max_length).int()
    mask = length_mask(torch.tensor(lengths, dtype=torch.int64), max_length)
    assert torch.equal(mask, padding_mask(tokens))


@given(st.data())
def test_a_mask_fits_as_l_s_or_if_it_broadcasts_to_b_h_l_s(data: st.DataObject) -> None:
    sizes: dict[str, Any] = {
        name: data.draw(st.integers(0, 3), name) for name in ("batch", "heads", "queries", "keys")
    }
    batch, heads, queries, keys = sizes.values()
    near = st.tuples(*(st.sampled_from((1, size)) for size in sizes.values()))
    shape = data.draw(near | st.lists(st.integers(0, 3), max_size=5).map(tuple), "shape")
    fits = shape == (queries, keys) or (
        len(shape) == 4
        and shape[0] in (1, batch)
        and shape[1] in (1, heads)
        and shape[2] in (1, queries)
        and shape[3] == keys
    )
    mask = torch.zeros(shape, dtype=torch.bool)
    if fits:
        check_mask("mask", mask, [*sizes.values()])
    else:
        with pytest.raises(ValueError, match="mask must have shape"):
            check_mask("mask", mask, [*sizes.values()])


def test_columns_are_aligned_with_their_labels_also_for_wide_characters() -> None:
    table = format_mask(causal_mask(2), queries=["猫", "is"], keys=["猫", "is"])
    assert table.splitlines() == ["    猫 is", "猫  .  x", "is  .  ."]


@pytest.mark.parametrize(
    ("mask", "titles"),
    [
        (torch.zeros(2, 1, 1, 3), ["sequence 0, all heads", "sequence 1, all heads"]),
        (torch.zeros(1, 2, 2, 3), ["all sequences, head 0", "all sequences, head 1"]),
        (torch.zeros(1, 1, 2, 3), ["all sequences, all heads"]),
        (torch.zeros(0, 1, 2, 3), []),
    ],
)
def test_a_formatted_mask_names_its_sequences_and_heads(mask: Tensor, titles: list[str]) -> None:
    lines = format_mask(mask.bool()).splitlines()
    assert [line for line in lines if "," in line] == titles
    assert ("*  . . ." in lines) == (mask.shape[2] == 1)  # one row for all queries


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 9))
def test_a_window_hides_exactly_the_distant_positions(queries: int, more: int, window: int) -> None:
    keys = queries + more - 1
    mask = sliding_window_mask(queries, keys, window=window)
    for i, j in product(range(queries), range(keys)):
        assert mask[i, j] == (abs(keys - queries + i - j) >= window)


def test_queries_and_keys_match_by_their_document_numbers() -> None:
    mask = document_mask(torch.tensor([[7, 9]]), torch.tensor([[9, 9, 7]]))
    assert mask.tolist() == [[[[True, True, False], [False, False, True]]]]
