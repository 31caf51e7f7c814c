"""Batches: token ids, checked against the rows of an embedding, and padded to equal length.

Next: ``loading.py``, the files of a published model.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from common.batching import group_by_length
from common.errors import UserError


def check_ids(
    folder: Path,
    ids: Collection[int],
    embedding: Tensor,
    special: Mapping[str, tuple[int, int]] | None = None,
) -> None:
    """Check that the ids of a tokenizer fit a model.

    Args:
        folder: Folder of both, which errors name.
        ids: All ids of the tokenizer.
        embedding: The embedding, which has a row for each id.
        special: Ids of special tokens in the vocabulary and in ``config.json``, by their names.

    Raises:
        UserError: If two ids of a special token differ, or an id has no row.
    """
    for token, (found, wanted) in (special or {}).items():
        if found != wanted:
            raise UserError(
                f"{folder}: {token} is {found} in the vocabulary but {wanted} in config.json"
            )
    if max(ids) >= len(embedding):
        raise UserError(
            f"{folder}: the ids of the vocabulary must be below the vocab_size of config.json, "
            f"got {max(ids)} and {len(embedding)}"
        )


def unused_ids(ids: Collection[int], embedding: Tensor) -> list[int]:
    """Return the rows of an embedding that are beyond the vocabulary, and are never generated."""
    return [number for number in range(len(embedding)) if number not in ids]


def make_batches(
    sequences: Sequence[Sequence[int]], batch_tokens: int, *, padding_id: int, device: torch.device
) -> Iterator[tuple[list[int], Tensor]]:
    """Group sequences of similar length into padded batches, without those of length 0.

    Args:
        sequences: Token ids.
        batch_tokens: Maximum number of tokens of a batch, padding included.
        padding_id: Id of the padding token.
        device: Device of the batches.

    Yields:
        The indices of the sequences of a batch, and their ids, of shape (N, L).
    """
    for chosen in group_by_length([len(ids) for ids in sequences], batch_tokens):
        rows = [torch.tensor(sequences[index]) for index in chosen]
        padded = pad_sequence(rows, batch_first=True, padding_value=padding_id)
        yield chosen, padded.to(device)
