"""Unit 2: token embeddings, and logits from the same weights. Chapter 7 of the book."""

from torch import Tensor, nn


class TokenEmbedding(nn.Module):
    """A learned vector for each token, multiplied by sqrt(d_model).

    Attributes:
        weight: An ``nn.Parameter`` of shape (V, d_model), drawn from a normal distribution with
            mean 0 and the standard deviation 1 / sqrt(d_model).
    """

    def __init__(self, vocabulary_size: int, d_model: int) -> None:
        super().__init__()
        raise NotImplementedError

    def forward(self, tokens: Tensor) -> Tensor:
        """Embed token ids.

        Args:
            tokens: Integers, of shape (B, L).

        Returns:
            Vectors of shape (B, L, d_model): the rows of ``weight``, multiplied by sqrt(d_model).
        """
        raise NotImplementedError


def output_logits(hidden: Tensor, embedding: TokenEmbedding) -> Tensor:
    """Compute a logit for each token with the weights of the embedding (tied weights).

    The factor sqrt(d_model) belongs to the input alone.

    Args:
        hidden: The decoder's last vectors, of shape (B, L, d_model).
        embedding: The embedding whose ``weight`` is used.

    Returns:
        Dot products with the rows of ``weight``, of shape (B, L, V).
    """
    raise NotImplementedError
