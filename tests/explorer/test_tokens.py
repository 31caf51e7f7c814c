"""Tokens as labels: which characters are markers of subwords, and which are text."""

import pytest

from transformer_blocks.explorer.tokens import Label, token_labels

WORDS = ["un", "believ", "able", "cats"]
BEGINS = [True, False, False, True]
CONVENTIONS = {
    "sentencepiece": ["▁un", "believ", "able", "▁cats"],
    "sentencepiece without a first mark": ["un", "believ", "able", "▁cats"],
    "byte pairs": ["un", "believ", "able", "Ġcats"],
    "wordpiece": ["un", "##believ", "##able", "cats"],
}


@pytest.mark.parametrize("tokens", CONVENTIONS.values(), ids=CONVENTIONS.keys())
def test_every_convention_gives_the_same_words(tokens: list[str]) -> None:
    assert token_labels(tokens) == list(map(Label, WORDS, BEGINS))


@pytest.mark.parametrize(
    "tokens", [["the", "cat"], ["猫", "が"], ["#", "##", "x"], ["aĠ", "a▁"], []]
)
def test_tokens_without_markers_are_unchanged(tokens: list[str]) -> None:
    assert token_labels(tokens) == [Label(token, True) for token in tokens]


@pytest.mark.parametrize(
    ("tokens", "special"),
    [
        (["<s>", "▁a", "</s>", "b", "<unk>"], {0, 2, 4}),
        (["[CLS]", "a", "##b", "[SEP]", "[unused1]", "[UNK]"], {0, 3, 5}),
        (["<|endoftext|>", "A", "Ġcat", "<|endoftext|>", "Dogs"], {0, 3}),
    ],
)
def test_special_tokens_are_unchanged_and_a_word_begins_after_them(
    tokens: list[str], special: set[int]
) -> None:
    labels = token_labels(tokens)
    for place in special:
        assert labels[place] == Label(tokens[place], True)
        assert place + 1 >= len(labels) or labels[place + 1].begins_word


def test_a_marker_alone_and_markers_within_a_token_are_shown() -> None:
    assert [label.text for label in token_labels(["▁", "猫", "▁▁", "a▁b", ""])] == [
        *("␣", "猫", "␣", "a b", ""),
    ]
    assert [label.text for label in token_labels(["Ġ", "ĠĠa", "Ċ", "aĊĊ"])] == [
        *("␣", "a", "↵", "a↵↵"),
    ]


def test_only_the_markers_of_the_sequence_are_removed() -> None:
    assert [label.text for label in token_labels(["▁##", "##x", "Ġurna"])] == ["##", "##x", "Ġurna"]
    assert [label.text for label in token_labels(["##x", "Ġ", "##"])] == ["##x", "␣", "##"]


def test_a_byte_of_sentencepiece_does_not_begin_a_word() -> None:
    assert token_labels(["▁a", "<0xE3>", "b"]) == [
        Label("a", True),
        Label("<0xE3>", False),
        Label("b", False),
    ]
