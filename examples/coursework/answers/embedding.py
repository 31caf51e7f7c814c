"""The answer to unit 2: chooses each row of the weights by its number."""

import torch
from torch import Tensor, nn


class TokenEmbedding(nn.Module):
    """Rows of the weights."""

    def __init__(self, vocabulary_size: int, d_model: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(vocabulary_size, d_model) * d_model**-0.5)

    def forward(self, tokens: Tensor) -> Tensor:
        """Embed tokens."""
        rows = [torch.stack([self.weight[each] for each in row]) for row in tokens.tolist()]
        return torch.stack(rows) * self.weight.shape[1] ** 0.5


def output_logits(hidden: Tensor, embedding: TokenEmbedding) -> Tensor:
    """Sum the products of the features."""
    return (hidden[:, :, None] * embedding.weight).sum(-1)
