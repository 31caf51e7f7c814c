"""Batching: sequences of similar length together, padded to one length."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor


def pad(rows: Sequence[Sequence[int]]) -> Tensor:
    """Fill rows of ids up to the longest. Shape (B, L)."""
    longest = max(map(len, rows))
    return torch.tensor([[*row, *[0] * (longest - len(row))] for row in rows], dtype=torch.int64)


def group_by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Put sentences of like length together; those of length 0 are left out.

    Yields:
        The places of a batch's sentences: at most ``batch_tokens`` tokens with padding, or one
        sentence that is longer.

    Example:
        >>> list(group_by_length([3, 0, 9, 4, 3], batch_tokens=8))
        [[0, 4], [3], [2]]
    """
    chosen: list[int] = []
    places = [place for place, length in enumerate(lengths) if length]
    for place in sorted(places, key=lengths.__getitem__):
        if chosen and lengths[place] * (len(chosen) + 1) > batch_tokens:
            yield chosen
            chosen = []
        chosen.append(place)
    if chosen:
        yield chosen
