"""Unit 8: encoder and decoder, the paper's figure 1.

Chapters 9 and 12 of the book; section 3.1 of the paper.

It needs ``causal_mask`` of unit 4, ``MultiHeadAttention`` of unit 6, and ``FeedForward`` and
``PostNorm`` of unit 7.
"""

from torch import Tensor, nn


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network, each in a residual connection.

    Attributes:
        self_attention: ``MultiHeadAttention(d_model, num_heads)``.
        self_attention_residual: ``PostNorm(d_model, dropout)``.
        feed_forward: ``FeedForward(d_model, d_ff)``.
        feed_forward_residual: ``PostNorm(d_model, dropout)``.
    """

    def __init__(self, d_model: int, num_heads: int, d_ff: int, dropout: float = 0.1) -> None:
        super().__init__()
        raise NotImplementedError

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Compute the output of the layer.

        Args:
            x: Vectors, of shape (B, L, d_model).
            mask: Hides padding, (B, 1, 1, L).

        Returns:
            Vectors of shape (B, L, d_model).
        """
        raise NotImplementedError


class DecoderLayer(nn.Module):
    """Causal self-attention, cross-attention to the encoder's output, and a feed-forward network.

    Attributes:
        self_attention: ``MultiHeadAttention(d_model, num_heads)``.
        self_attention_residual: ``PostNorm(d_model, dropout)``.
        cross_attention: ``MultiHeadAttention(d_model, num_heads)``, with keys and values from the
            memory.
        cross_attention_residual: ``PostNorm(d_model, dropout)``.
        feed_forward: ``FeedForward(d_model, d_ff)``.
        feed_forward_residual: ``PostNorm(d_model, dropout)``.
    """

    def __init__(self, d_model: int, num_heads: int, d_ff: int, dropout: float = 0.1) -> None:
        super().__init__()
        raise NotImplementedError

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """Compute the output of the layer; no position depends on a later one.

        Args:
            x: Target vectors, of shape (B, L, d_model).
            memory: The encoder's output, of shape (B, S, d_model).
            mask: Hides padding of the target, (B, 1, 1, L), in addition to the future.
            memory_mask: Hides padding of the source, (B, 1, 1, S).

        Returns:
            Vectors of shape (B, L, d_model).
        """
        raise NotImplementedError


class Encoder(nn.Module):
    """A stack of encoder layers.

    Attributes:
        layers: ``num_layers`` layers, each with parameters of its own, in an ``nn.ModuleList``.
    """

    def __init__(
        self, num_layers: int, d_model: int, num_heads: int, d_ff: int, dropout: float = 0.1
    ) -> None:
        super().__init__()
        raise NotImplementedError

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Apply the layers in turn; shapes as in :class:`EncoderLayer`."""
        raise NotImplementedError


class Decoder(nn.Module):
    """A stack of decoder layers, all of which attend to the same memory.

    Attributes:
        layers: ``num_layers`` layers, each with parameters of its own, in an ``nn.ModuleList``.
    """

    def __init__(
        self, num_layers: int, d_model: int, num_heads: int, d_ff: int, dropout: float = 0.1
    ) -> None:
        super().__init__()
        raise NotImplementedError

    def forward(
        self,
        x: Tensor,
        memory: Tensor,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """Apply the layers in turn; shapes as in :class:`DecoderLayer`."""
        raise NotImplementedError
