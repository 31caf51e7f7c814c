"""Softmax along the queries.

annotated_deep_learning_paper_implementations, issue 146 (September 2022), in the self-attention of
a diffusion model. With all positions on both axes, the scores are a square matrix, and a softmax
along the wrong axis has the right shape: the weights of each key sum to one, not those of each
query. The author called it a typing error and a big one. Yet the reader who had reported it
trained both versions on CIFAR-10 and found no difference in the quality of the images: the wrong
weights are a usable nonlinearity too. No training curve shows this fault; a comparison with another
implementation does.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks.inspection import Report, check_equivalence
from transformer_blocks.museum.exhibit import Exhibit, seeded


class Broken(nn.Module):
    """Self-attention with the softmax written out."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs = nn.Linear(16, 48)

    def normalise(self, scores: Tensor) -> Tensor:
        """Turn the scores (B, query, key) into weights."""
        # the fault: dimension 1 holds the queries
        return scores.softmax(dim=1)

    def forward(self, x: Tensor) -> Tensor:
        """Attend from each position to all positions."""
        query, key, value = self.inputs(x).chunk(3, dim=-1)
        return self.normalise(query @ key.mT / 4) @ value


class Mended(Broken):
    """Normalises along the keys."""

    def normalise(self, scores: Tensor) -> Tensor:
        """Turn the scores (B, query, key) into weights."""
        return scores.softmax(dim=2)


def examine(model: Broken) -> Report:
    """Compare with torch's scaled dot-product attention."""

    def theirs(x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(*model.inputs(x).chunk(3, dim=-1))

    return check_equivalence(model, theirs, [torch.randn(2, 5, 16)])


EXHIBIT = Exhibit(
    title="Softmax along the queries",
    theme="heads",
    source="https://github.com/labmlai/annotated_deep_learning_paper_implementations/issues/146",
    found_by="equivalence",
    broken=seeded(Broken),
    mended=seeded(Mended),
    examine=examine,
)
