"""Text tokenizer: the ``tokenizer.json`` of Llama, Qwen3 and Gemma 3.

All of them are byte-pair encodings, as GPT-2's is (``byte_pairs.py``). Those of Llama 3 and Qwen3
start from bytes; those of Gemma 3 and the first Llama models start from characters, and use bytes
for characters beyond the vocabulary. They also differ in how a text is normalised and split first,
and in the tokens that precede it. ``tokenizer.json`` describes all of this, and the library
``tokenizers`` performs it.

Next: ``generator.py``, which continues texts.
"""

from pathlib import Path

from tokenizers import Tokenizer

from common.errors import UserError
from pretrained.loading import adds_space, check_tokenizer_config, read_tokenizer, reporting_panics

FILES = ("tokenizer.json", "tokenizer_config.json")


class TextTokenizer:
    """A byte-pair tokenizer as its ``tokenizer.json`` describes it: text to token ids and back.

    A special token within a text is text, never the special token.

    Args:
        tokenizer: A tokenizer of the library ``tokenizers``.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        self.tokens = {number: token for token, number in self.vocabulary.items()}

    @classmethod
    def load(cls, folder: Path) -> "TextTokenizer":
        """Read ``tokenizer.json``.

        Raises:
            UserError: If the file is missing or damaged, describes another tokenizer, adds special
                tokens after a text, or contradicts ``tokenizer_config.json``.
        """
        path, settings = (folder / name for name in FILES)
        found = cls(read_tokenizer(path, "BPE", added_words=True))
        if found.tokenizer.model.dropout:
            raise UserError(f"{path}: dropout must be null, got {found.tokenizer.model.dropout}")
        text = found.tokenizer.encode("a", add_special_tokens=False).ids
        if found.encode("a")[-len(text) :] != text:
            raise UserError(f"{path}: post_processor must add no token after a text")
        check_tokenizer_config(
            settings,
            add_bos_token=bool(found.encode("")),
            add_eos_token=False,
            add_prefix_space=adds_space(found.tokenizer),
        )
        return found

    def encode(self, text: str) -> list[int]:
        """Turn a text into token ids, after those that the tokenizer puts before a text.

        Raises:
            UnicodeEncodeError: If the text holds a lone surrogate.
            UserError: If a pattern of the tokenizer needs too many steps for the text.
        """
        text.encode()  # or the library would raise a TypeError
        with reporting_panics():
            return self.tokenizer.encode(text).ids

    def decode(self, ids: list[int], after: list[int] | None = None) -> str:
        """Turn token ids into text that continues another one.

        Args:
            ids: The token ids, without those of the other text.
            after: The token ids of the other text; none if not given. The first token of ``ids``
                may begin with a space, which it would not if it were the first of a text.

        Raises:
            IndexError: If an id is not in the vocabulary.
        """
        if unknown := [number for number in ids if number not in self.tokens]:
            raise IndexError(f"an id must be in the vocabulary, got {unknown[0]}")
        after = after or []
        with reporting_panics():
            before, whole, alone = map(self.tokenizer.decode, (after, after + ids, ids))
        return whole[len(before) :] if whole.startswith(before) else alone
