"""Models: the small models, and the batches for them, that several exhibits share.

An exhibit adds what is broken, and the same without the fault. All weights are random.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks.embedding import SinusoidalPositionalEncoding

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 8]])
"""A batch of two sequences without padding."""
PADDED = torch.tensor([[5, 3, 8, 2, 7, 4], [6, 9, 1, 0, 0, 0]])
"""A batch of two sequences, the second with padding, which is token 0."""
LEFT_PADDED = torch.tensor([[5, 3, 8, 2, 7, 4], [0, 0, 0, 6, 9, 1]])
"""The same batch with the padding on the left."""


class SelfAttention(nn.Module):
    """Self-attention of one head, for vectors (B, L, 16)."""

    def __init__(self) -> None:
        super().__init__()
        self.query_key_value = nn.Linear(16, 48)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Compute the queries, keys and values of vectors, each of shape (B, L, 16)."""
        query, key, value = self.query_key_value(x).chunk(3, dim=-1)
        return query, key, value

    def attend(self, x: Tensor, mask: Tensor | None = None, *, causal: bool = False) -> Tensor:
        """Add to the vectors what they attend to; as in torch, the mask is true at those keys."""
        query, key, value = self.project(x)
        return x + F.scaled_dot_product_attention(query, key, value, mask, is_causal=causal)


class Encoder(SelfAttention):
    """Self-attention of the embeddings of 20 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.positional_encoding = SinusoidalPositionalEncoding(16)

    def embed(self, ids: Tensor) -> Tensor:
        """Embed tokens (B, L) and add the positional encodings."""
        return self.positional_encoding(self.embedding(ids))


class LanguageModel(Encoder):
    """Self-attention between the embeddings and the logits of 20 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Linear(16, 20)


class Classifier(Encoder):
    """Self-attention between the embeddings of 20 tokens and the logits of two classes."""

    def __init__(self) -> None:
        super().__init__()
        self.classes = nn.Linear(16, 2)


def rotate(x: Tensor, angles: Tensor) -> Tensor:
    """Rotate each pair of neighbours by its angle, as rotary positional encoding does.

    Args:
        x: Vectors, of shape (B, L, 16).
        angles: Angles, broadcastable to (B, L, 8).

    Returns:
        The rotated vectors, of shape (B, L, 16).
    """
    turn = torch.polar(torch.ones(()), angles)
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (8, 2))) * turn).flatten(-2)
