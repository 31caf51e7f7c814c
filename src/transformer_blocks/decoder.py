"""The decoder: writes a sentence while reading another.

A decoder layer has one part more than an encoder layer. First the words written so far look at each
other, never ahead; then each looks into the encoded source, the *memory*, which is where words of
the translation meet words of the original; then each thinks on its own (section 3.1 and the right
half of figure 1).

In training all positions of the known translation are computed at once, each from the words before
it: that is what the causal mask is for. In writing there is one new position at a time, and a cache
holds what the earlier ones have to offer; :mod:`transformer_blocks.cache` tells how, later.

Next chapter: :mod:`transformer_blocks.encoder_decoder`, both halves together.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from torch import Tensor, nn

from transformer_blocks._checks import (
    check_factory,
    check_instance,
    check_module,
    check_modules,
    check_tensor,
    check_vectors,
    refuse,
)
from transformer_blocks.cache import DecoderCache, KeyValueCache, undo_on_error
from transformer_blocks.masks import check_mask
from transformer_blocks.multi_head import MultiHeadAttention
from transformer_blocks.residual import Residual, new_residual


class DecoderLayer(nn.Module):
    """One layer: causal self-attention, cross-attention to the source, then feed-forward.

    Args:
        self_attention: How positions of the target look at each other.
        cross_attention: How they look into the source.
        feed_forward: What each does with what it found; keeps the shape (B, L, d_model).
        residual: Makes the connection around each of the three; called once for each.

    Raises:
        TypeError: If a part is a class or no module, or ``residual`` makes no :class:`Residual`.

    Example:
        >>> layer = DecoderLayer(
        ...     MultiHeadAttention(16, 4),
        ...     MultiHeadAttention(16, 4),
        ...     FeedForward(16, 64),
        ...     residual=lambda: PreNorm(16),
        ... ).eval()
        >>> x, memory = torch.randn(1, 5, 16), torch.randn(1, 7, 16)
        >>> before = layer(x, memory)
        >>> x[:, -1] += 1.0  # rewrite the last word ...
        >>> torch.equal(before[:, :-1], layer(x, memory)[:, :-1])  # ... nobody earlier notices
        True
    """

    def __init__(
        self,
        self_attention: MultiHeadAttention,
        cross_attention: MultiHeadAttention,
        feed_forward: nn.Module,
        *,
        residual: Callable[[], Residual],
    ) -> None:
        check_module(
            self_attention=self_attention,
            cross_attention=cross_attention,
            feed_forward=feed_forward,
        )
        check_factory(residual=residual)
        super().__init__()
        self.self_attention = self_attention
        self.self_attention_residual = new_residual(residual)
        self.cross_attention = cross_attention
        self.cross_attention_residual = new_residual(residual)
        self.feed_forward = feed_forward
        self.feed_forward_residual = new_residual(residual)

    @undo_on_error
    def forward(
        self,
        x: Tensor,
        memory: Tensor | KeyValueCache,
        *,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        causal: bool = True,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Let the target look at itself, then at the source.

        Args:
            x: The target. Shape (B, L, d_model).
            memory: The encoded source, shape (B, S, key width of the cross-attention), or its keys
                and values, if the cross-attention has projected them already.
            mask: Hides target positions from target positions; broadcastable to (B, H, L, L), where
                the last counts all positions so far.
            memory_mask: Hides source positions, usually their padding; to (B, H, 1, S).
            causal: Whether a target position is kept from seeing later ones.
            cache: Keys and values of the target positions before ``x``; those of ``x`` are added.

        Returns:
            Shape (B, L, d_model).

        Raises:
            RuntimeError: If there is a cache and gradients are recorded.
            TypeError: If ``x`` or ``memory`` differs from the weights in dtype, or something is of
                another kind.
            ValueError: If shapes do not fit.
        """
        if cache is not None:
            check_instance(KeyValueCache, cache=cache)
        if not isinstance(memory, KeyValueCache):
            self._check_memory(x, memory, memory_mask)
        x = self.self_attention_residual(
            x, lambda x: self.self_attention(x, x, x, mask=mask, causal=causal, cache=cache)
        )
        x = self.cross_attention_residual(x, lambda x: self._cross_attend(x, memory, memory_mask))
        return self.feed_forward_residual(x, self.feed_forward)

    def _check_memory(self, x: Tensor, memory: Tensor, mask: Tensor | None) -> None:
        """Raise unless memory and mask are what the cross-attention takes for this target."""
        if not isinstance(memory, Tensor):
            refuse("memory", "a tensor or a KeyValueCache", memory)
        check_tensor("x", x)
        attention = self.cross_attention
        if isinstance(attention, MultiHeadAttention):
            check_memory(attention, memory)
            if mask is not None:
                batch, keys, _ = memory.shape
                check_mask(
                    mask,
                    batch=batch,
                    heads=attention.num_heads,
                    queries=x.shape[-2],
                    keys=keys,
                    device=memory.device,
                    name="memory_mask",
                )

    def _cross_attend(
        self, x: Tensor, memory: Tensor | KeyValueCache, memory_mask: Tensor | None
    ) -> Tensor:
        if isinstance(memory, Tensor):
            return self.cross_attention(x, memory, memory, mask=memory_mask)
        # Several rows may write one sentence. As nothing here depends on the order of queries,
        # they can ask together, as if they were one longer row: one copy of the memory will do.
        together = x if x.shape[0] == memory.rows else x.reshape(memory.rows, -1, x.shape[-1])
        return self.cross_attention(together, mask=memory_mask, cache=memory).view_as(x)


class Decoder(nn.Module):
    """A stack of decoder layers, all of which read the same memory.

    Padding of the target stands at its end, where causality hides it from every real word already;
    ``mask`` is needed only for other things to hide.

    Args:
        layers: From the first to the last, each made anew.
        norm: What is applied to the result; a stack of :class:`PreNorm` layers needs one.

    Raises:
        TypeError: If a layer or the norm is a class or no module.

    Example:
        >>> decoder = build_decoder(num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> x, memory = torch.randn(1, 5, 16), torch.randn(1, 7, 16)
        >>> whole = decoder(x, memory)
        >>> begun = decoder(x[:, :3], memory)  # a translation of which three words are written
        >>> torch.allclose(whole[:, :3], begun, atol=1e-5)
        True
    """

    def __init__(self, layers: Iterable[DecoderLayer], *, norm: nn.Module | None = None) -> None:
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
        memory: Tensor | None = None,
        *,
        mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        causal: bool = True,
        cache: DecoderCache | None = None,
    ) -> Tensor:
        """Apply the layers in turn.

        Args:
            x: Embedded target tokens with positions. Shape (B, L, d_model).
            memory: What the encoder made of the source. Shape (B, S, d_model).
            mask: Hides target positions, besides the causal rule; broadcastable to (B, H, L, L),
                where the last counts all positions so far.
            memory_mask: Hides source positions, usually ``padding_mask(source)``.
            causal: Whether a target position is kept from seeing later ones.
            cache: What :meth:`new_cache` made, in place of ``memory`` and ``memory_mask``. Then
                ``x`` is what follows the positions of earlier calls, and is added to it.

        Returns:
            Each target position, ready to predict the next word. Shape (B, L, d_model).

        Raises:
            RuntimeError: If there is a cache and gradients are recorded.
            TypeError: If ``x`` or ``memory`` differs from the weights in dtype, or something is of
                another kind.
            ValueError: If shapes do not fit, or both a memory and a cache are given, or neither.
        """
        if cache is not None:
            check_instance(DecoderCache, cache=cache)
        if (memory is None) == (cache is None) or (cache is not None and memory_mask is not None):
            raise ValueError(
                "memory must be given with its memory_mask, or instead a cache that holds both"
            )
        check_vectors("x", x, None)
        memories: Sequence[Tensor | KeyValueCache | None] = [memory] * len(self.layers)
        caches: Sequence[KeyValueCache | None] = [None] * len(self.layers)
        if cache is not None:
            memories, caches, memory_mask = cache.memory, cache.layers, cache.memory_mask
            if len(caches) != len(self.layers):
                raise ValueError(
                    f"cache must be of this decoder with {len(self.layers)} layers, "
                    f"got one of {len(caches)}"
                )
            if x.shape[0] != cache.rows:
                raise ValueError(f"x must have the cache's {cache.rows} rows, got {tuple(x.shape)}")
        for layer, layer_memory, layer_cache in zip(self.layers, memories, caches, strict=True):
            x = layer(
                x,
                layer_memory,
                mask=mask,
                memory_mask=memory_mask,
                causal=causal,
                cache=layer_cache,
            )
        return x if self.norm is None else self.norm(x)

    def new_cache(self, memory: Tensor, *, memory_mask: Tensor | None = None) -> DecoderCache:
        """Begin to write: project what every later step will look up in the source.

        Args:
            memory: What the encoder made of the source. Shape (B, S, d_model).
            memory_mask: Hides source positions; broadcastable to (B, H, 1, S).

        Returns:
            A cache with a row for each sentence, for one search; it belongs to the caller.

        Raises:
            RuntimeError: If gradients are recorded.
            TypeError: If ``memory`` differs from the weights in dtype, or ``memory_mask`` is not
                boolean.
            ValueError: If shapes do not fit.
        """
        layers: Sequence[Any] = list(self.layers)
        for layer in layers:
            check_memory(layer.cross_attention, memory)
        if memory_mask is not None:
            batch, keys = memory.shape[:2]
            heads = layers[0].cross_attention.num_heads
            check_mask(
                memory_mask,
                batch=batch,
                heads=heads,
                queries=1,
                keys=keys,
                device=memory.device,
                name="memory_mask",
            )
            if memory_mask.dim() == 2:
                memory_mask = memory_mask[None, None]  # the same for all sentences and heads
        caches = [KeyValueCache() for _ in layers]
        for layer, cache in zip(layers, caches, strict=True):
            cache.append(*layer.cross_attention.project(memory, memory))
        return DecoderCache(caches, memory_mask=memory_mask)


def check_memory(attention: MultiHeadAttention, memory: Tensor) -> None:
    """Raise unless ``memory`` is what a cross-attention takes for keys and values."""
    projection = attention.key_projection
    width = getattr(projection, "in_features", None)
    check_vectors("memory", memory, width, attention, projection, leading="BS")
