"""Softmax along the batch.

PyTorch-NLP, issue 2 (March 2018). The attention weights were normalised along the first dimension
of the scores, which is the batch, and not along the keys. The weights of a key then sum to one over
the sequences that happen to be in the batch. In a large batch they look like small probabilities,
and a model trains with them. It was found because the example of the documentation has a batch of
one: there, every weight is exactly 1, whatever the inputs. torch's softmax, if it is called without
a dimension, chooses the first one of three as well.
"""

import torch
from torch import Tensor, nn

from transformer_blocks.inspection import Soundness, check_soundness
from transformer_blocks.museum.exhibit import Exhibit, seeded

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


EXHIBIT = Exhibit(
    title="Softmax along the batch",
    theme="heads",
    source="https://github.com/PetrochukM/PyTorch-NLP/issues/2",
    found_by="batch",
    broken=seeded(Broken),
    mended=seeded(Mended),
    examine=examine,
)
