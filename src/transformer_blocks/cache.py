"""Caches: the keys and values of earlier positions, computed once and reused at every step.

A decoder generates one token at a time, and each new token attends to all earlier ones. Without a
cache, every decoding step would run the whole prefix through the model again. But with a causal
mask no position attends to a later one, so the key and the value of a position do not change when
tokens follow it. A :class:`KeyValueCache` stores them for one attention layer. A decoding step then
projects the new position only; the cost of attention itself still grows with the length of the
prefix.

A stack has one such cache for each layer. A :class:`SelfAttentionCache` holds those of a stack with
self-attention only, as in a decoder-only language model. The decoder layers of an encoder-decoder
model also attend to the encoder's output, the memory, whose keys and values never change during
decoding. A :class:`DecoderCache` therefore holds two caches for each layer: that of self-attention,
which grows, and that of cross-attention, which is computed once and shared by all hypotheses of the
same source.

The modules hold no state of the decoding. The caller creates a cache to decode one batch, passes it
to the stack at each step, and discards it afterwards.

A step that raised an exception or was interrupted can be repeated, because it has two phases.
:meth:`KeyValueCache.write` stores keys and values after the first ``length`` positions of a buffer;
:meth:`KeyValueCache.advance` increases the length, so that they count;
:meth:`KeyValueCache.append` does both. An attention layer advances its cache when its output is
computed. Layers and stacks work on copies of their caches, which share the buffer as long as it has
room, and have a length of their own; at the end of a step, ``update`` takes over the copies. What a
failed step left in a buffer lies beyond the length, and the next step overwrites it. Reordering,
too, first selects the rows of all layers, and then replaces the caches.

In this chapter, N is the batch size during decoding, L the number of new positions, and S that of
all cached ones, the new ones included. A *row* is an index along the batch dimension; in beam
search, there is one row for each hypothesis.

Next: :mod:`transformer_blocks.variants`, parts that replace those of the paper.
"""

from collections.abc import Sequence
from copy import copy
from itertools import groupby
from typing import Annotated, Self

import torch
from torch import Tensor

from transformer_blocks._contracts import Count, HeadVectors, Ids, Mask, Size, checked
from transformer_blocks.fast.caching import append as append_to
from transformer_blocks.fast.caching import drop_empty_mask

Projected = Annotated[Tensor, HeadVectors("N H L d_k")]
Rows = Annotated[Tensor, Ids("M")]


class KeyValueCache:
    """Keys and values of one attention layer, of all positions so far.

    Attributes:
        length: S, the number of cached positions.

    Example:
        >>> import torch
        >>> from transformer_blocks import KeyValueCache, MultiHeadAttention
        >>> attention = MultiHeadAttention(16, num_heads=4)
        >>> x, cache = torch.randn(2, 5, 16), KeyValueCache()
        >>> with torch.no_grad():
        ...     whole = attention(x, x, x, causal=True)
        ...     tokens = x.split(1, dim=1)
        ...     steps = [attention(token, token, token, cache=cache) for token in tokens]
        >>> torch.allclose(torch.cat(steps, dim=1), whole, atol=1e-6)  # as in one full pass
        True
    """

    def __init__(self) -> None:
        self.length = 0
        # After a failed first step, it holds data that `_buffer` ignores.
        self._storage: Tensor | None = None

    @property
    def rows(self) -> int:
        """N, the batch size; 0 if the cache is empty."""
        return 0 if self._buffer is None else self._buffer.shape[0]

    @property
    def _buffer(self) -> Tensor | None:
        """The tensor with keys and values, (N, 2, H, capacity, d_k); None if the cache is empty."""
        return self._storage if self.length else None

    def write(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write the keys and values of new positions after the cached ones.

        They do not count until :meth:`advance` is called; until then, another call overwrites them.

        Args:
            keys: Projected keys of the new positions, of shape (N, H, L, d_k).
            values: Projected values of the new positions, of the same shape.

        Returns:
            All keys and values, including the new ones, each of shape (N, H, S, d_k). Both are
            views of the buffer, as those of :meth:`read` are.

        Raises:
            RuntimeError: If they require gradients, which cannot flow through a cache.
            ValueError: If they do not fit the cached ones.
        """
        if keys.requires_grad or values.requires_grad:
            raise RuntimeError("a cache stores no gradients; decode inside `with torch.no_grad():`")
        buffer, length = self._buffer, self.length
        new = torch.stack((keys, values), dim=1)  # (N, 2, H, L, d_k)
        if buffer is not None:
            self._check_fit(buffer, keys)
            new = append_to(buffer, length, new)
        self._storage = new
        all_keys, all_values = new[..., : length + keys.shape[2], :].unbind(1)
        return all_keys, all_values

    def advance(self, count: int) -> None:
        """Increase the length by a number of positions that were written."""
        self.length += count

    def update(self, step: "KeyValueCache") -> None:
        """Take over the positions of a copy of this cache, to which a step appended its own."""
        vars(self).update(vars(step))

    def __copy__(self) -> Self:
        """Return a cache of the same positions, in the same buffer, with a length of its own.

        Append to one of the two only; to continue a sequence in several ways, use :meth:`reorder`.
        """
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

    @checked
    def append(self, keys: Projected, values: Projected) -> tuple[Tensor, Tensor]:
        """Append the keys and values of new positions to the cached ones.

        Args:
            keys: Projected keys of the new positions, of shape (N, H, L, d_k).
            values: Projected values of the new positions, of the same shape.

        Returns:
            All cached keys and values, including the new ones, as :meth:`read` returns them.

        Raises:
            RuntimeError: If they require gradients, which cannot flow through a cache, or differ in
                device.
            TypeError: If they are not tensors, or differ in dtype.
            ValueError: If they differ in shape, or do not fit the cached ones.
        """
        all_keys, all_values = self.write(keys, values)
        self.advance(keys.shape[2])
        return all_keys, all_values

    def read(self) -> tuple[Tensor, Tensor]:
        """Return all cached keys, and all cached values, each of shape (N, H, S, d_k).

        Both are views of the buffer, which later calls change or replace.

        Raises:
            ValueError: If the cache is empty.
        """
        buffer = self._buffer
        if buffer is None:
            raise ValueError("the cache is empty: there are no keys and values to attend to")
        keys, values = buffer[..., : self.length, :].unbind(1)
        return keys, values

    @checked
    def crop(self, length: Count) -> None:
        """Truncate the cache to its first ``length`` positions, if it has more.

        Args:
            length: The number of positions that remain, counted from the first.

        Raises:
            TypeError: If ``length`` is not an ``int``.
            ValueError: If it is negative.
        """
        self.length = min(length, self.length)

    @checked
    def reorder(self, rows: Rows) -> None:
        """Reorder the cache along the batch dimension: row i becomes a copy of row ``rows[i]``.

        Args:
            rows: Indices into the batch, integers, of shape (M,). An index may occur several times,
                or not at all.

        Raises:
            IndexError: If an index is out of range.
            TypeError: If ``rows`` is not a tensor of integers.
            ValueError: If ``rows`` has another shape.
        """
        check_rows(rows, self.rows)
        self._storage = self._select(rows)._storage

    def _select(self, rows: Tensor) -> "KeyValueCache":
        """Return another cache, with the rows of these indices, of shape (M,).

        If these are 0..M-1, the result is a view of the buffer, not a copy.
        """
        cache, buffer = copy(self), self._buffer
        if buffer is not None:
            is_prefix = rows.tolist() == list(range(len(rows)))
            rows = rows.to(buffer.device)
            cache._storage = buffer[: len(rows)] if is_prefix else buffer.index_select(0, rows)
        return cache

    def _check_fit(self, buffer: Tensor, keys: Tensor) -> None:
        """Raise unless new keys have batch size, heads, size, dtype and device of the buffer."""
        rows, _, heads, _, d_k = buffer.shape
        same = keys.dtype == buffer.dtype and keys.device == buffer.device
        if not same or keys.shape != (rows, heads, keys.shape[2], d_k):
            raise ValueError(
                f"appended keys and values must have shape ({rows}, {heads}, L, {d_k}), and be "
                f"{buffer.dtype} on {buffer.device}, got {tuple(keys.shape)}, {keys.dtype} on "
                f"{keys.device}"
            )


class StackCache:
    """Base class of the caches of a stack: one for each layer, all of the same length.

    Args:
        num_layers: The number of layers of the stack.

    Attributes:
        layers: Copies of the caches of the layers' self-attention, from the first layer to the
            last, in the same buffers. A change of a copy counts once :meth:`update` takes over all
            of them.
    """

    def __init__(self, num_layers: int) -> None:
        self._layers = [KeyValueCache() for _ in range(num_layers)]

    @property
    def layers(self) -> list[KeyValueCache]:  # noqa: D102
        return [copy(cache) for cache in self._layers]

    def update(self, layers: Sequence[KeyValueCache]) -> None:
        """Take over the copies of all layers, to which a step of the stack appended its positions.

        Raises:
            ValueError: If they differ in length.
        """
        if any(cache.length != layers[0].length for cache in layers):
            raise ValueError("the layers of a cache must have one length")
        self._layers = [*layers]

    @property
    def length(self) -> int:
        """The number of cached positions, which is also the position of the next token, from 0."""
        return self._layers[0].length if self._layers else 0

    @property
    def rows(self) -> int:
        """N, the batch size; 0 if the cache is empty."""
        return self._layers[0].rows if self._layers else 0

    def layers_for(self, x: Tensor, num_layers: int) -> list[KeyValueCache]:
        """Return the copies of the layers' caches to which a step of a stack appends.

        Args:
            x: Input of the stack, of shape (N, L, d_model).
            num_layers: The number of layers of the stack.

        Raises:
            ValueError: If the cache has another number of layers or another batch size.
        """
        layers = self.layers
        if len(layers) != num_layers:
            raise ValueError(
                f"cache must be of this stack with {num_layers} layers, got one of {len(layers)}"
            )
        if self.rows not in (0, x.shape[0]):
            raise ValueError(
                f"x must have the cache's batch size {self.rows}, got {tuple(x.shape)}"
            )
        return layers

    @checked
    def crop(self, length: Count) -> None:
        """Truncate all layers to their first ``length`` positions, if they have more.

        Args:
            length: The number of positions that remain, counted from the first.

        Raises:
            TypeError: If ``length`` is not an ``int``.
            ValueError: If it is negative.
        """
        layers = self.layers
        for cache in layers:
            cache.crop(length)
        self.update(layers)


class SelfAttentionCache(StackCache):
    """Caches of a stack with self-attention only, one per layer, for autoregressive decoding.

    It is the cache of a *decoder-only model*, such as GPT. The layers of such a model have
    self-attention and a feed-forward network, but no cross-attention: they are an :class:`Encoder`
    that is called with ``causal=True``. :meth:`Encoder.new_cache` creates one. All rows have the
    same length; prompts of unequal length are padded at the left
    (:meth:`~transformer_blocks.generation.IncrementalDecoder.prefill`).

    Args:
        num_layers: The number of layers of the stack.

    Attributes:
        layers: Copies of the caches of the layers' self-attention, from the first layer to the
            last.

    Example:
        >>> import torch
        >>> from transformer_blocks import build_encoder
        >>> encoder = build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> x, cache = torch.randn(1, 5, 16), encoder.new_cache()
        >>> with torch.no_grad():
        ...     # Prefill in one pass, then decode token by token.
        ...     prompt = encoder(x[:, :3], causal=True, cache=cache)
        ...     steps = [encoder(token, causal=True, cache=cache) for token in x[:, 3:].split(1, 1)]
        ...     whole = encoder(x, causal=True)
        >>> torch.allclose(torch.cat((prompt, *steps), dim=1), whole, atol=1e-5)
        True
    """

    @checked
    def __init__(self, num_layers: Size) -> None:
        super().__init__(num_layers)

    @checked
    def reorder(self, rows: Rows) -> None:
        """Reorder all layers along the batch dimension: row i becomes a copy of row ``rows[i]``.

        Args:
            rows: Indices into the batch, integers, of shape (M,). An index may occur several times,
                or not at all.

        Raises:
            IndexError: If an index is out of range.
            TypeError: If ``rows`` is not a tensor of integers.
            ValueError: If ``rows`` has another shape.
        """
        check_rows(rows, self.rows)
        self._layers = [cache._select(rows) for cache in self._layers]


class DecoderCache(StackCache):
    """Caches of a decoder, two per layer; :meth:`Decoder.new_cache` creates one.

    At first, the batch has one row for each source. Where :meth:`reorder` repeats a row, several
    rows decode the same source, as the hypotheses of a beam search do. As long as every source has
    the same number of adjacent rows, these share one copy of its keys and values. Otherwise, each
    row gets a copy; once rows of one source have their own copies, they keep them.

    Args:
        memory: For each layer, a cache with the keys and values of the memory, the encoder's
            output.
        memory_mask: Boolean mask; True hides a position of the memory. Shape
            (B|1, H|1, 1, S).

    Attributes:
        layers: Copies of the caches of the layers' self-attention, from the first layer to the
            last.
        memory: The cache of each layer's cross-attention. A decoding step does not change it; a
            reordering does.
        memory_mask: The mask of the memory; None if it masked no position when it was passed.

    Raises:
        TypeError: If ``memory`` holds anything but caches, or ``memory_mask`` is not boolean.
        ValueError: If the caches of ``memory`` differ in length.

    Example:
        >>> import torch
        >>> from transformer_blocks import build_decoder
        >>> decoder = build_decoder(num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> x, memory = torch.randn(1, 5, 16), torch.randn(1, 7, 16)
        >>> with torch.no_grad():
        ...     cache = decoder.new_cache(memory)
        ...     steps = [decoder(token, cache=cache) for token in x.split(1, dim=1)]
        ...     whole = decoder(x, memory)
        >>> torch.allclose(torch.cat(steps, dim=1), whole, atol=1e-5)
        True
    """

    @checked
    def __init__(self, memory: Sequence[KeyValueCache], *, memory_mask: Mask | None = None) -> None:
        if any(cache.length != memory[0].length for cache in memory):
            raise ValueError("memory must hold caches of one length")
        super().__init__(len(memory))
        self.memory = list(memory)
        self.memory_mask = drop_empty_mask(memory_mask)
        self._rows_per_memory = 1  # rows of the batch that share one row of the memory

    @property
    def rows(self) -> int:
        """N, the batch size."""
        return self.memory[0].rows * self._rows_per_memory if self.memory else 0

    @checked
    def reorder(self, rows: Rows) -> None:
        """Reorder all caches along the batch dimension: row i becomes a copy of row ``rows[i]``.

        Beam search does so after each step, and to remove finished sequences from the batch.

        Args:
            rows: Indices into the batch, integers, of shape (M,). An index may occur several times,
                or not at all.

        Raises:
            IndexError: If an index is out of range.
            TypeError: If ``rows`` is not a tensor of integers.
            ValueError: If ``rows`` has another shape.
        """
        check_rows(rows, self.rows)
        sources, rows_per_memory = _group([row // self._rows_per_memory for row in rows.tolist()])
        layers = [cache._select(rows) for cache in self._layers]
        memory = [cache._select(sources) for cache in self.memory]
        mask = self.memory_mask
        if mask is not None and mask.shape[0] > 1:
            mask = mask[sources.to(mask.device)]
        # At the end, so that an error above, such as a lack of memory, changes nothing.
        self._layers, self.memory, self.memory_mask = layers, memory, mask
        self._rows_per_memory = rows_per_memory


def check_rows(rows: Tensor, count: int) -> None:
    """Raise unless all indices are in 0..count-1; an empty cache has no rows, and accepts any.

    Raises:
        IndexError: If one is not.
    """
    for row in rows.tolist():
        if count and not 0 <= row < count:
            raise IndexError(f"rows must be in 0..{count - 1}, got {row}")


def _group(sources: list[int]) -> tuple[Tensor, int]:
    """Group adjacent equal indices if all groups have the same size.

    Args:
        sources: Indices of sources, one per row.

    Returns:
        One index per group and the size of a group, for example [2, 5] and 2 for [2, 2, 5, 5]; or
        all indices and 1, if the groups differ in size.
    """
    groups = [(source, len(list(rows))) for source, rows in groupby(sources)]
    sizes = {size for _, size in groups}
    if len(sizes) == 1:
        return torch.tensor([source for source, _ in groups], device="cpu"), sizes.pop()
    return torch.tensor(sources, dtype=torch.int64, device="cpu"), 1
