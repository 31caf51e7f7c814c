"""Byte pairs: GPT-2's tokenizer.

Byte-pair encoding merges the adjacent tokens that occur together most often
(``docs/learn/11_text_to_batches.py`` implements it from scratch). GPT-2's starts from the 256 bytes
instead of characters, so that every text can be encoded (section 2.2 of its paper).
Two details:

- A text is split first, and no token crosses a boundary: between letters, digits, spaces and other
  characters, and before an English ``'s`` or ``'ll``. A single space belongs to the word after it.
- ``vocab.json`` shows each byte as a printable character, a space as ``Ġ``.

The library ``tokenizers`` performs the encoding. This file configures it from published files, and
refuses files that describe a tokenizer of another kind.

Next: ``llama_family.py``, newer decoder-only models.
"""

import json
from collections.abc import Iterable
from pathlib import Path

from tokenizers import Tokenizer
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from common.errors import UserError
from common.text_files import read_lines
from pretrained.loading import (
    check_tokenizer_config,
    check_vocabulary,
    expect_parts,
    read_json,
    read_tokenizer,
    shown,
)

FILES = ("vocab.json", "merges.txt", "tokenizer.json", "tokenizer_config.json")
END = "<|endoftext|>"
BYTES = sorted(ByteLevel.alphabet())
"""The 256 characters that stand for bytes, in the order of their code points."""


PARTS: dict[str, dict[str, object]] = {
    "model": {
        "dropout": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "ignore_merges": False,
    },
    "normalizer": {"type": None},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
    "decoder": {"type": "ByteLevel"},
}
"""The parts of GPT-2's ``tokenizer.json``."""


class BytePairs:
    """GPT-2's tokenizer: text to token ids and back.

    An ``<|endoftext|>`` within a text is text, never the special token.

    Args:
        tokenizer: A byte-pair tokenizer of the library ``tokenizers``. Its vocabulary must hold all
            bytes and ``<|endoftext|>``.

    Raises:
        UserError: If a token is missing, two tokens have one id, or a token holds a character that
            stands for no byte.

    Example:
        >>> tokens = [*BYTES, "Ġc", "at", "Ġcat", END]
        >>> vocabulary = {token: number for number, token in enumerate(tokens)}
        >>> merges = [("Ġ", "c"), ("a", "t"), ("Ġc", "at")]
        >>> tokenizer = BytePairs.from_merges(vocabulary, merges)
        >>> ids = tokenizer.encode("a cat's 猫")
        >>> [tokens[number] for number in ids]
        ['a', 'Ġcat', "'", 's', 'Ġ', 'ç', 'Į', '«']
        >>> tokenizer.decode(ids)
        "a cat's 猫"
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.vocabulary = tokenizer.get_vocab(with_added_tokens=False)
        _check_tokens(self.vocabulary, (*BYTES, END))
        self.tokens = {number: token for token, number in self.vocabulary.items()}
        if len(self.tokens) < len(self.vocabulary):
            raise UserError("the vocabulary of a GPT-2 tokenizer must not repeat an id")
        alphabet = set(BYTES)
        for token in self.vocabulary:
            if token != END and not alphabet.issuperset(token):
                raise UserError(
                    "the tokens of a GPT-2 tokenizer must consist of the characters that stand "
                    f"for bytes, got {shown(token)}"
                )

    @classmethod
    def from_merges(cls, vocabulary: dict[str, int], merges: list[tuple[str, str]]) -> "BytePairs":
        """Make a tokenizer of a vocabulary and merges.

        Args:
            vocabulary: The id of each token; all bytes and ``<|endoftext|>`` are among them.
            merges: The pairs of tokens to merge, the most frequent first.

        Raises:
            UserError: As for the constructor, and if the vocabulary lacks a merged token.
        """
        _check_tokens(vocabulary, (token for pair in merges for token in (*pair, "".join(pair))))
        tokenizer = Tokenizer(BPE(vocabulary, merges))
        tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
        tokenizer.decoder = ByteLevelDecoder()
        return cls(tokenizer)

    @classmethod
    def load(cls, folder: Path) -> "BytePairs":
        """Read ``tokenizer.json``, or ``vocab.json`` and ``merges.txt``.

        Raises:
            UserError: If a file is missing or damaged, the files contradict each other, or the
                tokenizer is of another kind.
        """
        table, path, fast, settings = (folder / name for name in FILES)
        check_tokenizer_config(
            settings, add_bos_token=False, add_eos_token=False, add_prefix_space=False
        )
        if table.exists() or path.exists() or not fast.exists():
            vocabulary = check_vocabulary(read_json(table), table)
            tokenizer = cls.from_merges(vocabulary, read_merges(path))
        if not fast.exists():
            return tokenizer
        published = cls(read_tokenizer(fast, "BPE"))
        expect_parts(fast, published.tokenizer, PARTS)
        if published.tokenizer.encode("a").ids != published.encode("a"):
            raise UserError(f"{fast}: post_processor must add no token to a text")
        if table.exists() and _model(published) != _model(tokenizer):
            raise UserError(
                f"{folder}: {table.name} and {path.name} hold another vocabulary or other merges "
                f"than {fast.name}"
            )
        return published

    def encode(self, text: str) -> list[int]:
        """Turn a text into token ids.

        Raises:
            UnicodeEncodeError: If the text holds a lone surrogate.
        """
        text.encode()  # or the library would raise a TypeError
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, ids: list[int], after: list[int] | None = None) -> str:
        """Turn token ids into text, without ``<|endoftext|>``.

        An incomplete character at an end becomes U+FFFD.

        Args:
            ids: The token ids.
            after: The token ids of the text that they continue; here, they change nothing.

        Raises:
            IndexError: If an id is not in the vocabulary.
        """
        if unknown := [number for number in ids if number not in self.tokens]:
            raise IndexError(f"an id must be in the vocabulary, got {unknown[0]}")
        end = self.vocabulary[END]
        return self.tokenizer.decode(
            [number for number in ids if number != end], skip_special_tokens=False
        )


def read_merges(path: Path) -> list[tuple[str, str]]:
    """Read ``merges.txt``: a pair of tokens a line, the most frequent first.

    Raises:
        UserError: If the file is missing, or a line holds something else.
    """
    merges = []
    for number, line in enumerate(read_lines(path), start=1):
        match line.split(" "):
            case [left, right] if left and right and not line.startswith("#version"):
                merges.append((left, right))
            case _ if line and not line.startswith("#version"):
                raise UserError(f"{path}:{number} must hold two tokens, got {line!r}")
    return merges


def _check_tokens(vocabulary: dict[str, int], tokens: Iterable[str]) -> None:
    for token in tokens:
        if token not in vocabulary:
            raise UserError(f"the vocabulary of a GPT-2 tokenizer must hold {token!r}")


def _model(found: BytePairs) -> tuple[object, object]:
    """Return the vocabulary and the merges, to be compared."""
    model = json.loads(found.tokenizer.to_str())["model"]
    return model["vocab"], model["merges"]
