"""Explained masks: the right reason in every cell, and a warning where something looks wrong."""

from html.parser import HTMLParser

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from transformer_blocks import causal_mask, padding_mask
from transformer_blocks.inspection import explain_mask

FUTURE, PADDING, WINDOW = "future", "padding", "outside the window"
INVERTED = "the mask looks inverted: turned round, it would hide {}; True hides"
LEFT = (
    "the mask hides the beginning and shows the end: right for padding on the left, "
    "inverted for padding on the right; True hides"
)


def window_mask(length: int, width: int) -> Tensor:
    return causal_mask(length) | (~causal_mask(length)).tril(-width)


@given(st.integers(1, 6), st.integers(0, 5), st.integers(1, 6), st.booleans())
def test_named_masks_give_each_cell_its_reasons(
    length: int, padded: int, width: int, windowed: bool
) -> None:
    tokens = torch.tensor([[5] * length + [0] * padded])
    size = length + padded
    named = {FUTURE: causal_mask(size), PADDING: padding_mask(tokens)}
    if windowed:
        named[WINDOW] = (~causal_mask(size)).tril(-width)
    explained = explain_mask(named)
    for query, row in enumerate(explained.reasons):
        for key, reasons in enumerate(row):
            expected = [
                name
                for name, hides in (
                    (FUTURE, key > query),
                    (PADDING, key >= length),
                    (WINDOW, windowed and query - key >= width),
                )
                if hides
            ]
            assert list(reasons) == expected


@pytest.mark.parametrize(
    ("mask", "found"),
    [
        (causal_mask(4), {FUTURE}),
        (causal_mask(2, 5), {FUTURE}),
        (padding_mask(torch.tensor([[5, 6, 0, 0]])), {PADDING}),
        (padding_mask(torch.tensor([[5, 6, 0, 0]])).expand(1, 1, 4, 4), {PADDING}),
        (padding_mask(torch.tensor([[5, 6, 0, 0]])) | causal_mask(4), {FUTURE, PADDING}),
        (window_mask(5, 2), {FUTURE, WINDOW}),
        (torch.eye(4, dtype=torch.bool), {"another reason"}),
        (torch.zeros(3, 3, dtype=torch.bool), set()),
        (torch.zeros(0, 3, dtype=torch.bool), set()),
    ],
)
def test_the_reasons_of_a_joined_mask_are_told_by_its_looks(mask: Tensor, found: set[str]) -> None:
    explained = explain_mask(mask)
    table = mask if mask.dim() == 2 else mask[0, 0]
    for row, hidden in zip(explained.reasons, table.tolist(), strict=True):
        assert [bool(cell) for cell in row] == hidden
    assert {reason for row in explained.reasons for cell in row for reason in cell} == found
    assert explained.warnings == ()


def test_a_cell_may_have_several_reasons() -> None:
    explained = explain_mask(padding_mask(torch.tensor([[5, 6, 0]])) | causal_mask(3))
    assert explained.reasons[0][1] == (FUTURE,)
    assert set(explained.reasons[0][2]) == {FUTURE, PADDING}
    assert explained.reasons[2][2] == (PADDING,)
    assert "+ several of them" in str(explained)


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
        (
            padding_mask(torch.tensor([[5, 6, 7], [5, 0, 0], [5, 6, 0]]))[:, 0, 0],
            "shape (3, 3) has two meanings: it is read as (L, S), a row a query; if a row is the "
            "padding of a sentence, give it as (B, 1, 1, S), as padding_mask(tokens) does",
        ),
        (torch.ones(1, 1, 1, 3, dtype=torch.bool), "query 0 may see nothing: it gets zeros"),
    ],
    ids=["causal", "window", "both", "padding", "shape", "nothing"],
)
def test_what_looks_wrong_is_warned_of(mask: Tensor, warning: str) -> None:
    explained = explain_mask(mask)
    assert warning in explained.warnings
    assert f"warning: {warning}" in str(explained)


def test_sentence_and_head_are_chosen() -> None:
    mask = padding_mask(torch.tensor([[5, 6, 7], [8, 0, 0]]))
    assert str(explain_mask(mask)).endswith("nothing is hidden")
    assert [len(cell) for cell in explain_mask(mask, sentence=1).reasons[0]] == [0, 1, 1]
    by_head = torch.stack([causal_mask(2), torch.zeros(2, 2, dtype=torch.bool)])[None]
    assert str(explain_mask(by_head, head=1)).endswith("nothing is hidden")
    assert not str(explain_mask(by_head, head=0)).endswith("nothing is hidden")


class Table(HTMLParser):
    """What a browser makes of the HTML: texts, tags and titles."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.titles: list[str] = []
        self.texts: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.titles += [value or "" for name, value in attrs if name == "title"]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_the_notebook_table_tells_the_reasons_and_takes_labels_as_text() -> None:
    labels = ["</td><script>alert(1)</script>", '"><img onerror=x>', "猫"]
    named = {"<b>": causal_mask(3), "pad": padding_mask(torch.tensor([[5, 6, 0]]))}
    table = Table(explain_mask(named, queries=labels, keys=labels)._repr_html_())
    assert set(table.tags) == {"table", "tr", "th", "td", "p", "b"}
    assert table.texts.count(labels[0]) == table.texts.count(labels[1]) == 2
    assert table.titles == [
        *("visible", "hidden as <b>", "hidden as <b> and pad"),
        *("visible", "visible", "hidden as <b> and pad"),
        *("visible", "visible", "hidden as pad"),
    ]


def test_a_large_mask_is_explained_in_no_time() -> None:
    explained = explain_mask(window_mask(400, 30))
    assert explained.reasons[399][0] == (WINDOW,)
    assert explained.reasons[0][399] == (FUTURE,)


def test_letters_are_never_those_of_other_marks() -> None:
    named = {"+.": causal_mask(2), **{" " * n: causal_mask(2).T for n in range(1, 4)}}
    letters = list(explain_mask(named).letters.values())
    assert len(set(letters)) == 4
    assert not {".", "+", " "} & set(letters)


def test_letters_stay_apart_where_reasons_begin_alike() -> None:
    named = {"past": causal_mask(2), "padding": causal_mask(2).T, "p": torch.eye(2).bool()}
    letters = explain_mask(named).letters
    assert len(set(letters.values())) == 3


@pytest.mark.parametrize(
    ("mask", "options", "message"),
    [
        (torch.zeros(2, 2, 2).bool(), {}, r"^mask must have shape \(L, S\) or \(B, H, L, S\), got"),
        ({}, {}, r"^mask must be a tensor, or at least one by name, got none$"),
        (
            causal_mask(2),
            {"queries": ["a"]},
            r"^labels must match the mask's shape \(2, 2\), got 1",
        ),
        (
            {"a": causal_mask(2), "b": causal_mask(3)},
            {},
            r"^masks must be of one size, got \(2, 2\) for 'a' beside \(3, 3\)$",
        ),
        (
            torch.zeros(2, 1, 1, 2).bool(),
            {"sentence": 2},
            r"^sentence must be in 0\.\.1, got sentence=2$",
        ),
        (torch.zeros(0, 1, 1, 2).bool(), {}, r"^mask must have a sentence and a head to show, got"),
        (torch.zeros(1, 2, 1, 2).bool(), {"head": -1}, r"^head must be in 0\.\.1, got head=-1$"),
    ],
)
def test_what_is_no_mask_is_refused(mask: Tensor, options: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        explain_mask(mask, **options)  # type: ignore[arg-type]


def test_a_float_mask_is_refused() -> None:
    with pytest.raises(TypeError, match=r"^mask must be bool, where True hides a key, got dtype="):
        explain_mask(torch.zeros(2, 2))
