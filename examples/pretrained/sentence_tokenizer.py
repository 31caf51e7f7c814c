"""Sentence tokenizer: RoBERTa's, as its ``tokenizer.json`` describes it.

RoBERTa splits a text into GPT-2's byte pairs (``byte_pairs.py``), and puts ``<s>`` before it and
``</s>`` after it, which take the places of BERT's ``[CLS]`` and ``[SEP]``.

Next: ``pooling.py``, from the vectors of tokens to that of a sentence.
"""

from pathlib import Path

from tokenizers import Tokenizer

from common.errors import UserError
from pretrained.loading import (
    adds_space,
    check_tokenizer_config,
    expect,
    read_tokenizer,
    reporting_panics,
)

PADDING = "<pad>"


class SentenceTokenizer:
    """A byte-pair tokenizer with a token before and one after each text: text to token ids.

    A ``</s>`` within a text is text, never the special token.

    Args:
        tokenizer: A tokenizer of the library ``tokenizers``, whose vocabulary holds ``<pad>``.
        begin_id: Id of the token before a text.
        end_id: Id of the token after a text.
    """

    def __init__(self, tokenizer: Tokenizer, begin_id: int, end_id: int) -> None:
        self.tokenizer, self.begin_id, self.end_id = tokenizer, begin_id, end_id
        self.vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        self.padding_id = self.vocabulary[PADDING]

    @classmethod
    def load(cls, folder: Path) -> "SentenceTokenizer":
        """Read ``tokenizer.json``.

        Raises:
            UserError: If the file is missing or damaged, describes another tokenizer, does not put
                one token before a text and one after it, or contradicts ``tokenizer_config.json``.
        """
        path = folder / "tokenizer.json"
        tokenizer = read_tokenizer(path, "BPE")
        expect(path, "dropout", tokenizer.model.dropout, None)
        if tokenizer.token_to_id(PADDING) is None:
            raise UserError(f"{path}: the vocabulary must hold {PADDING!r}")
        check_tokenizer_config(
            folder / "tokenizer_config.json", add_prefix_space=adds_space(tokenizer)
        )
        around = tokenizer.encode("").ids
        plain = tokenizer.encode("a", add_special_tokens=False).ids
        found = tokenizer.encode("a").ids == [*around[:1], *plain, *around[1:]]
        if len(around) != 2 or not found or None in map(tokenizer.id_to_token, around):
            raise UserError(
                f"{path}: post_processor must add one token before a text and one after it"
            )
        return cls(tokenizer, *around)

    def encode(self, text: str, *, max_length: int) -> list[int]:
        """Turn a text into token ids, with one before it and one after it.

        Args:
            text: Any text.
            max_length: Maximum number of ids, these two included; a longer text is truncated.

        Raises:
            UserError: If a pattern of the tokenizer needs too many steps for the text.
        """
        text = text.encode(errors="ignore").decode()  # without lone surrogates
        with reporting_panics():
            ids = self.tokenizer.encode(text, add_special_tokens=False).ids[: max_length - 2]
        return [self.begin_id, *ids, self.end_id]
