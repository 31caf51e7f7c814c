"""A mean of the means of micro-batches.

Gradient accumulation divides a batch into micro-batches. The trainer of transformers averaged their
losses, each of which is a mean over the tokens of one micro-batch. A token in a micro-batch with
few targets then has a larger weight than one in a micro-batch with many.

The loss falls in either case, and sequences of equal length give equal results. An issue of July
2023 stated the cause and was closed. Others measured in October 2024 that runs which should have
been equal were not, and the library changed how it divides.
"""

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_blocks.inspection import Report, check_loss
from transformer_blocks.museum.exhibit import Exhibit

Loss = Callable[[Sequence[tuple[Tensor, Tensor]]], Tensor]
TARGETS = torch.tensor([[3, 1, 4, 1, 5], [2, 7, 0, 0, 0], [1, 0, 0, 0, 0], [1, 8, 2, 8, 0]])


def broken_loss(micro_batches: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Compute the loss of a batch that is divided into micro-batches; target 0 is padding."""
    losses = [
        F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=0)
        for logits, targets in micro_batches
    ]
    # the fault: the means are of different numbers of tokens
    return torch.stack(losses).mean()


def mended_loss(micro_batches: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
    """Compute the loss of a batch that is divided into micro-batches; target 0 is padding."""
    losses = [
        F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=0, reduction="sum")
        for logits, targets in micro_batches
    ]
    tokens = sum((targets != 0).sum() for _, targets in micro_batches)
    return torch.stack(losses).sum() / tokens


def examine(loss: Loss) -> Report:
    """Compare the losses and gradients of a batch that is divided in several ways."""
    return check_loss(loss, torch.randn(4, 5, 10), TARGETS, padding_id=0)


EXHIBIT = Exhibit(
    title="A mean of the means of micro-batches",
    theme="loss",
    source="https://github.com/huggingface/transformers/issues/24725",
    found_by="loss",
    broken=lambda: broken_loss,
    mended=lambda: mended_loss,
    examine=examine,
)
