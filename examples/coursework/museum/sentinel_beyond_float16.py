"""A masked score that float16 cannot represent.

The tutorial pytorch-seq2seq fills masked scores with -1e10. In float32 its exponential is zero, as
it should be. But the largest number of float16 is 65504: with 16-bit precision, the same line stops
with the error that the value cannot be converted without overflow.

The error is raised only in half precision, and the line had worked in float32 for years. In this
thread of September 2022, the reporter first proposed minus infinity, met NaN, and settled on -1e4.
Other libraries had the same error with other constants, such as -1e8 in fairseq.

:theme: masks
:source: https://github.com/bentrevett/pytorch-seq2seq/issues/191
:found by: dtype
"""

import torch
from torch import Tensor, nn

from coursework.museum.models import PADDED, Encoder
from transformer_blocks.inspection import Soundness, check_soundness

SENTINEL = -(10.0**10)


class Broken(Encoder):
    """An encoder layer with a padding mask."""

    def mask(self, scores: Tensor, is_padding: Tensor) -> Tensor:
        # the fault: float16 ends at 65504
        return scores.masked_fill(is_padding, SENTINEL)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        query, key, value = self.project(x)
        scores = query @ key.mT / query.shape[-1] ** 0.5  # (B, L, L)
        weights = self.mask(scores, (ids == 0)[:, None, :]).softmax(dim=-1)
        return x + weights @ value


class Mended(Broken):
    """The same, with the smallest number of whatever precision is used."""

    def mask(self, scores: Tensor, is_padding: Tensor) -> Tensor:
        return scores.masked_fill(is_padding, torch.finfo(scores.dtype).min)


def examine(model: nn.Module) -> Soundness:
    """Check the model on a batch of two sequences, the second with padding."""
    return check_soundness(model, PADDED, padding_id=0)
