"""Sine and cosine of different frequencies.

attention-is-all-you-need-pytorch, issue 32 (November 2017); Kyubyong/transformer, issue 38 (June
2018), and DeepCTR, issue 379 (June 2021), have the same line. In the paper, column 2i is the sine
and column 2i + 1 the cosine of one angle, which is what makes a shift by some positions a rotation
of each pair. The code counted the columns instead of the pairs: each column had a frequency of its
own, and the frequencies fell twice as fast. Every position still has a different encoding, and
models train with it. The fault survived for years in code that many copied, since no output can be
called wrong without the formula beside it.
"""

import torch
from torch import Tensor, nn

from transformer_blocks import SinusoidalPositionalEncoding
from transformer_blocks.inspection import Report, check_equivalence
from transformer_blocks.museum.exhibit import Exhibit

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


def examine(model: Broken) -> Report:
    """Compare with this library's encoding."""
    return check_equivalence(model, SinusoidalPositionalEncoding(D_MODEL), [torch.randn(2, 9, 16)])


EXHIBIT = Exhibit(
    title="Sine and cosine of different frequencies",
    theme="positions",
    source="https://github.com/jadore801120/attention-is-all-you-need-pytorch/issues/32",
    found_by="equivalence",
    broken=Broken,
    mended=Mended,
    examine=examine,
)
