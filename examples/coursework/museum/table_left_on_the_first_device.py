"""A table left on the device of the first call.

A package of positional encodings computes its table at the first call and stores it. A later call
compares the shape of its input with that of the table, and uses the table again if they agree. The
device is not compared.

The shape includes the batch, so that a batch of another size makes a new table, on the right
device. In this thread of October 2023, a model failed with a batch of one and worked with any
larger one, which does not suggest a stored table as the cause. The correction, a year later, moves
the table to the device of the input.

:theme: layout and modes
:source: https://github.com/tatp22/multidim-positional-encoding/issues/33
:found by: device
"""

import torch
from torch import Tensor, nn

from coursework.museum.models import SelfAttention
from transformer_blocks.embedding import sinusoidal_table
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(SelfAttention):
    """An encoder that makes its table of positions when it is first called."""

    table: Tensor | None = None

    def fits(self, table: Tensor, x: Tensor) -> bool:
        # the fault: a table of the right shape may be on another device
        return table.shape == x.shape

    def forward(self, x: Tensor) -> Tensor:
        if self.table is None or not self.fits(self.table, x):
            self.table = sinusoidal_table(*x.shape[1:]).to(x).repeat(len(x), 1, 1)
        return self.attend(x + self.table)


class Mended(Broken):
    """The same, with a table that fits in each respect."""

    def fits(self, table: Tensor, x: Tensor) -> bool:
        return (table.shape, table.device, table.dtype) == (x.shape, x.device, x.dtype)


def examine(model: nn.Module) -> Soundness:
    """Check the model on a batch of two sequences, after a first call."""
    x = torch.randn(2, 6, 16)
    model(x)
    return check_soundness(model, x)
