"""Examples: sentence pairs as token ids, one after another in one array.

Next: ``batches.py`` groups examples of similar length.
"""

import logging
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from common.errors import UserError
from common.tokenizer import Tokenizer
from translation.pairs import Pair

TokenArray = npt.NDArray[np.unsignedinteger[Any]]
Indices = npt.NDArray[np.int64]

log = logging.getLogger(__name__)


class Example(NamedTuple):
    """One pair of sentences as token ids, without begin and end tokens."""

    source: list[int]
    target: list[int]


class Examples(Sequence[Example]):
    """Sentence pairs as token ids, one after another in one array.

    Args:
        tokens: The token ids.
        bounds: For each pair, the index of its first source token, of its first target token, and
            of the end of its target, of shape (N, 3).

    Example:
        >>> examples = Examples.of([Example([7, 8], [9]), Example([4], [5, 6])])
        >>> examples[1], examples.lengths.tolist()
        (Example(source=[4], target=[5, 6]), [[2, 1], [1, 2]])
        >>> examples.select([1, 0]) == [examples[1], examples[0]]
        True
    """

    def __init__(self, tokens: TokenArray, bounds: Indices) -> None:
        self.tokens, self.bounds = tokens, bounds

    @classmethod
    def of(cls, examples: Iterable[Example]) -> "Examples":
        """Return examples as one array."""
        if isinstance(examples, Examples):
            return examples
        sides = [*chain.from_iterable(examples)]
        tokens = np.fromiter(chain.from_iterable(sides), np.uint32)
        offsets = np.cumsum([0, *map(len, sides)], dtype=np.int64)
        ends = offsets[1:].reshape(-1, 2)  # of source and target
        return cls(tokens, np.column_stack((offsets[:-1:2], ends)))

    @property
    def lengths(self) -> Indices:
        """The numbers of source and target tokens of each pair, without ends, of shape (N, 2)."""
        return np.diff(self.bounds)

    def select(self, indices: Sequence[int] | Indices) -> "Examples":
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


def encode_pairs(pairs: Sequence[Pair], *tokenizers: Tokenizer, max_length: int) -> Examples:
    """Encode sentence pairs, leaving out those that are too long for the model.

    Args:
        pairs: The sentence pairs.
        tokenizers: The tokenizers of the source and of the target.
        max_length: Maximum number of tokens of either side, the end token included.

    Raises:
        UserError: If nothing is left.
    """
    sides = [each.encode_many([pair[i] for pair in pairs]) for i, each in enumerate(tokenizers)]
    every = (Example(*sentences) for sentences in zip(*sides, strict=True))
    examples = [example for example in every if max(map(len, example)) < max_length]
    if not examples:
        raise UserError(f"no sentence pair is shorter than {max_length} tokens")
    if dropped := len(pairs) - len(examples):
        log.warning(f"left out {dropped:,} of {len(pairs):,} pairs: {max_length} tokens or longer")
    return Examples.of(examples)
