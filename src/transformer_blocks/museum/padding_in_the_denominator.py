"""Padding counted in the mean.

Burn, issue 5568 (September 2026); segmentation_models.pytorch, issue 852 (February 2024), and
pytorch-seq2seq, issue 125 (February 2018), describe the same. The losses of padded targets were set
to zero, and then the mean was taken over all positions, padded ones included. The more padding a
batch has, the smaller its loss and its gradient, so that the learning rate depends on how the
sequences were sorted into batches. The masking itself is visible in the code and correct; the
documentation promised that padding has no influence.
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
    title="Padding counted in the mean",
    theme="loss",
    source="https://github.com/tracel-ai/burn/issues/5568",
    found_by="loss",
    broken=lambda: broken_loss,
    mended=lambda: mended_loss,
    examine=examine,
)
