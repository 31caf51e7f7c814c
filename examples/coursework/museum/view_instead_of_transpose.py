"""A view where the axes should be exchanged.

An implementation of TokenLearner needed the sequence on the first axis for the attention of torch,
and wrote ``y.view(8, 512, 3)`` for a tensor of shape (512, 8, 3). The shape is right. But a view
leaves the order of the numbers in memory as it is: the new rows hold vectors of several examples.

After the attention, a second view restores the first shape, and each number returns to its place.
Nothing fails, but the attention was computed among vectors that belong to different examples. It
was reported in December 2021.

:theme: layout and modes
:source: https://github.com/rish-16/tokenlearner-pytorch/issues/1
:found by: batch
"""

import torch
from torch import Tensor, nn

from coursework.museum.models import SelfAttention
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(SelfAttention):
    """An encoder whose attention takes the sequence first."""

    def exchange(self, x: Tensor) -> Tensor:
        # the fault: a view changes the shape, but not the order of the numbers
        return x.contiguous().view(x.shape[1], x.shape[0], -1)

    def forward(self, x: Tensor) -> Tensor:
        sequence_first = self.exchange(x)  # (L, B, 16)
        attended = self.attend(sequence_first.transpose(0, 1)).transpose(0, 1)
        return self.exchange(attended)


class Mended(Broken):
    """The same, with a transpose."""

    def exchange(self, x: Tensor) -> Tensor:
        return x.transpose(0, 1)


def examine(model: nn.Module) -> Soundness:
    """Check the model on a batch of three sequences."""
    return check_soundness(model, torch.randn(3, 6, 16))
