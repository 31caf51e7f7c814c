"""Masked scores of 1e-9 instead of -1e9.

The Temporal Fusion Transformer in GluonTS filled masked scores with 1e-9. The minus sign is in the
exponent: -1e9 was meant. A score of almost zero is a score like any other, and the softmax gives it
about the weight of an average key.

The line looks right at a glance, the numbers are finite, and a forecaster that attends to the
future has a low error in training. The correction of April 2021 moves the sign. Its reviewer
remarked that 1e-9 was probably fine most of the time too.

:theme: masks
:source: https://github.com/awslabs/gluonts/pull/1401
:found by: causality
"""

import torch
from torch import Tensor, nn

from coursework.museum.models import SelfAttention
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(SelfAttention):
    """A causal self-attention layer for time series."""

    def mask(self, scores: Tensor) -> Tensor:
        future = torch.ones_like(scores, dtype=torch.bool).triu(diagonal=1)
        # the fault: the softmax of a score near zero is not zero
        return scores.masked_fill(future, 1e-9)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.project(x)
        scores = self.mask(query @ key.mT / query.shape[-1] ** 0.5)  # (B, L, L)
        return x + scores.softmax(dim=-1) @ value


class Mended(Broken):
    """The same, with masked scores of minus infinity."""

    def mask(self, scores: Tensor) -> Tensor:
        future = torch.ones_like(scores, dtype=torch.bool).triu(diagonal=1)
        return scores.masked_fill(future, float("-inf"))


def examine(model: nn.Module) -> Soundness:
    """Check the layer on a batch of two series."""
    return check_soundness(model, torch.randn(2, 6, 16), causal=True)
