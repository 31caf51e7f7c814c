"""Batching: sequences of similar length together, padded to one length."""

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor


def pad(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Pad sequences of token ids with 0 to the longest length, of shape (B, L)."""
    longest = max(map(len, sequences))
    padded = [[*ids, *[0] * (longest - len(ids))] for ids in sequences]
    return torch.tensor(padded, dtype=torch.int64)


def group_by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Group sequences of similar length into batches, without those of length 0.

    Args:
        lengths: The length of each sequence.
        batch_tokens: Maximum number of tokens of a batch, padding included; a longer sequence is a
            batch of its own.

    Yields:
        The indices of the sequences of a batch.

    Example:
        >>> list(group_by_length([3, 0, 9, 4, 3], batch_tokens=8))
        [[0, 4], [3], [2]]
    """
    chosen: list[int] = []
    indices = [index for index, length in enumerate(lengths) if length]
    for index in sorted(indices, key=lengths.__getitem__):
        if chosen and lengths[index] * (len(chosen) + 1) > batch_tokens:
            yield chosen
            chosen = []
        chosen.append(index)
    if chosen:
        yield chosen
