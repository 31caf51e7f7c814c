"""Unit 8, solved."""

from typing import Any

from torch import Tensor, nn

from .feed_forward import FeedForward, PostNorm
from .heads import MultiHeadAttention
from .masks import causal_mask


class EncoderLayer(nn.Module):
    def __init__(self, d_model: int, num_heads: int, d_ff: int, dropout: float = 0.1) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(d_model, num_heads)
        self.self_attention_residual = PostNorm(d_model, dropout)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.feed_forward_residual = PostNorm(d_model, dropout)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = self.self_attention_residual(x, lambda y: self.self_attention(y, y, y, mask=mask))
        return self.feed_forward_residual(x, self.feed_forward)


class DecoderLayer(EncoderLayer):
    def __init__(self, d_model: int, num_heads: int, d_ff: int, dropout: float = 0.1) -> None:
        super().__init__(d_model, num_heads, d_ff, dropout)
        self.cross_attention = MultiHeadAttention(d_model, num_heads)
        self.cross_attention_residual = PostNorm(d_model, dropout)

    def forward(self, x: Tensor, memory: Any, mask: Any = None, memory_mask: Any = None) -> Tensor:  # type: ignore[override]
        hidden = causal_mask(x.shape[1])
        if mask is not None:
            hidden = hidden | mask
        x = self.self_attention_residual(x, lambda y: self.self_attention(y, y, y, mask=hidden))
        x = self.cross_attention_residual(
            x, lambda y: self.cross_attention(y, memory, memory, mask=memory_mask)
        )
        return self.feed_forward_residual(x, self.feed_forward)


class Encoder(nn.Module):
    def __init__(
        self, num_layers: int, d_model: int, num_heads: int, d_ff: int, dropout: float = 0.1
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            EncoderLayer(d_model, num_heads, d_ff, dropout) for _ in range(num_layers)
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        for layer in self.layers:
            x = layer(x, mask=mask)
        return x


class Decoder(Encoder):
    def __init__(self, num_layers: int, *sizes: Any) -> None:
        super().__init__(num_layers, *sizes)
        self.layers = nn.ModuleList(DecoderLayer(*sizes) for _ in range(num_layers))

    def forward(self, x: Tensor, memory: Any, mask: Any = None, memory_mask: Any = None) -> Tensor:  # type: ignore[override]
        for layer in self.layers:
            x = layer(x, memory, mask=mask, memory_mask=memory_mask)
        return x
