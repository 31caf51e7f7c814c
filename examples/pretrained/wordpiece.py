"""WordPiece: cut text as BERT was trained to read it.

A text is cleaned, cut into words at spaces and punctuation, and each word is cut into pieces of a
vocabulary: the longest that it begins with, then the longest that the rest begins with, which is
written with ``##`` before it, and so on (the paper on BERT, Devlin et al. 2019,
https://arxiv.org/abs/1810.04805, section 3; the vocabulary's idea is from "Japanese and Korean
Voice Search", Schuster and Nakajima 2012). A Chinese character is a word of its own.
"""

import unicodedata
from collections.abc import Iterator
from pathlib import Path

from pretrained.loading import read_json
from translation.corpus import read_lines
from translation.errors import UserError

LONGEST_WORD = 100  # characters; a longer one is unknown
CHINESE = (  # first and last of each block, CJK ideographs in Unicode
    *((0x4E00, 0x9FFF), (0x3400, 0x4DBF), (0x20000, 0x2A6DF), (0x2A700, 0x2B73F)),
    *((0x2B740, 0x2B81F), (0x2B920, 0x2CEAF), (0xF900, 0xFAFF), (0x2F800, 0x2FA1F)),
)


class WordPiece:
    """BERT's tokenizer: text to ids.

    A ``[SEP]`` that somebody writes into a text is text as any other, never the mark.

    Args:
        vocabulary: The id of each piece; among them [PAD], [UNK], [CLS] and [SEP].
        lower_case: Whether "A" is read as "a".
        strip_accents: Whether "é" is read as "e"; as ``lower_case`` if not given.
        split_chinese: Whether Chinese characters are words of their own.

    Raises:
        UserError: If a special piece is missing.

    Example:
        >>> pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##know", "##n", "word", "!"]
        >>> tokenizer = WordPiece({piece: id for id, piece in enumerate(pieces)})
        >>> ids = tokenizer.encode("Unknown wörd!", max_length=10)
        >>> [pieces[id] for id in ids]
        ['[CLS]', 'un', '##know', '##n', 'word', '!', '[SEP]']
    """

    def __init__(
        self,
        vocabulary: dict[str, int],
        *,
        lower_case: bool = True,
        strip_accents: bool | None = None,
        split_chinese: bool = True,
    ) -> None:
        for mark in ("[PAD]", "[UNK]", "[CLS]", "[SEP]"):
            if mark not in vocabulary:
                raise UserError(f"the vocabulary of a WordPiece tokenizer must hold {mark}")
        self.vocabulary = vocabulary
        self.lower_case = lower_case
        self.strip_accents = lower_case if strip_accents is None else strip_accents
        self.split_chinese = split_chinese

    @classmethod
    def load(cls, folder: Path) -> "WordPiece":
        """Read ``vocab.txt`` and, if it is there, ``tokenizer_config.json``.

        Raises:
            UserError: If the vocabulary is missing or lacks a special piece, or the tokenizer is of
                another kind.
        """
        path = folder / "tokenizer_config.json"
        config = read_json(path) if path.exists() else {}
        kind = config.get("tokenizer_class") or "BertTokenizer"
        if kind not in ("BertTokenizer", "BertTokenizerFast"):
            raise UserError(f"{path}: tokenizer_class must be BertTokenizer, got {kind!r}")
        for name in ("do_lower_case", "strip_accents", "tokenize_chinese_chars"):
            if config.get(name) not in (None, True, False):
                raise UserError(f"{path}: {name} must be true, false or null, got {config[name]!r}")
        return cls(
            {piece: number for number, piece in enumerate(read_lines(folder / "vocab.txt"))},
            lower_case=config.get("do_lower_case", True),
            strip_accents=config.get("strip_accents"),
            split_chinese=config.get("tokenize_chinese_chars", True),
        )

    @property
    def padding_id(self) -> int:
        """The id that fills short sentences up."""
        return self.vocabulary["[PAD]"]

    def encode(self, text: str, *, max_length: int) -> list[int]:
        """Turn a text into ids between the marks [CLS] and [SEP].

        Args:
            text: Any text.
            max_length: Most ids, both marks included; what is longer is cut at its end.
        """
        pieces = [piece for word in self._words(text) for piece in self._pieces(word)]
        marked = ["[CLS]", *pieces[: max_length - 2], "[SEP]"]
        return [self.vocabulary[piece] for piece in marked]

    def _words(self, text: str) -> Iterator[str]:
        """Clean a text and cut it at spaces and around punctuation."""
        text = "".join(" " if _is_space(c) else c for c in text if not _is_noise(c))
        if self.split_chinese:
            text = "".join(f" {c} " if _is_chinese(c) else c for c in text)
        if self.strip_accents:
            text = unicodedata.normalize("NFD", text)  # an accent gets a character of its own
            text = "".join(c for c in text if unicodedata.category(c) != "Mn")
        if self.lower_case:
            text = "".join(c.lower() for c in text)  # one by one: a last Σ is no exception
        text = "".join(f" {c} " if _is_punctuation(c) else c for c in text)
        yield from text.split(" ")

    def _pieces(self, word: str) -> list[str]:
        """Cut a word into the longest pieces there are, from left to right."""
        if len(word) > LONGEST_WORD:
            return ["[UNK]"]
        pieces: list[str] = []
        start = 0
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in self.vocabulary:
                    break
            else:
                return ["[UNK]"]  # a word is known as a whole or not at all
            pieces.append(piece)
            start = end
        return pieces


def _is_noise(character: str) -> bool:
    """Tell controls, formats, private and broken characters, and the mark of lost ones."""
    if character in "\t\n\r":
        return False
    return unicodedata.category(character) in ("Cc", "Cf", "Co", "Cs") or character == "\ufffd"


def _is_space(character: str) -> bool:
    return character in "\t\n\r" or unicodedata.category(character) in ("Zs", "Zl", "Zp")


def _is_chinese(character: str) -> bool:
    return any(first <= ord(character) <= last for first, last in CHINESE)


def _is_punctuation(character: str) -> bool:
    """Tell punctuation; among ASCII, all that is neither letter nor digit nor space."""
    if character.isascii():
        return not character.isalnum() and character != " "
    return unicodedata.category(character).startswith("P")
