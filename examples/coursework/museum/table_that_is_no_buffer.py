"""A table of positions that is no buffer.

RT-DETR computes its positional encodings once and stores them as a plain attribute of the module. A
module moves and converts its parameters and buffers only. The line that uses the table copies it to
the device of the input in each forward pass, so that moving the model raises no error.

Converted to float16, the model stops with an error: the table is still float32, its sum with the
input is float32 too, and the next layer has weights of float16. The report of August 2026 came from
an export in half precision. The line that registers a buffer stood beside the fault, as a comment.

:theme: layout and modes
:source: https://github.com/lyuwenyu/RT-DETR/issues/677
:found by: dtype
"""

import torch
from torch import Tensor, nn

from coursework.museum.models import SelfAttention
from transformer_blocks.embedding import sinusoidal_table
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(SelfAttention):
    """An encoder with a table of positional encodings."""

    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.keep(sinusoidal_table(32, 16).float())

    def keep(self, table: Tensor) -> None:
        # the fault: model.half() does not convert an attribute
        self.table = table

    def forward(self, x: Tensor) -> Tensor:
        return self.attend(x + self.table[: x.shape[1]].to(x.device))


class Mended(Broken):
    """The same, with a buffer."""

    def keep(self, table: Tensor) -> None:
        self.register_buffer("table", table, persistent=False)


def examine(model: nn.Module) -> Soundness:
    """Check the model on a batch of two sequences."""
    return check_soundness(model, torch.randn(2, 6, 16))
