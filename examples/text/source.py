"""Source: a text in three parts, as one stream of tokens each.

The lines of a text stand in the order of their reading, so its parts are cut, not shuffled: the
first nine tenths are learnt from, then comes a part that tells which weights are best, and the end
is kept for the test.

A letter that the first part lacks is read as the one unknown token, whichever it is. Where the end
of a text has many of them, figures of it look better than they are.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from common.errors import UserError
from common.text_files import clean_text, read_lines
from common.tokenizer import EOS, Tokenizer
from text.stories import toy_text

FEWEST = 20
"""Lines that a text must have at least."""


@dataclass(frozen=True)
class Text:
    """The lines of a text, in three parts."""

    train: list[str]
    validation: list[str]
    test: list[str]

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of all lines."""
        lines = "\n".join((*self.train, "", *self.validation, "", *self.test))
        return hashlib.sha256(lines.encode()).hexdigest()


def load_text(path: Path | None) -> Text:
    """Read a file, or tell the toy stories, and cut it in three.

    Raises:
        UserError: If the file cannot be read, or has too few lines.
    """
    lines = toy_text() if path is None else [cleaned(line) for line in read_lines(path)]
    lines = [line for line in lines if line]
    if len(lines) < FEWEST:
        raise UserError(
            f"a text must have at least {FEWEST} lines that are not blank, got {len(lines)} in "
            f"{path}; put sentences or paragraphs on lines of their own"
        )
    size = len(lines) // 20
    return Text(lines[: -2 * size], lines[-2 * size : -size], lines[-size:])


def cleaned(line: str) -> str:
    """Bring a line into the spelling that models are trained on."""
    return clean_text(line, "en")


def encode_lines(lines: Sequence[str], tokenizer: Tokenizer) -> Tensor:
    """Turn lines into one row of ids, with the end mark before the first line and after each.

    Returns:
        Shape (T,).
    """
    ids = [EOS]
    for line in tokenizer.encode_many(lines):
        ids += [*line, EOS]
    return torch.tensor(ids)


def characters(lines: Sequence[str]) -> int:
    """Count the characters of lines, their ends included.

    Example:
        >>> characters(["one", "two"])
        8
    """
    return sum(len(line) + 1 for line in lines)


def decode_lines(ids: Sequence[int], tokenizer: Tokenizer) -> str:
    """Turn a row of ids into text; an end mark ends a line."""
    lines: list[list[int]] = [[]]
    for token in ids:
        if token == EOS:
            lines.append([])
        else:
            lines[-1].append(token)
    return "\n".join(tokenizer.decode(line) for line in lines)
