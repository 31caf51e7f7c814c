"""Batching: sequences of similar length together, padded to one length."""

from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor


def pad(sequences: Sequence[Sequence[int]]) -> Tensor:
    """Pad sequences of token ids with 0 to the longest length, of shape (B, L)."""
    longest = max(map(len, sequences))
    padded = [[*ids, *[0] * (longest - len(ids))] for ids in sequences]
    return torch.tensor(padded, dtype=torch.int64)


def group_by_length(
    lengths: Sequence[int], batch_tokens: int, order: Iterable[int] | None = None
) -> Iterator[list[int]]:
    """Group sequences of similar length into batches, without those of length 0.

    Args:
        lengths: The length of each sequence.
        batch_tokens: Maximum number of tokens of a batch, padding included; a longer sequence is a
            batch of its own.
        order: The indices of the sequences in the order in which they are grouped; by their length
            by default.

    Yields:
        The indices of the sequences of a batch.

    Example:
        >>> list(group_by_length([3, 0, 9, 4, 3], batch_tokens=8))
        [[0, 4], [3], [2]]
    """
    chosen: list[int] = []
    longest = 0
    order = sorted(range(len(lengths)), key=lengths.__getitem__) if order is None else order
    for index in order:
        if not lengths[index]:
            continue
        longest = max(longest, lengths[index])
        if chosen and longest * (len(chosen) + 1) > batch_tokens:
            yield chosen
            chosen, longest = [], lengths[index]
        chosen.append(index)
    if chosen:
        yield chosen
