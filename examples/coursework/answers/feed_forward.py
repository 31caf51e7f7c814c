"""The answer to unit 7: normalises in float64, one vector at a time."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Normalise each vector."""
    values, result = x.double().numpy(), np.zeros(x.shape)
    for b, i in np.ndindex(values.shape[:2]):
        numbers = values[b, i]
        mean = numbers.mean()
        squares = (numbers - mean) ** 2
        scaled = (values[b, i] - mean) / (squares.mean() + eps) ** 0.5
        result[b, i] = scaled * weight.numpy() + bias.numpy()
    return torch.from_numpy(result).float()


class FeedForward(nn.Module):
    """Two projections."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.up_projection = nn.Linear(d_model, d_ff)
        self.down_projection = nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        """Expand, apply the activation function, and project back."""
        hidden: Tensor = self.down_projection(F.relu(self.up_projection(x)))
        return hidden


class PostNorm(nn.Module):
    """A norm after the sum."""

    def __init__(self, d_model: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(d_model), nn.Dropout(dropout)

    def forward(self, x: Tensor, sublayer: Any) -> Any:
        """Apply the sublayer."""
        return self.norm(x + self.dropout(sublayer(x)))


class PreNorm(PostNorm):
    """A norm before the sublayer."""

    def forward(self, x: Tensor, sublayer: Any) -> Any:
        """Apply the sublayer."""
        return x + self.dropout(sublayer(self.norm(x)))
