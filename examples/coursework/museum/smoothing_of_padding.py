"""Padded targets that are smoothed.

The cross-entropy with label smoothing has two parts, one for the target token and one for the
uniform distribution over all tokens. In torch, the first part left out ignored targets, and the
second did not: a model was also trained to be uncertain at padded positions.

Ignored targets alone were right, and so was label smoothing alone. In February 2022, a user
compared the loss of a padded batch with that of its real tokens, with and without smoothing. It was
corrected in version 1.12.

:theme: loss
:source: https://github.com/pytorch/pytorch/issues/73205
:found by: loss
"""

import torch
from torch import Tensor

from coursework.museum.losses import TARGETS, Loss, Parts, count_tokens
from transformer_blocks.inspection import Soundness, check_soundness


class Broken:
    """A loss with label smoothing."""

    def leave_out(self, padding: Tensor, of_target: Tensor, uniform: Tensor) -> Tensor:
        """Add the two parts of the losses (B, L), without the padded positions."""
        # the fault: the uniform part of a padded target remains
        return 0.9 * of_target.masked_fill(padding, 0.0) + 0.1 * uniform

    def __call__(self, parts: Parts) -> Tensor:
        """Compute the loss of a batch that is divided into parts; target 0 is padding."""
        sums = []
        for logits, targets in parts:
            log_probabilities = logits.log_softmax(-1)
            of_target = -log_probabilities.gather(-1, targets[..., None])[..., 0]
            losses = self.leave_out(targets == 0, of_target, -log_probabilities.mean(-1))
            sums.append(losses.sum())
        return torch.stack(sums).sum() / count_tokens(parts)


class Mended(Broken):
    """Leaves both parts out."""

    def leave_out(self, padding: Tensor, of_target: Tensor, uniform: Tensor) -> Tensor:
        """Add the two parts of the losses (B, L), without the padded positions."""
        return (0.9 * of_target + 0.1 * uniform).masked_fill(padding, 0.0)


def examine(loss: Loss) -> Soundness:
    """Compare the losses and gradients of a batch that is divided in several ways."""
    return check_soundness(loss, (torch.randn(4, 5, 10), TARGETS), only="loss", padding_id=0)
