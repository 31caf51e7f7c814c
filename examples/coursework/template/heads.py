"""Unit 6: multi-head attention. Chapters 3 and 6 of the book; section 3.2.2 of the paper.

It needs ``scaled_dot_product_attention`` of unit 5.
"""

from torch import Tensor, nn


def split_heads(x: Tensor, num_heads: int) -> Tensor:
    """Split each vector into heads: head h has the features h * d_k to (h + 1) * d_k - 1.

    Args:
        x: Vectors, of shape (B, L, H * d_k).
        num_heads: H.

    Returns:
        Vectors of shape (B, H, L, d_k).
    """
    raise NotImplementedError


def merge_heads(heads: Tensor) -> Tensor:
    """Concatenate the heads: the inverse of :func:`split_heads`.

    Args:
        heads: Vectors, of shape (B, H, L, d_k).

    Returns:
        Vectors of shape (B, L, H * d_k).
    """
    raise NotImplementedError


class MultiHeadAttention(nn.Module):
    """Attention in several heads at once, between learned projections.

    Attributes:
        query_projection: ``nn.Linear(d_model, d_model)``.
        key_projection: The same for the keys.
        value_projection: The same for the values.
        output_projection: The same for the concatenated heads.
    """

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        raise NotImplementedError

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
    ) -> Tensor:
        """Project, attend in each head, concatenate, and project.

        Args:
            query: Query sequence, of shape (B, L, d_model).
            key: Key sequence, of shape (B, S, d_model).
            value: Value sequence, of shape (B, S, d_model).
            mask: Boolean mask that can be broadcast to (B, H, L, S); True hides.

        Returns:
            One vector for each query, of shape (B, L, d_model).
        """
        raise NotImplementedError
