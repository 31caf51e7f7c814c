"""Batches: token ids, checked against the rows of an embedding, and padded to equal length.

Next: ``loading.py``, the files of a published model.
"""

from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from common.batching import group_by_length
from common.errors import UserError


def check_ids(folder: Path, ids: Collection[int], embedding: Tensor) -> None:
    """Check that the embedding of a model has a row for each id of a tokenizer.

    Raises:
        UserError: If an id has no row; it names the folder.
    """
    if max(ids) >= len(embedding):
        raise UserError(
            f"{folder}: the ids of the vocabulary must be below the vocab_size of config.json, "
            f"got {max(ids)} and {len(embedding)}"
        )


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
