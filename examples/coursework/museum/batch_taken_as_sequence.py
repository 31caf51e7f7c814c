"""A batch that is taken as the sequence.

The Transformer modules of torch expect the sequence on the first axis and the batch on the second,
unless they are made with batch_first=True. TabFormer, a model of bank transactions, passed tensors
with the batch first. The fields of one transaction should attend to each other; instead, each field
attended to the field at the same place in the other entries of the batch.

No shape is wrong, and the model trains. A reader corrected it in June 2021. Many other projects
made the same mistake. Its symptom is that the rows of a batch influence each other; a test with a
batch of one does not find it.

:theme: layout and modes
:source: https://github.com/IBM/TabFormer/pull/14
:found by: batch
"""

import torch
from torch import Tensor, nn

from transformer_blocks.inspection import Soundness, check_soundness


class Broken(nn.Module):
    """An encoder of sequences of transactions."""

    def __init__(self) -> None:
        super().__init__()
        # the fault: without batch_first the first axis is the sequence
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.encoder(x)


class Mended(Broken):
    """The same, with the batch first."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 1, enable_nested_tensor=False)


def examine(model: nn.Module) -> Soundness:
    """Check the model on a batch of three sequences."""
    return check_soundness(model, torch.randn(3, 6, 16))
