"""Unit 7: what stands between the attention layers.

Chapter 9 of the book; sections 3.1 and 3.3 of the paper.
"""

from collections.abc import Callable

from torch import Tensor, nn


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
    """Normalise each vector: (x - mean) / sqrt(variance + eps) * weight + bias.

    Args:
        x: Vectors, of shape (B, L, d_model).
        weight: Factor of each feature, of shape (d_model,).
        bias: Summand of each feature, of shape (d_model,).
        eps: Added to the variance, which is the mean of the squared deviations (divided by
            d_model).

    Returns:
        Vectors of shape (B, L, d_model).
    """
    raise NotImplementedError


class FeedForward(nn.Module):
    """The position-wise feed-forward network: expand to d_ff, apply ReLU, project back to d_model.

    Attributes:
        up_projection: ``nn.Linear(d_model, d_ff)``.
        down_projection: ``nn.Linear(d_ff, d_model)``.
    """

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """Compute an output of shape (B, L, d_model) from ``x`` of the same shape."""
        raise NotImplementedError


class PostNorm(nn.Module):
    """The paper's residual connection: normalise the sum of the input and the sublayer's output.

    Attributes:
        norm: ``nn.LayerNorm(d_model)``.
        dropout: ``nn.Dropout(dropout)``, applied to the sublayer's output.
    """

    def __init__(self, d_model: int, dropout: float = 0.1) -> None:
        super().__init__()
        raise NotImplementedError

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply ``sublayer``, a function that keeps the shape (B, L, d_model), to ``x``."""
        raise NotImplementedError


class PreNorm(nn.Module):
    """The residual connection of later models: normalise the sublayer's input only.

    Attributes:
        norm: ``nn.LayerNorm(d_model)``.
        dropout: ``nn.Dropout(dropout)``, applied to the sublayer's output.
    """

    def __init__(self, d_model: int, dropout: float = 0.1) -> None:
        super().__init__()
        raise NotImplementedError

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply ``sublayer``, a function that keeps the shape (B, L, d_model), to ``x``."""
        raise NotImplementedError
