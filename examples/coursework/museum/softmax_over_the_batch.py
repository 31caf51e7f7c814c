"""A softmax over the batch.

The attention module of PyTorch-NLP normalised its scores along the first axis. That is the batch:
the weights of one key sum to one over the sequences that happen to be together.

In a large batch, such weights are small positive numbers like any others, and a model trains with
them. In a batch of one, each weight is exactly one, whatever the inputs are. The example in the
documentation had a batch of one, and a user who printed its weights reported the fault in March
2018.

:theme: heads
:source: https://github.com/PetrochukM/PyTorch-NLP/issues/2
:found by: batch
"""

import torch
from torch import Tensor, nn

from transformer_blocks.inspection import Soundness, check_soundness

TOKENS = torch.tensor([[3, 1, 4, 1, 5], [2, 7, 1, 8, 2], [1, 4, 1, 4, 2]])


class Broken(nn.Module):
    """A classifier that pools the vectors of a sequence by attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.score = nn.Embedding(10, 16), nn.Linear(16, 1)
        self.output = nn.Linear(16, 3)

    def normalise(self, scores: Tensor) -> Tensor:
        """Turn the scores (B, L) into weights."""
        # the fault: dimension 0 holds the sequences of the batch
        return scores.softmax(dim=0)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits (B, 3) of tokens (B, L)."""
        x = self.embedding(tokens)
        weights = self.normalise(self.score(x)[..., 0])
        return self.output((weights[..., None] * x).sum(1))


class Mended(Broken):
    """Normalises along the keys."""

    def normalise(self, scores: Tensor) -> Tensor:
        """Turn the scores (B, L) into weights."""
        return scores.softmax(dim=-1)


def examine(model: Broken) -> Soundness:
    """Run all checks; the sequences have no padding."""
    return check_soundness(model, TOKENS)
