"""Rotary pairs that differ from those of the weights.

Rotary positional encoding rotates pairs of numbers. Some implementations pair neighbours, others
the first half of a vector with the second. Both work equally well, but the weights of a model fit
only the one they were trained with. The port of the audio codec Mimi to candle paired neighbours,
while its weights had been trained with halves.

The first position is not rotated, and is right; the outputs deviate more with each further one. The
report of September 2026 compares the codes of one recording with those of the original
implementation: 359 of 1008 agree. Yet decoded audio still sounds like speech, and nothing fails.

:theme: positions
:source: https://github.com/huggingface/candle/issues/3948
:found by: equivalence
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from coursework.museum.models import SelfAttention
from transformer_blocks.inspection import Difference, first_difference

ANGLES = torch.arange(6)[:, None] * 10000.0 ** -(torch.arange(8) / 8)  # (L, d_k / 2)


class Broken(SelfAttention):
    """Self-attention of one head of size 16, ported from another library."""

    def pairs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Split the numbers (B, L, 16) into the first and the second ones of each pair."""
        # the fault: the weights were trained with the halves of a vector as pairs
        return x[..., 0::2], x[..., 1::2]

    def join(self, first: Tensor, second: Tensor) -> Tensor:
        """Put the numbers of the pairs back to their places."""
        return torch.stack([first, second], dim=-1).flatten(-2)

    def rotate(self, x: Tensor) -> Tensor:
        """Rotate each pair by the angle of its position."""
        first, second = self.pairs(x)
        cosine, sine = ANGLES.cos(), ANGLES.sin()
        return self.join(first * cosine - second * sine, first * sine + second * cosine)

    def forward(self, x: Tensor) -> Tensor:
        """Attend from each position to all positions."""
        query, key, value = self.project(x)
        return F.scaled_dot_product_attention(self.rotate(query), self.rotate(key), value)


class Mended(Broken):
    """Pairs the halves of a vector."""

    def pairs(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Split the numbers (B, L, 16) into the first and the second ones of each pair."""
        return x[..., :8], x[..., 8:]

    def join(self, first: Tensor, second: Tensor) -> Tensor:
        """Put the numbers of the pairs back to their places."""
        return torch.cat([first, second], dim=-1)


def examine(model: Broken) -> Difference:
    """Compare with the implementation that the weights come from."""

    def original(x: Tensor) -> Tensor:
        def rotate(x: Tensor) -> Tensor:
            half_turned = torch.cat([-x[..., 8:], x[..., :8]], dim=-1)
            return x * ANGLES.cos().repeat(1, 2) + half_turned * ANGLES.sin().repeat(1, 2)

        query, key, value = model.project(x)
        return F.scaled_dot_product_attention(rotate(query), rotate(key), value)

    return first_difference(model, original, torch.randn(2, 6, 16))
