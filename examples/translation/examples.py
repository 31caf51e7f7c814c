"""Examples: sentence pairs as token ids, in memory or memory-mapped.

This file does not import torch, so that the processes that encode a corpus start quickly.

Next: ``batches.py`` groups examples of similar length.
"""

import logging
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple, overload

import numpy as np

from common.errors import UserError
from common.token_files import Offsets, TokenFiles, Tokens
from common.tokenizer import Tokenizer
from translation.corpus import hashed_text
from translation.pairs import Pair

log = logging.getLogger(__name__)


class Example(NamedTuple):
    """One pair of sentences as token ids, without begin and end tokens."""

    source: list[int]
    target: list[int]


class Examples(Sequence[Example]):
    """Sentence pairs as token ids, one after another in one array.

    Args:
        tokens: The token ids, in memory or memory-mapped.
        bounds: For each pair, the index of its first source token, of its first target token, and
            of the end of its target, of shape (N, 3).
        verify: Function that verifies the content of some chunks, before it is used.

    Example:
        >>> examples = Examples.of([Example([7, 8], [9]), Example([4], [5, 6])])
        >>> examples[1], examples.lengths.tolist()
        (Example(source=[4], target=[5, 6]), [[2, 1], [1, 2]])
        >>> examples.select([1, 0]) == [examples[1], examples[0]]
        True
    """

    def __init__(
        self,
        tokens: Tokens,
        bounds: Offsets,
        verify: Callable[..., object] = lambda *_, **__: None,
    ) -> None:
        self.tokens, self.bounds, self.verify = tokens, bounds, verify

    @classmethod
    def of(cls, examples: Iterable[Example]) -> "Examples":
        """Return examples as one array."""
        if isinstance(examples, Examples):
            return examples
        sides = [*chain.from_iterable(examples)]
        tokens = np.fromiter(chain.from_iterable(sides), np.uint32)
        return cls(tokens, _bounds(np.cumsum([0, *map(len, sides)], dtype=np.int64)))

    @classmethod
    def from_files(cls, files: TokenFiles) -> "Examples":
        """Return memory-mapped examples: source and target in turn are the sequences of files."""
        return cls(files.tokens, _bounds(files.offsets), files.verify)

    @property
    def lengths(self) -> Offsets:
        """The numbers of source and target tokens of each pair, without ends, of shape (N, 2)."""
        return np.diff(self.bounds)

    def select(self, indices: Sequence[int] | Offsets) -> "Examples":
        """Return the examples at some indices."""
        return Examples(self.tokens, self.bounds[indices])

    def __len__(self) -> int:
        """Return the number of pairs."""
        return len(self.bounds)

    @overload
    def __getitem__(self, index: int) -> Example: ...
    @overload
    def __getitem__(self, index: slice) -> "Examples": ...
    def __getitem__(self, index: int | slice) -> "Example | Examples":
        """Return an example, or several."""
        if isinstance(index, slice):
            return Examples(self.tokens, self.bounds[index])
        first, middle, end = self.bounds[index]
        return Example(self.tokens[first:middle].tolist(), self.tokens[middle:end].tolist())

    def __eq__(self, other: object) -> bool:
        """Return whether another sequence holds the same examples."""
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]


def _bounds(offsets: Offsets) -> Offsets:
    """View the offsets of source, target, source, target ... as the three bounds of each pair."""
    if len(offsets) == 1:  # no pair
        return np.zeros((0, 3), np.int64)
    return np.lib.stride_tricks.sliding_window_view(offsets, 3)[::2]


def encode_pairs(pairs: Collection[Pair], *tokenizers: Tokenizer, max_length: int) -> Examples:
    """Encode sentence pairs, leaving out those that are too long for the model.

    Args:
        pairs: The sentence pairs.
        tokenizers: The tokenizers of the source and of the target.
        max_length: Maximum number of tokens of either side, the end token included.

    Raises:
        UserError: If nothing is left.
    """
    examples = encode_part(pairs, *tokenizers, max_length=max_length)
    check_lengths(len(examples), len(pairs), max_length)
    return Examples.of(examples)


def encode_part(pairs: Collection[Pair], *tokenizers: Tokenizer, max_length: int) -> list[Example]:
    """Encode some of the sentence pairs, leaving out those that are too long for the model."""
    sides = [each.encode_many([pair[i] for pair in pairs]) for i, each in enumerate(tokenizers)]
    examples = (Example(*sentences) for sentences in zip(*sides, strict=True))
    return [example for example in examples if max(map(len, example)) < max_length]


def check_lengths(count: int, pairs: int, max_length: int) -> None:
    """Log how many pairs were left out because they are too long.

    Raises:
        UserError: If nothing is left.
    """
    if not count:
        raise UserError(f"no sentence pair is shorter than {max_length} tokens")
    if count < pairs:
        log.warning(f"left out {pairs - count:,} of {pairs:,} pairs: {max_length} tokens or longer")


def encode_for_files(
    source: Tokenizer, target: Tokenizer, max_length: int, dtype: np.dtype[Any], pairs: list[Pair]
) -> tuple[Tokens, Offsets, bytes]:
    """Encode the pairs of some lines, in a process of its own.

    Returns:
        The token ids of source, target, source, target ..., the length of each, and the text of
        which the fingerprint is computed, also of pairs that are too long.
    """
    examples = Examples.of(encode_part(pairs, source, target, max_length=max_length))
    return examples.tokens.astype(dtype), examples.lengths.ravel(), hashed_text(pairs)
