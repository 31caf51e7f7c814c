"""The encoder: self-attention and a feed-forward network, N times (left half of figure 1).

A layer has two sublayers. In self-attention, every position attends to all positions of the
sequence; the position-wise feed-forward network then transforms each position separately. Around
each of the two is a residual connection with layer normalisation (section 3.1). After a few layers,
the vector of a word represents the word in its context: "bank" by a river is no longer the "bank"
that lends money.

The encoder is a stack of such layers. With ``causal=True`` the same stack is a *decoder-only*
model: no position attends to a later one, as in a language model. The argument ``cache`` is for
autoregressive decoding (:mod:`transformer_blocks.cache`; skip it at first reading).

Next: :mod:`transformer_blocks.decoder`, which also attends to the encoder's output.
"""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from torch import Tensor, nn

from transformer_blocks._contracts import Factory, Module, checked
from transformer_blocks.cache import KeyValueCache, SelfAttentionCache
from transformer_blocks.multi_head import MultiHeadAttention
from transformer_blocks.residual import Residual, new_residual


class EncoderLayer(nn.Module):
    """One encoder layer: self-attention, then a position-wise feed-forward network.

    Args:
        self_attention: Attention layer of the self-attention.
        feed_forward: Network that is applied to each position; its input and output have the shape
            (B, L, d_model).
        residual: Function without arguments that returns a new residual connection, for example
            ``lambda: PostNorm(512)``. It is called once for each sublayer. The class of the
            connection determines whether normalisation comes after the sublayer or before it.

    Raises:
        TypeError: If a part is not a module, or ``residual`` does not return a :class:`Residual`.

    Example:
        >>> import torch
        >>> from transformer_blocks import EncoderLayer, FeedForward, MultiHeadAttention, PreNorm
        >>> layer = EncoderLayer(
        ...     MultiHeadAttention(16, 4), FeedForward(16, 64), residual=lambda: PreNorm(16)
        ... ).eval()
        >>> x = torch.randn(1, 5, 16)
        >>> order = torch.tensor([4, 2, 0, 1, 3])  # without positions, a sequence is a set:
        >>> torch.allclose(layer(x)[:, order], layer(x[:, order]), atol=1e-5)
        True
    """

    @checked
    def __init__(
        self,
        self_attention: Module[MultiHeadAttention],
        feed_forward: nn.Module,
        *,
        residual: Factory[Callable[[], Residual]],
    ) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.self_attention_residual = new_residual(residual)
        self.feed_forward = feed_forward
        self.feed_forward_residual = new_residual(residual)

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Apply self-attention and the feed-forward network, both with residual connections.

        Args:
            x: Sequence of vectors, of shape (B, L, d_model).
            mask: Boolean mask; **True hides** a key from a query. Shape (L, S) or
                (B|1, H|1, L|1, S), where S counts the positions in the cache and those of ``x``.
            causal: Also mask future positions.
            cache: Keys and values of the positions before ``x``; those of ``x`` are appended.

        Returns:
            The transformed sequence, of shape (B, L, d_model).

        Raises:
            RuntimeError: If there is a cache and gradients are recorded.
            TypeError: If ``x`` differs from the weights in dtype, or an argument is of the wrong
                type.
            ValueError: If shapes do not fit.
        """
        step: Any = copy(cache)
        x = self.self_attention_residual(
            x, lambda x: self.self_attention(x, x, x, mask=mask, causal=causal, cache=step)
        )
        x = self.feed_forward_residual(x, self.feed_forward)
        if cache is not None:
            cache.update(step)  # at the end: an interrupted step can be repeated
        return x


class Encoder(nn.Module):
    """A stack of encoder layers, for an encoder or for a decoder-only model.

    Args:
        layers: The layers, from the first to the last, each with parameters of its own.
        norm: Normalisation of the last layer's output; none if not given. A stack of layers with
            :class:`PreNorm` needs one, since its residual stream is never normalised; a stack of
            layers with :class:`PostNorm` does not.

    Raises:
        TypeError: If a layer or the norm is not a module.

    Example:
        >>> import torch
        >>> from transformer_blocks import build_encoder, padding_mask, TokenEmbedding
        >>> encoder = build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> tokens = torch.tensor([[5, 6, 7], [8, 0, 0]])  # 0 is padding
        >>> x = TokenEmbedding(10, 16)(tokens)
        >>> batch = encoder(x, mask=padding_mask(tokens))
        >>> alone = encoder(x[1:, :1])  # the short sequence without its padding ...
        >>> torch.allclose(batch[1:, :1], alone, atol=1e-5)  # ... has the same output
        True
    """

    @checked
    def __init__(self, layers: Sequence[nn.Module], *, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = norm

    @checked
    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: SelfAttentionCache | None = None,
    ) -> Tensor:
        """Apply the layers in turn, then the final normalisation, if there is one.

        Args:
            x: Embedded tokens with positions, of shape (B, L, d_model).
            mask: Boolean mask; **True hides** a key from a query. Usually ``padding_mask(tokens)``.
                Shape (L, S) or (B|1, H|1, L|1, S), where S counts the positions in the cache and
                those of ``x``.
            causal: Also mask future positions, as a decoder-only model must.
            cache: What :meth:`new_cache` returned. ``x`` then holds the positions that follow those
                of earlier calls, and is appended to them.

        Returns:
            The representation of each token in its context, of shape (B, L, d_model).

        Raises:
            RuntimeError: If there is a cache and gradients are recorded.
            TypeError: If ``x`` differs from the weights in dtype, or an argument is of the wrong
                type.
            ValueError: If shapes do not fit, or the cache is of another batch size or number of
                layers.
        """
        count = len(self.layers)
        caches: Any = [None] * count if cache is None else cache.layers_for(x, count)
        for layer, layer_cache in zip(self.layers, caches, strict=True):
            x = layer(x, mask=mask, causal=causal, cache=layer_cache)
        x = x if self.norm is None else self.norm(x)
        if cache is not None:
            cache.update(caches)  # at the end: an interrupted step can be repeated
        return x

    def new_cache(self) -> SelfAttentionCache:
        """Create an empty cache, for decoding one batch; the caller passes it to each call."""
        return SelfAttentionCache(len(self.layers))
