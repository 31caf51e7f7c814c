"""Experts with a capacity, which drop the tokens of other users.

So that all experts have inputs of one size, early mixtures of experts gave each a capacity: of the
tokens of a batch that chose it, it computes the first ones, and the others are left as they are.
What is computed for a sequence then depends on the other sequences of its batch.

In a service, these belong to other users. Researchers showed in February 2024 that requests which
are made for it can fill an expert, and so change the answers that others receive. A model that is
tested with one sequence at a time, or with a capacity that suffices, shows nothing.

:theme: layout and modes
:source: https://arxiv.org/abs/2402.05526
:found by: batch
"""

import torch
from torch import Tensor, nn

from coursework.museum.models import TOKENS
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(nn.Module):
    """A model of the words of a sequence with four experts, of which a token uses one."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.output = nn.Embedding(20, 16), nn.Linear(16, 20)
        self.router = nn.Linear(16, 4, bias=False)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def has_room(self, is_chosen: Tensor) -> Tensor:
        """Return which of the tokens that chose an expert, (T, 4), it computes."""
        # the fault: an expert computes the first two tokens of the whole batch
        return is_chosen & (is_chosen.cumsum(dim=0) <= 2)

    def forward(self, ids: Tensor) -> Tensor:
        """Compute the logits (B, L, 20) of tokens (B, L)."""
        x = self.embedding(ids).flatten(0, 1)
        scores = self.router(x).softmax(dim=-1)
        is_chosen = scores == scores.amax(dim=-1, keepdim=True)
        weights = scores * self.has_room(is_chosen)
        outputs = torch.stack([expert(x) for expert in self.experts], dim=-1)
        x = x + (outputs * weights[:, None]).sum(dim=-1)
        return self.output(x).view(*ids.shape, 20)


class Mended(Broken):
    """Drops no token: an expert computes all that chose it."""

    def has_room(self, is_chosen: Tensor) -> Tensor:
        """Return which of the tokens that chose an expert, (T, 4), it computes."""
        return is_chosen


def examine(model: nn.Module) -> Soundness:
    """Check the model on a batch of two sequences."""
    return check_soundness(model, TOKENS)
