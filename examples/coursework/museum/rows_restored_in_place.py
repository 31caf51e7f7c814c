"""Rows that overwrite each other when their order is restored.

To leave out padding, recurrent layers of torch process the sequences of a batch in the order of
their lengths. A project sorted each batch itself, ran the encoder, and restored the order of the
rows by an in-place scatter, whose input and output were one tensor. A row that is written early
overwrites one that has not been read yet, and that sequence receives the output of another one.

All outputs are valid, each of them for some row. It was found in June 2020, when the author
compared decoding in batches with decoding one by one: often, half of the outputs of a batch of ten
differed. A batch that is sorted already shows nothing.

:theme: padding
:source: https://github.com/mead-ml/mead-baseline/pull/677
:found by: batch
"""

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

from transformer_blocks.inspection import Soundness, check_soundness


class Broken(nn.Module):
    """A recurrent encoder that sorts its batch by length."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.encoder = nn.GRU(16, 16, batch_first=True)

    def restore(self, rows: Tensor, order: Tensor) -> Tensor:
        # the fault: rows are overwritten before they are read
        for source, destination in enumerate(order.tolist()):
            rows[destination] = rows[source].clone()
        return rows

    def forward(self, ids: Tensor) -> Tensor:
        lengths, order = (ids != 0).sum(dim=1).sort(descending=True)
        x = pack_padded_sequence(self.embedding(ids[order]), lengths.cpu(), batch_first=True)
        return self.restore(self.encoder(x)[1][0].clone(), order)


class Mended(Broken):
    """The same, with a tensor of its own for the result."""

    def restore(self, rows: Tensor, order: Tensor) -> Tensor:
        return rows[order.argsort()]


def examine(model: nn.Module) -> Soundness:
    """Check the model on a batch of three sequences, the longest of which is not the first."""
    ids = torch.tensor([[6, 9, 1, 0, 0, 0], [5, 3, 8, 2, 7, 4], [7, 2, 4, 9, 0, 0]])
    return check_soundness(model, ids, padding_id=0)
