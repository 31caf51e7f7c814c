"""The encoder: reads a sentence until every word knows its context.

A layer lets the words of the sentence look at each other, then lets each think on its own; both
parts are residual (section 3.1 and the left half of figure 1). The encoder is a stack of such
layers. With ``causal=True`` the same stack is a language model's: nobody looks ahead, and a cache
lets it write word by word (:mod:`transformer_blocks.cache`, later).

Next chapter: :mod:`transformer_blocks.decoder`, which writes.
"""

from collections.abc import Callable, Iterable, Sequence

from torch import Tensor, nn

from transformer_blocks._checks import (
    check_factory,
    check_instance,
    check_module,
    check_modules,
    check_vectors,
)
from transformer_blocks.cache import KeyValueCache, SelfAttentionCache, undo_on_error
from transformer_blocks.multi_head import MultiHeadAttention
from transformer_blocks.residual import Residual, new_residual


class EncoderLayer(nn.Module):
    """One layer: self-attention, then feed-forward.

    Args:
        self_attention: How positions look at each other.
        feed_forward: What each does with what it found; keeps the shape (B, L, d_model).
        residual: Makes the connection around each of the two; called once for each, for example
            ``lambda: PostNorm(512)``. Its class decides the norm order.

    Raises:
        TypeError: If a part is a class or no module, or ``residual`` makes no :class:`Residual`.

    Example:
        >>> layer = EncoderLayer(
        ...     MultiHeadAttention(16, 4), FeedForward(16, 64), residual=lambda: PreNorm(16)
        ... ).eval()
        >>> x = torch.randn(1, 5, 16)
        >>> order = torch.tensor([4, 2, 0, 1, 3])  # without positions, a sentence is a set:
        >>> torch.allclose(layer(x)[:, order], layer(x[:, order]), atol=1e-5)
        True
    """

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        feed_forward: nn.Module,
        *,
        residual: Callable[[], Residual],
    ) -> None:
        check_module(self_attention=self_attention, feed_forward=feed_forward)
        check_factory(residual=residual)
        super().__init__()
        self.self_attention = self_attention
        self.self_attention_residual = new_residual(residual)
        self.feed_forward = feed_forward
        self.feed_forward_residual = new_residual(residual)

    @undo_on_error
    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Let the positions of ``x`` exchange what they know.

        Args:
            x: Shape (B, L, d_model).
            mask: Boolean, True hides a key. Shape (L, L) or broadcastable to (B, H, L, L), where
                the last counts all positions so far.
            causal: Also hide later positions.
            cache: Keys and values of the positions before ``x``; those of ``x`` are added.

        Returns:
            Shape (B, L, d_model).

        Raises:
            RuntimeError: If there is a cache and gradients are recorded.
            TypeError: If ``x`` differs from the weights in dtype, or something is of another kind.
            ValueError: If shapes do not fit.
        """
        if cache is not None:
            check_instance(KeyValueCache, cache=cache)
        x = self.self_attention_residual(
            x, lambda x: self.self_attention(x, x, x, mask=mask, causal=causal, cache=cache)
        )
        return self.feed_forward_residual(x, self.feed_forward)


class Encoder(nn.Module):
    """A stack of encoder layers.

    Args:
        layers: From the first to the last, each made anew.
        norm: What is applied to the result; a stack of :class:`PreNorm` layers needs one.

    Raises:
        TypeError: If a layer or the norm is a class or no module.

    Example:
        >>> encoder = build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> tokens = torch.tensor([[5, 6, 7], [8, 0, 0]])  # 0 is padding
        >>> x = TokenEmbedding(10, 16)(tokens)
        >>> batch = encoder(x, mask=padding_mask(tokens))
        >>> alone = encoder(x[1:, :1])  # the short sentence by itself ...
        >>> torch.allclose(batch[1:, :1], alone, atol=1e-5)  # ... never noticed its padding
        True
    """

    def __init__(self, layers: Iterable[EncoderLayer], *, norm: nn.Module | None = None) -> None:
        listed = check_modules("layers", layers)
        if norm is not None:
            check_module(norm=norm)
        super().__init__()
        self.layers = nn.ModuleList(listed)
        self.norm = norm

    @undo_on_error
    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        cache: SelfAttentionCache | None = None,
    ) -> Tensor:
        """Apply the layers in turn.

        Args:
            x: Embedded tokens with positions. Shape (B, L, d_model).
            mask: Boolean, True hides a key; usually ``padding_mask(tokens)``. Broadcastable to
                (B, H, L, L), where the last counts all positions so far.
            causal: Also hide later positions, as a language model must.
            cache: What :meth:`new_cache` made. Then ``x`` is what follows the positions of earlier
                calls, and is added to it. Several positions at once need ``causal=True`` as ever.

        Returns:
            Each position in its context. Shape (B, L, d_model).

        Raises:
            RuntimeError: If there is a cache and gradients are recorded.
            TypeError: If ``x`` differs from the weights in dtype, or something is of another kind.
            ValueError: If shapes do not fit, or the cache is of a stack with more or fewer layers,
                or of other rows.
        """
        check_vectors("x", x, None)
        caches: Sequence[KeyValueCache | None] = [None] * len(self.layers)
        if cache is not None:
            check_instance(SelfAttentionCache, cache=cache)
            caches = cache.layers
            if len(caches) != len(self.layers):
                raise ValueError(
                    f"cache must be of this encoder with {len(self.layers)} layers, "
                    f"got one of {len(caches)}"
                )
        for layer, layer_cache in zip(self.layers, caches, strict=True):
            x = layer(x, mask=mask, causal=causal, cache=layer_cache)
        return x if self.norm is None else self.norm(x)

    def new_cache(self) -> SelfAttentionCache:
        """Begin to write, word by word: a cache for one search, which belongs to the caller."""
        return SelfAttentionCache(len(self.layers))
