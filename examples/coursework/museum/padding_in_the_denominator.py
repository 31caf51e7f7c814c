"""Padding that counts in the mean of a loss.

The cross-entropy of Burn set the losses at padded targets to zero, and then took the mean over all
positions, padded ones included. The more padding a batch has, the smaller are its loss and its
gradient.

The masking is in the code, and works, but the denominator still counts padded positions. The loss
falls, and a batch without padding is right. The report of September 2026 adds one padded target to
a batch and shows that the loss becomes smaller, contrary to the documentation. Issues of 2018 and
2024 describe the same in other libraries.

:theme: loss
:source: https://github.com/tracel-ai/burn/issues/5568
:found by: loss
"""

import torch
from torch import Tensor

from coursework.museum.losses import TARGETS, Loss, Parts, count_tokens, sum_losses
from transformer_blocks.inspection import Soundness, check_soundness


def broken(parts: Parts) -> Tensor:
    """Compute the loss of a batch that is divided into parts."""
    # the fault: padded targets are counted
    return sum_losses(parts) / sum(targets.numel() for _, targets in parts)


def mended(parts: Parts) -> Tensor:
    """Compute the loss of a batch that is divided into parts."""
    return sum_losses(parts) / count_tokens(parts)


def examine(loss: Loss) -> Soundness:
    """Compare the losses and gradients of a batch that is divided in several ways."""
    return check_soundness(loss, (torch.randn(4, 5, 10), TARGETS), only="loss", padding_id=0)
