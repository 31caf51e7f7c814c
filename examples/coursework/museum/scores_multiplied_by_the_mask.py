"""Scores multiplied by the mask before the softmax.

A study of pathology multiplied the attention scores of each bag of image patches by a mask of ones
and zeros, and then took the softmax. A masked score becomes zero, and the exponential of zero is
one: padding gets the weight of an average patch.

A reader of the paper found it in November 2023. The author could answer that the results stand,
because he had trained with a batch size of one, where there is no padding. With any larger batch,
every result would have changed without an error.

:theme: masks
:source: https://github.com/georg-wolflein/good-features/pull/1
:found by: padding
"""

import torch
from torch import Tensor, nn

from transformer_blocks.inspection import Soundness, check_soundness


class Broken(nn.Module):
    """Attention pooling: a weighted sum of the vectors of a bag."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Sequential(nn.Linear(16, 8), nn.Tanh(), nn.Linear(8, 1))
        self.output = nn.Linear(16, 3)

    def mask(self, scores: Tensor, is_real: Tensor) -> Tensor:
        # the fault: the softmax of a score of zero is not zero
        return scores * is_real

    def forward(self, bag: Tensor, is_real: Tensor) -> Tensor:
        scores = self.score(bag).squeeze(-1)  # (B, S)
        weights = self.mask(scores, is_real).softmax(dim=-1)
        return self.output((weights[:, None] @ bag).squeeze(1))


class Mended(Broken):
    """The same, with masked scores of minus infinity."""

    def mask(self, scores: Tensor, is_real: Tensor) -> Tensor:
        return scores.where(is_real, float("-inf"))


def examine(model: nn.Module) -> Soundness:
    """Check the model on bags of six and of three vectors."""
    is_real = torch.arange(6) < torch.tensor([[6], [3]])
    return check_soundness(model, (torch.randn(2, 6, 16), is_real))
