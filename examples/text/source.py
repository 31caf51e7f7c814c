"""Source: a text in three splits, each as one sequence of tokens.

The lines of a text follow each other, so it is cut into splits and not shuffled: the first nine
tenths are the training split, a twentieth the validation split, and the end the test split.

Every character that is not in the training split becomes the same unknown token. If the test split
has many of them, its perplexity is too low to be compared with that of other tokenizers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from common.errors import UserError
from common.files import fingerprint
from common.text_files import clean_text, read_lines
from common.tokenizer import EOS, Tokenizer
from text.stories import toy_text

FEWEST = 20
"""Minimum number of lines of a text."""


@dataclass(frozen=True)
class Text:
    """The lines of a text, in three splits."""

    train: list[str]
    validation: list[str]
    test: list[str]

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of all lines."""
        return fingerprint(zip(self.train), zip(self.validation), zip(self.test))


def load_text(path: Path | None) -> Text:
    """Read a file, or generate the toy stories, and split it.

    Raises:
        UserError: If the file cannot be read, or has too few lines.
    """
    lines = toy_text() if path is None else [clean_text(line, "en") for line in read_lines(path)]
    lines = [line for line in lines if line]
    if len(lines) < FEWEST:
        raise UserError(
            f"a text must have at least {FEWEST} lines that are not blank, got {len(lines)} in "
            f"{path}; put sentences or paragraphs on lines of their own"
        )
    size = len(lines) // 20
    return Text(lines[: -2 * size], lines[-2 * size : -size], lines[-size:])


def encode_lines(lines: Sequence[str], tokenizer: Tokenizer) -> Tensor:
    """Encode lines as one sequence, with the end token before the first line and after each.

    Returns:
        Token ids, of shape (T,).
    """
    ids = [EOS]
    for line in tokenizer.encode_many(lines):
        ids += [*line, EOS]
    return torch.tensor(ids)


def characters(lines: Sequence[str]) -> int:
    """Count the characters of lines, line ends included.

    Example:
        >>> characters(["one", "two"])
        8
    """
    return sum(len(line) + 1 for line in lines)


def decode_lines(ids: Sequence[int], tokenizer: Tokenizer) -> str:
    """Decode token ids; an end token ends a line."""
    lines: list[list[int]] = [[]]
    for token in ids:
        if token == EOS:
            lines.append([])
        else:
            lines[-1].append(token)
    return "\n".join(tokenizer.decode(line) for line in lines)
