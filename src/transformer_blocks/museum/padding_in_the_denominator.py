"""Padding that counts in the mean of a loss.

The cross-entropy of Burn set the losses at padded targets to zero, and then took the mean over all
positions, padded ones included. The more padding a batch has, the smaller are its loss and its
gradient.

The masking is in the code, and works, but the denominator still counts padded positions. The loss
falls, and a batch without padding is right. The report of September 2026 adds one padded target to
a batch and shows that the loss becomes smaller, contrary to the documentation. Issues of 2018 and
2024 describe the same in other libraries.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_blocks.inspection import Report, check_loss
from transformer_blocks.museum.exhibit import Exhibit

Loss = Callable[[Sequence[tuple[Tensor, Tensor]]], Tensor]
TARGETS = torch.tensor([[3, 1, 4, 1, 5], [2, 7, 0, 0, 0], [1, 0, 0, 0, 0], [1, 8, 2, 8, 0]])


def token_losses(logits: Tensor, targets: Tensor) -> Tensor:
    """Compute the loss of each target; 0 for padding, which is target 0."""
    return F.cross_entropy(logits.mT, targets, reduction="none").masked_fill(targets == 0, 0.0)


def broken_loss(parts: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Compute the loss of a batch that is divided into parts."""
    total = torch.stack([token_losses(logits, targets).sum() for logits, targets in parts]).sum()
    # the fault: padded targets are counted
    return total / sum(targets.numel() for _, targets in parts)


def mended_loss(parts: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Compute the loss of a batch that is divided into parts."""
    total = torch.stack([token_losses(logits, targets).sum() for logits, targets in parts]).sum()
    return total / sum(int((targets != 0).sum()) for _, targets in parts)


def examine(loss: Loss) -> Report:
    """Compare the losses and gradients of a batch that is divided in several ways."""
    return check_loss(loss, torch.randn(4, 5, 10), TARGETS, padding_id=0)


EXHIBIT = Exhibit(
    title="Padding that counts in the mean of a loss",
    theme="loss",
    source="https://github.com/tracel-ai/burn/issues/5568",
    found_by="loss",
    broken=lambda: broken_loss,
    mended=lambda: mended_loss,
    examine=examine,
)
