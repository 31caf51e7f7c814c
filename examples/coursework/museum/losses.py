"""Losses: of a batch that is divided into parts, each with its logits and targets; 0 is padding."""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

Parts = Sequence[tuple[Tensor, Tensor]]
Loss = Callable[[Parts], Tensor]
TARGETS = torch.tensor([[3, 1, 4, 1, 5], [2, 7, 0, 0, 0], [1, 0, 0, 0, 0], [1, 8, 2, 8, 0]])
"""Target tokens, with different numbers of padded positions."""


def sum_losses(parts: Parts) -> Tensor:
    """Sum the losses of all target tokens."""
    losses = [
        F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=0, reduction="sum")
        for logits, targets in parts
    ]
    return torch.stack(losses).sum()


def count_tokens(parts: Parts) -> Tensor:
    """Count the target tokens."""
    return torch.stack([(targets != 0).sum() for _, targets in parts]).sum()
