"""Marian's tokenizer gives the tokens that transformers gives."""

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import transformers
from tests.pretrained.published import JAPANESE

from transformer_blocks.pretrained.sentence_pieces import SentencePieces

Publish = Callable[[str], Path]
TRICKY = (
    *("私は本を読みます。", "", " ", "  彼は  手紙を ", "未知の漢字", "ﾊﾝｶｸ ガラス ｶﾞﾗｽ"),
    *("Tokyo東京", "😀👍🏽", "a\tb\nc", "a\u3000b", "e\u0301é", "a\x00b\x07c", "</s>"),
    *("<pad> <unk>", "▁私▁は", "¡Hola! «señor»", ">>jpn<< 私は", ">>jpn<<", ">>xyz<< 本"),
    *(">> 本を", "本 >>jpn<<", "\u200b本"),
)


def published_tokenizer(folder: Path) -> Any:
    files = [folder / name for name in ("source.spm", "target.spm", "vocab.json")]
    with warnings.catch_warnings(action="ignore"):  # about the optional package sacremoses
        make: Any = transformers.MarianTokenizer
        tokenizer = make(*map(str, files))
    tokenizer.punc_normalizer = str  # not even where the package is installed
    return tokenizer


def test_texts_are_encoded_and_decoded_as_by_transformers(published: Publish) -> None:
    folder = published("marian")
    theirs, ours = published_tokenizer(folder), SentencePieces(folder)
    for text in (*TRICKY, *JAPANESE[:5]):
        ids = ours.encode(text)
        if not {"</s>", "<pad>", "<unk>"} & set(text.split()):
            expected = theirs(text, split_special_tokens=True)["input_ids"]
            assert ids == expected, text
        assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True), text
    ids = [5, 10, 1, 0, 11, 12, len(ours.vocabulary) - 1, 8, 7]
    assert ours.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


def test_a_text_cannot_contain_a_special_token(published: Publish) -> None:
    tokenizer = SentencePieces(published("marian"))
    special = {tokenizer.vocabulary[token] for token in ("</s>", "<pad>")}
    for text in ("</s>", "本</s>を", "<pad>", ">>jpn<</s>"):
        assert not special & set(tokenizer.encode(text)[:-1])
    with pytest.raises(IndexError, match="an id must be in the vocabulary, got 999"):
        tokenizer.decode([5, 999])
