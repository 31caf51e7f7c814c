"""A padding mask with the opposite meaning.

In some libraries, true marks a real token; in others, it marks padding. A collection of encoders
for animal sounds passed one mask to models of both kinds. Two of them expect the opposite: they
attended to the padding of a recording and to nothing else.

A boolean tensor of shape (B, L) fits both meanings, so nothing fails. The correction of May 2025
adds an argument that states which meaning a model expects, and tests.

:theme: masks
:source: https://github.com/earthspecies/avex/pull/26
:found by: mask polarity
"""

import torch
from torch import Tensor, nn

from coursework.museum.models import SelfAttention
from transformer_blocks.inspection import Soundness, check_soundness


class Encoder(SelfAttention):
    """An encoder whose mask is true at padded positions."""

    def forward(self, x: Tensor, padding_mask: Tensor) -> Tensor:
        return self.attend(x, padding_mask.logical_not()[:, None, :])


class Broken(nn.Module):
    """The common interface of the collection, whose mask is true at real positions."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()

    def forward(self, x: Tensor, is_real: Tensor) -> Tensor:
        # the fault: the encoder expects the opposite
        return self.encoder(x, padding_mask=is_real)


class Mended(Broken):
    """The same, with the mask inverted for this encoder."""

    def forward(self, x: Tensor, is_real: Tensor) -> Tensor:
        return self.encoder(x, padding_mask=is_real.logical_not())


def examine(model: nn.Module) -> Soundness:
    """Check the model on sequences of six and of four vectors."""
    is_real = torch.arange(6) < torch.tensor([[6], [4]])
    return check_soundness(model, (torch.randn(2, 6, 16), is_real))
