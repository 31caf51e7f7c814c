"""Padded targets that are smoothed.

The cross-entropy with label smoothing has two parts, one for the target token and one for the
uniform distribution over all tokens. In torch, the first part left out ignored targets, and the
second did not: a model was also trained to be uncertain at padded positions.

Ignored targets alone were right, and so was label smoothing alone. In February 2022, a user
compared the loss of a padded batch with that of its real tokens, with and without smoothing. It was
corrected in version 1.12.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from transformer_blocks.inspection import Report, check_loss
from transformer_blocks.museum.exhibit import Exhibit
from transformer_blocks.museum.losses import TARGETS, Loss, Parts, count_tokens


def broken_sum(logits: Tensor, targets: Tensor) -> Tensor:
    """Sum the smoothed losses of a part; target 0 is padding."""
    log_probabilities = logits.log_softmax(-1)
    of_target = -log_probabilities.gather(-1, targets[..., None])[..., 0]
    uniform = -log_probabilities.mean(-1)
    # the fault: the uniform part of a padded target remains
    return (0.9 * of_target.masked_fill(targets == 0, 0.0) + 0.1 * uniform).sum()


def mended_sum(logits: Tensor, targets: Tensor) -> Tensor:
    """Sum the smoothed losses of a part; target 0 is padding."""
    log_probabilities = logits.log_softmax(-1)
    of_target = -log_probabilities.gather(-1, targets[..., None])[..., 0]
    uniform = -log_probabilities.mean(-1)
    return (0.9 * of_target + 0.1 * uniform).masked_fill(targets == 0, 0.0).sum()


def make_loss(sum_smoothed: Callable[[Tensor, Tensor], Tensor]) -> Loss:
    """Make the loss of a batch that is divided into parts, from the sum of one part."""

    def loss(parts: Parts) -> Tensor:
        total = torch.stack([sum_smoothed(logits, targets) for logits, targets in parts]).sum()
        return total / count_tokens(parts)

    return loss


def examine(loss: Loss) -> Report:
    """Compare the losses and gradients of a batch that is divided in several ways."""
    return check_loss(loss, torch.randn(4, 5, 10), TARGETS, padding_id=0)


EXHIBIT = Exhibit(
    theme="loss",
    source="https://github.com/pytorch/pytorch/issues/73205",
    found_by="loss",
    broken=lambda: make_loss(broken_sum),
    mended=lambda: make_loss(mended_sum),
    examine=examine,
)
