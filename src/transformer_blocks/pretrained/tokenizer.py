"""Tokenizer: text to token ids and back, as the ``tokenizer.json`` of a model describes it.

The families split a text into subwords by one of three algorithms:

- **WordPiece** (BERT, DistilBERT; Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3)
  splits a text into words, and each word greedily: the first token is the longest in the vocabulary
  that the word begins with, the next the longest that the rest begins with, with ``##`` before it.
- **Byte pairs** (GPT-2, RoBERTa, Llama and later models) merge the adjacent tokens that occur
  together most often (``docs/learn/13_text_to_batches.py`` implements it from scratch). Most start
  from the 256 bytes, so that every text can be encoded, and show each byte as a printable
  character, a space as ``Ġ``. Gemma 3 and the first Llama models start from characters, and use
  bytes for characters beyond the vocabulary.
- **Unigram** (T5; "Subword Regularization", Kudo 2018, https://arxiv.org/abs/1804.10959, section
  3.2) gives each token a probability, and splits a text into the tokens whose probabilities have
  the largest product.

They also differ in how a text is normalised and split into words first, and in the special tokens
that are put around it. The file describes all of this, and the library ``tokenizers`` performs it.

Next: ``family.py``, what is said about each family.
"""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from transformer_blocks.pretrained.config import LoadError, read_json

FILE = "tokenizer.json"
OLDER = "merges.txt", "vocab.txt", "spiece.model", "tokenizer.model"  # of earlier models


class Tokenizer:
    """The tokenizer of a published model.

    The name of a special token within a text is text, never the special token, unless it is also an
    ordinary token of the vocabulary, as in T5.

    Args:
        folder: The folder of the model. Nothing in its files is executed.

    Attributes:
        path: The file, which a page can hold (:class:`~transformer_blocks.explorer.LiveModel`).
        ids: The ids of all tokens.
        end_ids: The ids of the tokens that end a text; empty if there are none.
        max_length: Maximum number of tokens of a text that the model was made for, if there is one.

    Raises:
        LoadError: If a file is missing or damaged.
    """

    ids: Collection[int]
    end_ids: tuple[int, ...] = ()
    max_length: int | None = None

    def __init__(self, folder: Path) -> None:
        import tokenizers  # only now: it is in the extra "pretrained"

        self.path = path = folder / FILE
        older = [name for name in OLDER if (folder / name).exists()]
        if older and not path.exists():
            made = f"transformers.AutoTokenizer.from_pretrained({str(folder)!r})"
            raise LoadError(
                f"{path} is missing, and only it is read, not {older[0]}; make it with "
                f"{made}.save_pretrained({str(folder)!r})"
            )
        read_json(path)  # whose errors are clearer than the library's
        try:
            self._tokenizer: Any = tokenizers.Tokenizer.from_file(str(path))
        except Exception as error:  # the library's errors have no class of their own
            raise LoadError(f"{path} cannot be read as a tokenizer ({error})") from error
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.encode_special_tokens = True
        self.ids = frozenset(self._tokenizer.get_vocab(with_added_tokens=True).values())

    def encode(self, text: str) -> list[int]:
        """Turn a text into token ids, with the special tokens that are put around it.

        Lone surrogates, which are no characters, are dropped.
        """
        ids: list[int] = self._tokenizer.encode(text.encode(errors="ignore").decode()).ids
        return ids

    def decode(self, ids: Sequence[int], after: Sequence[int] = ()) -> str:
        """Turn token ids into text, without special tokens.

        Args:
            ids: The token ids.
            after: The token ids of a text that they continue. The first token of ``ids`` may begin
                with a space, which it would not if it were the first of a text.
        """
        texts = [list(after), [*after, *ids], list(ids)]
        before, whole, alone = map(self._tokenizer.decode, texts)
        return whole[len(before) :] if whole.startswith(before) else alone
