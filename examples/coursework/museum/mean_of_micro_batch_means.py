"""A mean of the means of micro-batches.

Gradient accumulation divides a batch into micro-batches. The trainer of transformers averaged their
losses, each of which is a mean over the tokens of one micro-batch. A token in a micro-batch with
few targets then has a larger weight than one in a micro-batch with many.

The loss falls in either case, and sequences of equal length give equal results. An issue of July
2023 stated the cause and was closed. Others measured in October 2024 that runs which should have
been equal were not, and the library changed how it divides.

:theme: loss
:source: https://github.com/huggingface/transformers/issues/24725
:found by: loss
"""

import torch
from torch import Tensor

from coursework.museum.losses import TARGETS, Loss, Parts, count_tokens, sum_losses
from transformer_blocks.inspection import Soundness, check_soundness


def broken(micro_batches: Parts) -> Tensor:
    """Compute the loss of a batch that is divided into micro-batches."""
    means = [sum_losses([each]) / count_tokens([each]) for each in micro_batches]
    # the fault: the means are of different numbers of tokens
    return torch.stack(means).mean()


def mended(micro_batches: Parts) -> Tensor:
    """Compute the loss of a batch that is divided into micro-batches."""
    return sum_losses(micro_batches) / count_tokens(micro_batches)


def examine(loss: Loss) -> Soundness:
    """Compare the losses and gradients of a batch that is divided in several ways."""
    return check_soundness(loss, (torch.randn(4, 5, 10), TARGETS), only="loss", padding_id=0)
