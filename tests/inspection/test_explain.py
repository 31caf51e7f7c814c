"""Explained masks: the right reasons for every position, and warnings of likely mistakes."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from transformer_blocks import causal_mask, padding_mask
from transformer_blocks.inspection import explain_mask

FUTURE, PADDING, WINDOW = "future", "padding", "outside the window"
INVERTED = "the mask looks inverted: its inverse would hide {}; True hides"
LEFT = (
    "the mask hides the first keys and not the last ones: right for padding on the left, "
    "inverted for padding on the right; True hides"
)
COMBINED = LEFT.replace("inverted", "inverted before it was combined with the causal mask")


def window_mask(length: int, window: int) -> Tensor:
    return causal_mask(length) | (~causal_mask(length)).tril(-window)


@given(st.integers(2, 6), st.integers(0, 5), st.integers(2, 6), st.booleans())
def test_the_reasons_of_each_position_are_those_of_the_masks_that_hide_it(
    length: int, padded: int, window: int, has_window: bool
) -> None:
    size = length + padded
    tokens = torch.tensor([[5] * length + [0] * padded])
    mask = window_mask(size, window) if has_window else causal_mask(size)
    explained = explain_mask(padding_mask(tokens) | mask)
    for query, row in enumerate(explained.reasons):
        for key, reasons in enumerate(row):
            hides = {
                FUTURE: key > query,
                PADDING: key >= length,
                WINDOW: has_window and query - key >= window,
            }
            assert set(reasons) == {name for name, is_hidden in hides.items() if is_hidden}
    has_several = any(len(reasons) > 1 for row in explained.reasons for reasons in row)
    assert ("+ several of them" in str(explained)) == has_several


@pytest.mark.parametrize(
    ("mask", "expected"),
    [
        (causal_mask(2, 5), {FUTURE}),
        (padding_mask(torch.tensor([[5, 6, 0, 0]])), {PADDING}),
        (padding_mask(torch.tensor([[5, 6, 0, 0]])).expand(1, 1, 4, 4), {PADDING}),
        (torch.eye(4, dtype=torch.bool), {"another reason"}),
        (torch.zeros(3, 3, dtype=torch.bool), set()),
        (torch.zeros(0, 3, dtype=torch.bool), set()),
    ],
)
def test_the_reasons_of_a_combined_mask_are_recognised_by_their_patterns(
    mask: Tensor, expected: set[str]
) -> None:
    explained = explain_mask(mask)
    table = mask if mask.dim() == 2 else mask[0, 0]
    for row, is_masked in zip(explained.reasons, table.tolist(), strict=True):
        assert [bool(cell) for cell in row] == is_masked
    assert {reason for row in explained.reasons for cell in row for reason in cell} == expected
    assert explained.warnings == ()


@pytest.mark.parametrize(
    ("mask", "warning"),
    [
        (~causal_mask(4), INVERTED.format("future")),
        (~window_mask(5, 2), INVERTED.format("future and outside the window")),
        (
            ~(padding_mask(torch.tensor([[5, 6, 7, 0]])) | causal_mask(4)),
            INVERTED.format("future and padding"),
        ),
        (~padding_mask(torch.tensor([[5, 6, 0]])), LEFT),
        (~padding_mask(torch.tensor([[5, 6, 7, 0, 0]])) | causal_mask(5), COMBINED),
        (padding_mask(torch.tensor([[0, 6, 7, 8]])) | causal_mask(4), COMBINED),
        (torch.ones(1, 1, 1, 3, dtype=torch.bool), "query 0 is fully masked: its output is zero"),
    ],
    ids=["causal", "window", "both", "padding", "before causal", "left, causal", "fully masked"],
)
def test_patterns_of_mistakes_are_warned_of(mask: Tensor, warning: str) -> None:
    explained = explain_mask(mask)
    assert warning in explained.warnings
    assert (LEFT in explained.warnings) == (warning == LEFT)
    assert f"warning: {warning}" in str(explained)


def test_one_sequence_and_head_is_shown() -> None:
    mask = padding_mask(torch.tensor([[5, 6, 7], [8, 0, 0]]))
    assert str(explain_mask(mask)).endswith("nothing is masked")
    assert [len(cell) for cell in explain_mask(mask, sequence=1).reasons[0]] == [0, 1, 1]
    by_head = torch.stack([causal_mask(2), torch.zeros(2, 2, dtype=torch.bool)])[None]
    assert str(explain_mask(by_head, head=1)).endswith("nothing is masked")
    assert not str(explain_mask(by_head, head=0)).endswith("nothing is masked")


def test_letters_differ() -> None:
    table = window_mask(6, 3) | torch.tensor([False] * 5 + [True])
    table[3, 2] = True
    letters = explain_mask(table).letters
    assert len(letters) > 1
    assert len(set(letters.values())) == len(letters)


@pytest.mark.parametrize(
    ("mask", "options", "message"),
    [
        (torch.zeros(2, 2, 2).bool(), {}, r"^mask must have shape \(L, S\) or \(B, H, L, S\), got"),
        (
            causal_mask(2),
            {"queries": ["a"]},
            r"^labels must match the mask's shape \(2, 2\), got 1",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    mask: Tensor, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        explain_mask(mask, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "diagonal", "message"),
    [
        ((5, 5), 2, "each query attends to the next position"),
        ((5, 5), 0, "no query attends to its own position"),
        ((3, 5), 1, "it is aligned to the top left, not the bottom right"),
        ((5, 5), 1, ""),
        ((3, 5), 3, ""),
        ((5, 5), 3, ""),
        ((5, 5), -1, ""),
    ],
)
@pytest.mark.parametrize("padding", [0, 1])
def test_a_causal_mask_that_is_shifted_is_named(
    shape: tuple[int, int], diagonal: int, message: str, padding: int
) -> None:
    mask = torch.ones(shape).triu(diagonal).bool()
    mask[:, shape[1] - padding :] = True
    found = [each for each in explain_mask(mask).warnings if "shifted" in each]
    assert found == ([f"the mask looks causal but is shifted: {message}"] if message else [])
