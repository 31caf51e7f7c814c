"""Scores that are scaled by the size of the model.

Attention scores are divided by the square root of d_k, the size of one head. vit-pytorch divided by
that of d_model, the size of all heads together. With eight heads, the scores were 2.8 times too
small, and the attention weights too even.

The weights of a model can grow to compensate for it, so that training shows little. Weights that
were trained with the right scale give wrong outputs at once. A reader saw it in January 2021; the
author answered that he had written attention for nearly a year, and still made such mistakes. A
well-known lecture on GPT had the same line until 2023.

:theme: heads
:source: https://github.com/lucidrains/vit-pytorch/issues/65
:found by: equivalence
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from coursework.museum.models import SelfAttention
from transformer_blocks.inspection import Difference, first_difference

D_MODEL, HEADS = 16, 4


class Broken(SelfAttention):
    """Multi-head self-attention, whose heads are not joined."""

    def scale(self) -> float:
        """Compute the factor of the scores."""
        # the fault: the vectors of a head have D_MODEL / HEADS numbers
        return 1 / math.sqrt(D_MODEL)

    def heads(self, x: Tensor) -> list[Tensor]:
        """Compute queries, keys and values, each of shape (B, H, L, d_k)."""
        return [each.unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in self.project(x)]

    def forward(self, x: Tensor) -> Tensor:
        """Attend from each position to all positions."""
        query, key, value = self.heads(x)
        return (query @ key.mT * self.scale()).softmax(-1) @ value


class Mended(Broken):
    """Scales by the size of a head."""

    def scale(self) -> float:
        """Compute the factor of the scores."""
        return 1 / math.sqrt(D_MODEL / HEADS)


def examine(model: Broken) -> Difference:
    """Compare with torch's scaled dot-product attention."""

    def theirs(x: Tensor) -> Tensor:
        query, key, value = model.heads(x)
        return F.scaled_dot_product_attention(query, key, value)

    return first_difference(model, theirs, torch.randn(2, 5, D_MODEL))
