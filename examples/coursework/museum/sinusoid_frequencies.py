"""A sine and a cosine of different frequencies.

In the paper, columns 2i and 2i + 1 of the positional encoding are the sine and the cosine of one
angle. An early Transformer in PyTorch counted columns instead of pairs: each column had a frequency
of its own, and the frequencies fell twice as fast as they should.

The encodings of all positions still differ, and models train with them; no output can be called
wrong unless it is compared with the formula. A reader did so in November 2017. The same line was
reported in a second implementation in 2018, and in a third in 2021.

:theme: positions
:source: https://github.com/jadore801120/attention-is-all-you-need-pytorch/issues/32
:found by: equivalence
"""

import torch
from torch import Tensor, nn

from transformer_blocks.embedding import SinusoidalPositionalEncoding
from transformer_blocks.inspection import Difference, first_difference

D_MODEL = 16


class Broken(nn.Module):
    """Adds sinusoidal positional encodings."""

    def exponents(self) -> Tensor:
        """Compute the exponent of each column, of shape (16,)."""
        # the fault: columns 2i and 2i + 1 have one angle, whose exponent is 2i / d_model
        return 2 * torch.arange(D_MODEL) / D_MODEL

    def forward(self, x: Tensor) -> Tensor:
        """Add its encoding to each vector of (B, L, 16)."""
        angles = torch.arange(x.shape[1])[:, None] / 10000.0 ** self.exponents()
        table = torch.empty(x.shape[1], D_MODEL)
        table[:, 0::2] = angles[:, 0::2].sin()
        table[:, 1::2] = angles[:, 1::2].cos()
        return x + table


class Mended(Broken):
    """Gives the two columns of a pair the same exponent."""

    def exponents(self) -> Tensor:
        """Compute the exponent of each column, of shape (16,)."""
        return torch.arange(D_MODEL) // 2 * 2 / D_MODEL


def examine(model: Broken) -> Difference:
    """Compare with this library's encoding."""
    return first_difference(model, SinusoidalPositionalEncoding(D_MODEL), torch.randn(2, 9, 16))
