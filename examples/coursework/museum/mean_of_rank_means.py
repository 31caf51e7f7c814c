"""A mean of the means of ranks.

Distributed training averages the gradients of its ranks. In the trainer of transformers, each rank
divided its loss by the number of its own target tokens, so that a token had a larger weight the
fewer tokens its rank had.

Days before, in October 2024, the same fault had been corrected for gradient accumulation: the
tokens of all micro-batches were counted, but of one rank only. No single rank shows it: each
computes a correct mean, and with one process the result is right. torchtitan divided in the same
way until January 2026.

:theme: loss
:source: https://github.com/huggingface/transformers/issues/34242
:found by: loss
"""

import torch
from torch import Tensor

from coursework.museum.losses import TARGETS, Loss, Parts, count_tokens, sum_losses
from transformer_blocks.inspection import Soundness, check_soundness


def broken(parts: Parts) -> Tensor:
    """Compute the loss of micro-batches that are dealt out to two ranks."""
    ranks = [parts[rank::2] for rank in range(min(2, len(parts)))]
    # the fault: each rank divides by its own number of tokens
    losses = [sum_losses(rank) / count_tokens(rank) for rank in ranks]
    return torch.stack(losses).mean()  # an all-reduce averages


def mended(parts: Parts) -> Tensor:
    """Compute the loss of micro-batches that are dealt out to two ranks."""
    ranks = [parts[rank::2] for rank in range(min(2, len(parts)))]
    tokens = torch.stack([count_tokens(rank) for rank in ranks]).sum()  # an all-reduce sums
    losses = [sum_losses(rank) / tokens * len(ranks) for rank in ranks]
    return torch.stack(losses).mean()  # an all-reduce averages


def examine(loss: Loss) -> Soundness:
    """Compare the losses and gradients of a batch that is divided in several ways."""
    return check_soundness(loss, (torch.randn(4, 5, 10), TARGETS), only="loss", padding_id=0)
