"""A softmax over the queries.

The self-attention of an annotated implementation of a diffusion model normalised its scores along
the axis of the queries: the weights of each key sum to one, not those of each query. The scores of
all positions with all positions are a square matrix, so that the shapes are right.

The reader who reported it in September 2022 trained both forms on CIFAR-10, and found no difference
in the quality of the images. A model can be trained with the wrong softmax too, and no training
curve shows it. A comparison with another implementation does, as soon as the weights of one are
loaded into the other.

:theme: heads
:source: https://github.com/labmlai/annotated_deep_learning_paper_implementations/issues/146
:found by: equivalence
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from coursework.museum.models import SelfAttention
from transformer_blocks.inspection import Difference, first_difference


class Broken(SelfAttention):
    """Self-attention with the softmax written out."""

    def normalise(self, scores: Tensor) -> Tensor:
        """Turn the scores (B, query, key) into weights."""
        # the fault: dimension 1 holds the queries
        return scores.softmax(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """Attend from each position to all positions."""
        query, key, value = self.project(x)
        return self.normalise(query @ key.mT / 4) @ value


class Mended(Broken):
    """Normalises along the keys."""

    def normalise(self, scores: Tensor) -> Tensor:
        """Turn the scores (B, query, key) into weights."""
        return scores.softmax(dim=2)


def examine(model: Broken) -> Difference:
    """Compare with torch's scaled dot-product attention."""

    def theirs(x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(*model.project(x))

    return first_difference(model, theirs, torch.randn(2, 5, 16))
