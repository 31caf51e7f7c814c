"""Unit 5: scaled dot-product attention. Chapters 1, 2, 4 and 5 of the book.

It is equation 1 of the paper.
"""

from torch import Tensor


def attention_weights(query: Tensor, key: Tensor, mask: Tensor | None = None) -> Tensor:
    """Compute the attention weights, softmax(QK^T / sqrt(d_k)).

    The weights of a query sum to one. A masked key has the weight zero; if every key of a query is
    masked, all its weights are zero, not NaN, and so are its gradients: a NaN that is replaced
    after the softmax comes back in the gradients of the whole batch.

    Args:
        query: Query vectors, of shape (B, H, L, d_k).
        key: Key vectors, of shape (B, H, S, d_k).
        mask: Boolean mask that can be broadcast to (B, H, L, S); True hides.

    Returns:
        Attention weights, of shape (B, H, L, S).
    """
    raise NotImplementedError


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Compute the sum of the values, weighted by the attention weights.

    Args:
        query: Query vectors, of shape (B, H, L, d_k).
        key: Key vectors, of shape (B, H, S, d_k).
        value: Value vectors, of shape (B, H, S, d_v).
        mask: Boolean mask that can be broadcast to (B, H, L, S); True hides.

    Returns:
        The output, of shape (B, H, L, d_v), and the attention weights, of shape (B, H, L, S).
    """
    raise NotImplementedError
