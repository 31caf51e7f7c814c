"""A normalisation whose statistics include the padding.

Models of speech often normalise each channel over time. The modules of torch for this, instance and
group normalisation, take a tensor and no lengths: the mean and the variance of a short recording
include its padding, and all its real frames are scaled by them.

The report of July 2022 (torch 1.12) asks for a mask in these modules and is still open; a thread on
batch normalisation asks for the same, and remarks that the documentation does not mention it. No
error is raised, and the output of a recording depends on the longest one in its batch.

:theme: padding
:source: https://github.com/pytorch/pytorch/issues/81985
:found by: padding
"""

import torch
from torch import Tensor, nn

from transformer_blocks.inspection import Soundness, check_soundness


class Broken(nn.Module):
    """A layer for frames of speech: normalisation over time, then a projection."""

    def __init__(self) -> None:
        super().__init__()
        self.input = nn.Linear(16, 16)
        self.output = nn.Linear(16, 16)

    def normalise(self, x: Tensor, is_real: Tensor) -> Tensor:
        # the fault: the mean and the variance are taken over padded frames too
        return nn.functional.instance_norm(x.mT).mT

    def forward(self, x: Tensor, is_real: Tensor) -> Tensor:
        return x + self.output(self.normalise(self.input(x), is_real).relu())


class Mended(Broken):
    """The same, with the statistics of the real frames."""

    def normalise(self, x: Tensor, is_real: Tensor) -> Tensor:
        weights = is_real[:, :, None] / is_real.sum(dim=1)[:, None, None]
        weights = weights.to(x.dtype)
        centred = x - (x * weights).sum(dim=1, keepdim=True)
        variance = (centred.square() * weights).sum(dim=1, keepdim=True)
        return centred / (variance + 1e-5).sqrt()


def examine(model: nn.Module) -> Soundness:
    """Check the layer on recordings of eight and of five frames."""
    is_real = torch.arange(8) < torch.tensor([[8], [5]])
    return check_soundness(model, (torch.randn(2, 8, 16), is_real))
