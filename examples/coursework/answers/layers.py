"""The answer to unit 8: assembles attention, networks and residual connections of the library."""

from typing import Any

from torch import Tensor, nn

from transformer_blocks import FeedForward, MultiHeadAttention, PostNorm, causal_mask


class EncoderLayer(nn.Module):
    """Self-attention and a feed-forward network."""

    def __init__(self, d_model: int, num_heads: int, d_ff: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, num_heads)
        self.self_attention_residual = PostNorm(d_model, dropout=dropout)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.feed_forward_residual = PostNorm(d_model, dropout=dropout)

    def forward(self, x: Tensor, mask: Any = None) -> Any:
        """Apply both sublayers."""
        x = self.self_attention_residual(x, lambda y: self.self_attention(y, y, y, mask=mask))
        return self.feed_forward_residual(x, self.feed_forward)


class DecoderLayer(EncoderLayer):
    """The same with cross-attention."""

    def __init__(self, d_model: int, num_heads: int, d_ff: int, dropout: float = 0.1) -> None:
        super().__init__(d_model, num_heads, d_ff, dropout)
        self.cross_attention = MultiHeadAttention(d_model, num_heads)
        self.cross_attention_residual = PostNorm(d_model, dropout=dropout)

    def forward(self, x: Tensor, memory: Any, mask: Any = None, memory_mask: Any = None) -> Any:  # type: ignore[override]
        """Apply the three sublayers."""
        hidden = causal_mask(x.shape[1])
        hidden = hidden if mask is None else hidden | mask
        x = self.self_attention_residual(x, lambda y: self.self_attention(y, y, y, mask=hidden))
        x = self.cross_attention_residual(
            x, lambda y: self.cross_attention(y, memory, memory, mask=memory_mask)
        )
        return self.feed_forward_residual(x, self.feed_forward)


class Encoder(nn.Module):
    """Layers in turn."""

    layer = EncoderLayer

    def __init__(self, num_layers: int, *sizes: Any) -> None:
        super().__init__()
        self.layers = nn.ModuleList(self.layer(*sizes) for _ in range(num_layers))

    def forward(self, x: Tensor, *others: Any) -> Tensor:
        """Apply the layers."""
        for layer in self.layers:
            x = layer(x, *others)
        return x


class Decoder(Encoder):
    """Layers of a decoder in turn."""

    layer = DecoderLayer
