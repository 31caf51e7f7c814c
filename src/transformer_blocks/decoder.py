"""The decoder: causal self-attention, cross-attention, feed-forward (right half of figure 1).

A decoder layer has one sublayer more than an encoder layer (section 3.1). The first is
self-attention with a causal mask: each position of the target attends to itself and to earlier
ones. The second is cross-attention: each position of the target attends to all positions of the
encoder's output, the *memory*; only here does the target depend on the source. The third is the
position-wise feed-forward network.

In training, the whole target is known. The decoder is given the target's own tokens as its input
(*teacher forcing*), shifted right by one (figure 1): it begins with a start token, so that position
i reads the tokens before i and predicts token i. The outputs of all positions are computed in one
pass; the causal mask ensures that each depends on no later token. In autoregressive decoding, there
is one new position at a time. The argument ``cache`` is for that (:mod:`transformer_blocks.cache`;
skip it at first reading).

Next: :mod:`transformer_blocks.encoder_decoder`, encoder and decoder together.
"""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any

from torch import Tensor, nn

from transformer_blocks._contracts import Factory, Module, checked
from transformer_blocks.cache import DecoderCache, KeyValueCache
from transformer_blocks.multi_head import MultiHeadAttention
from transformer_blocks.residual import Residual, new_residual


class DecoderLayer(nn.Module):
    """One decoder layer: causal self-attention, cross-attention, then a feed-forward network.

    Args:
        self_attention: Attention layer of the self-attention of the target.
        cross_attention: Attention layer of the cross-attention from the target to the memory. It
            has no rotary positional encoding, ALiBi or relative position bias: between positions
            of two sequences, distance is not defined.
        feed_forward: Network that is applied to each position; its input and output have the shape
            (B, L, d_model).
        residual: Function without arguments that returns a new residual connection, for example
            ``lambda: PostNorm(512)``. It is called once for each sublayer.

    Raises:
        TypeError: If a part is not a module, or ``residual`` does not return a :class:`Residual`.
        ValueError: If the cross-attention uses positions.

    Example:
        >>> import torch
        >>> from transformer_blocks import DecoderLayer, FeedForward, MultiHeadAttention, PreNorm
        >>> layer = DecoderLayer(
        ...     MultiHeadAttention(16, 4),
        ...     MultiHeadAttention(16, 4),
        ...     FeedForward(16, 64),
        ...     residual=lambda: PreNorm(16),
        ... ).eval()
        >>> x, memory = torch.randn(1, 5, 16), torch.randn(1, 7, 16)
        >>> before = layer(x, memory)
        >>> x[:, -1] += 1.0  # change the last token ...
        >>> torch.equal(before[:, :-1], layer(x, memory)[:, :-1])  # ... no earlier output changes
        True
    """

    @checked
    def __init__(
        self,
        self_attention: Module[MultiHeadAttention],
        cross_attention: Module[MultiHeadAttention],
        feed_forward: nn.Module,
        *,
        residual: Factory[Callable[[], Residual]],
    ) -> None:
        function = getattr(cross_attention, "attention_function", None)
        for part in (*cross_attention.modules(), function):
            if getattr(part, "uses_positions", False):
                raise ValueError(f"cross_attention must use no positions, got {part}")
        super().__init__()
        self.self_attention = self_attention
        self.self_attention_residual = new_residual(residual)
        self.cross_attention = cross_attention
        self.cross_attention_residual = new_residual(residual)
        self.feed_forward = feed_forward
        self.feed_forward_residual = new_residual(residual)

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
        """Apply the three sublayers, each with its residual connection.

        Args:
            x: Target sequence, of shape (N, L, d_model). N is B; with a cached memory, it may be a
                multiple of B, as in beam search (:class:`~transformer_blocks.DecoderCache`).
            memory: The encoder's output, of shape (B, S, ``key_width`` of the cross-attention); or
                a cache that holds its keys and values, projected by this layer's cross-attention.
            mask: Boolean mask of the self-attention; **True hides** a key from a query.
                Shape (L, L') or (N|1, H|1, L|1, L'), where L' counts the positions in the cache and
                those of ``x``.
            memory_mask: Boolean mask of the cross-attention, usually of the source's padding.
                Shape (L, S) or (B|1, H|1, L|1, S).
            causal: Also mask future positions of the target.
            cache: Keys and values of the target positions before ``x``; those of ``x`` are
                appended.

        Returns:
            The transformed target sequence, of shape (N, L, d_model).

        Raises:
            RuntimeError: If there is a cache and gradients are recorded.
            TypeError: If ``x`` or ``memory`` differs from the weights in dtype, or an argument is
                of the wrong type.
            ValueError: If shapes do not fit.
        """
        step: Any = copy(cache)
        x = self.self_attention_residual(
            x, lambda x: self.self_attention(x, x, x, mask=mask, causal=causal, cache=step)
        )
        x = self.cross_attention_residual(x, lambda x: self._cross_attend(x, memory, memory_mask))
        x = self.feed_forward_residual(x, self.feed_forward)
        if cache is not None:
            cache.update(step)  # at the end: an interrupted step can be repeated
        return x

    def _cross_attend(
        self, x: Tensor, memory: Tensor | KeyValueCache, memory_mask: Tensor | None
    ) -> Tensor:
        """Attend from the target to the memory, or to its cached keys and values."""
        if isinstance(memory, Tensor):
            return self.cross_attention(x, memory, memory, mask=memory_mask)
        # In beam search, the N / B hypotheses of a source share its keys and values. No query
        # affects another, so theirs are laid end to end: (N, L, d) to (B, N / B * L, d).
        rows = memory.read()[0].shape[0]
        queries = x if x.shape[0] == rows else x.reshape(rows, -1, x.shape[-1])
        return self.cross_attention(queries, cache=memory, mask=memory_mask).view_as(x)


class Decoder(nn.Module):
    """A stack of decoder layers, all of which attend to the same memory.

    Padding of the target needs no mask: it follows the real tokens, so the causal mask hides it
    from them.

    Args:
        layers: The layers, from the first to the last, each with parameters of its own.
        norm: Normalisation of the last layer's output; none if not given. A stack of layers with
            :class:`PreNorm` needs one, since its residual stream is never normalised; a stack of
            layers with :class:`PostNorm` does not.

    Raises:
        TypeError: If a layer or the norm is not a module.

    Example:
        >>> import torch
        >>> from transformer_blocks import build_decoder
        >>> decoder = build_decoder(num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> x, memory = torch.randn(1, 5, 16), torch.randn(1, 7, 16)
        >>> whole = decoder(x, memory)
        >>> prefix = decoder(x[:, :3], memory)  # the target up to its third token
        >>> torch.allclose(whole[:, :3], prefix, atol=1e-5)  # does not depend on the rest
        True
    """

    @checked
    def __init__(self, layers: Sequence[nn.Module], *, norm: nn.Module | None = None) -> None:
        super().__init__()
        self.layers: Any = nn.ModuleList(layers)
        self.norm = norm

    @checked
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
        """Apply the layers in turn, then the final normalisation, if there is one.

        Args:
            x: Embedded target tokens with positions, of shape (B, L, d_model).
            memory: The encoder's output, of shape (B, S, d_model).
            mask: Boolean mask of the self-attention, besides the causal mask; **True hides** a key
                from a query. Shape (L, L') or (B|1, H|1, L|1, L'), where L' counts the positions in
                the cache and those of ``x``.
            memory_mask: Boolean mask of the cross-attention, usually ``padding_mask(source)``.
                Shape (L, S) or (B|1, H|1, L|1, S).
            causal: Mask future positions of the target.
            cache: What :meth:`new_cache` returned, in place of ``memory`` and ``memory_mask``.
                ``x`` then holds the positions that follow those of earlier calls, and is appended
                to them.

        Returns:
            The hidden state of each target position, from which the next token is predicted, of
            shape (B, L, d_model).

        Raises:
            RuntimeError: If there is a cache and gradients are recorded.
            TypeError: If ``x`` or ``memory`` differs from the weights in dtype, or an argument is
                of the wrong type.
            ValueError: If shapes do not fit, or both a memory and a cache are given, or neither.
        """
        if (memory is None) == (cache is None) or (cache is not None and memory_mask is not None):
            raise ValueError(
                "memory must be given with its memory_mask, or instead a cache that holds both"
            )
        count = len(self.layers)
        memories = [memory] * count if cache is None else cache.memory
        caches: Any = [None] * count if cache is None else cache.layers_for(x, count)
        masks = {"mask": mask, "memory_mask": memory_mask if cache is None else cache.memory_mask}
        for layer, layer_memory, layer_cache in zip(self.layers, memories, caches, strict=True):
            x = layer(x, layer_memory, **masks, causal=causal, cache=layer_cache)
        x = x if self.norm is None else self.norm(x)
        if cache is not None:
            cache.update(caches)  # at the end: an interrupted step can be repeated
        return x

    def new_cache(self, memory: Tensor, *, memory_mask: Tensor | None = None) -> DecoderCache:
        """Create a cache that holds the keys and values of the memory, projected for each layer.

        Args:
            memory: The encoder's output, of shape (B, S, d_model).
            memory_mask: Boolean mask; **True hides** a position of the memory. Shape
                (B|1, H|1, 1, S).

        Returns:
            A cache for decoding one batch of B sequences; the caller passes it to each call.

        Raises:
            RuntimeError: If gradients are recorded.
            TypeError: If ``memory`` differs from the weights in dtype, or ``memory_mask`` is not
                boolean.
            ValueError: If shapes do not fit.
        """
        caches = [KeyValueCache() for _ in self.layers]
        for layer, cache in zip(self.layers, caches, strict=True):
            cache.append(*layer.cross_attention.project(memory, memory))
        if memory_mask is not None and memory_mask.dim() == 2:
            memory_mask = memory_mask[None, None]  # the same for all sequences and heads
        return DecoderCache(caches, memory_mask=memory_mask)
