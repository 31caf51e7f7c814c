"""Unigram: T5's tokenizer, as its ``tokenizer.json`` describes it.

A unigram model ("Subword Regularization", Kudo 2018, https://arxiv.org/abs/1804.10959, section 3.2)
gives each token of its vocabulary a probability, and splits a text into the tokens whose
probabilities have the largest product. Spaces are part of the tokens, so that a text can be
decoded.

Next: ``text_to_text.py``, the outputs for several texts.
"""

from pathlib import Path

from tokenizers import Tokenizer

from common.errors import UserError
from pretrained.loading import expect_parts, read_tokenizer, reporting_panics

PADDING, UNKNOWN = "<pad>", "<unk>"


class Unigram:
    """A unigram tokenizer that adds an end token: text to token ids and back.

    A ``</s>`` or ``<pad>`` within a text is unknown, never the special token.

    Args:
        tokenizer: A tokenizer of the library ``tokenizers``, whose vocabulary holds ``<pad>`` and
            ``<unk>``.
        end_id: Id of the token after a text.
    """

    def __init__(self, tokenizer: Tokenizer, end_id: int) -> None:
        self.tokenizer, self.end_id = tokenizer, end_id
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        self.tokens = frozenset(vocabulary.values())
        self.padding_id, self.unknown_id = vocabulary[PADDING], vocabulary[UNKNOWN]

    @classmethod
    def load(cls, folder: Path) -> "Unigram":
        """Read ``tokenizer.json``.

        Raises:
            UserError: If the file is missing or damaged, describes another tokenizer, or does not
                add exactly one token, after a text.
        """
        path = folder / "tokenizer.json"
        tokenizer = read_tokenizer(path, "Unigram")
        for token in (PADDING, UNKNOWN):
            if tokenizer.token_to_id(token) is None:
                raise UserError(f"{path}: the vocabulary must hold {token!r}")
        expect_parts(path, tokenizer, {"model": {"unk_id": tokenizer.token_to_id(UNKNOWN)}})
        end = tokenizer.encode("").ids
        plain = tokenizer.encode("a", add_special_tokens=False).ids
        if len(end) != 1 or tokenizer.encode("a").ids != [*plain, *end]:
            raise UserError(f"{path}: post_processor must add one token after a text, and no other")
        return cls(tokenizer, *end)

    def encode(self, text: str) -> list[int]:
        """Turn a text into token ids, with the end token after it.

        Raises:
            UnicodeEncodeError: If the text holds a lone surrogate.
            UserError: If a pattern of the tokenizer needs too many steps for the text.
        """
        text.encode()  # or the library would raise a TypeError
        special = self.padding_id, self.end_id
        with reporting_panics():
            ids = self.tokenizer.encode(text, add_special_tokens=False).ids
        return [*(self.unknown_id if each in special else each for each in ids), self.end_id]

    def decode(self, ids: list[int]) -> str:
        """Turn token ids into text, without special tokens."""
        with reporting_panics():
            return self.tokenizer.decode(ids)
