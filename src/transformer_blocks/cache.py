"""Caches: what decoding has computed once and need not compute again.

A decoder writes one word at a time, and each new word looks at all earlier ones. Without a memory
the model would read the whole beginning again for every word. But nobody looks ahead: an earlier
word never learns of a later one, so its key and its value, once projected, stay the same at every
later step. A :class:`KeyValueCache` keeps them. A step then projects one new position, and only
attention itself still grows with what is written.

A stack has such a memory for each of its layers: an :class:`SelfAttentionCache`, for an encoder that
writes, as language models do. For a decoder there is also the source, which never changes at all. A
:class:`DecoderCache` holds two of them for each layer: one of the past, which grows, and one of the
source, which is projected once and shared by all rows that write the same sentence.

State belongs to the caller: a cache is made for one search, handed to the modules at each step, and
dropped afterwards. The modules themselves remember nothing. A step that raises an exception, or is
interrupted, leaves the caches of all layers at the length they had: it can be repeated. Reordered
rows cannot be put back; if that is interrupted, the cache refuses to be used.

Next chapter: :mod:`transformer_blocks.variants.rotary`, positions as today's models know them.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import ParamSpec

import torch
from torch import Tensor

from transformer_blocks._checks import (
    check_boolean,
    check_instance,
    check_integer,
    check_size,
    check_tensor,
    refuse,
)

FIRST_ROOM = 16  # positions that a cache makes room for when it first grows

Inputs = ParamSpec("Inputs")


class KeyValueCache:
    """The keys and values that one attention layer has projected so far.

    Example:
        >>> attention = MultiHeadAttention(16, num_heads=4)
        >>> x, cache = torch.randn(2, 5, 16), KeyValueCache()
        >>> with torch.no_grad():
        ...     whole = attention(x, x, x, causal=True)
        ...     words = x.split(1, dim=1)
        ...     steps = [attention(word, word, word, cache=cache) for word in words]
        >>> torch.allclose(torch.cat(steps, dim=1), whole, atol=1e-6)  # or all at once
        True
    """

    def __init__(self) -> None:
        self._length = 0
        self._buffer: Tensor | None = None  # keys and values: (N, 2, H, room, d_k)
        self._is_whole = True  # False while rows are reordered

    @property
    def length(self) -> int:
        """S, the number of positions that are kept."""
        return self._length

    @property
    def rows(self) -> int:
        """N, the number of rows; 0 while nothing is kept."""
        return 0 if self._buffer is None else self._buffer.shape[0]

    def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Keep the keys and values of new positions, behind those of the earlier ones.

        Args:
            keys: Shape (N, H, L, d_k).
            values: Of the same shape.

        Returns:
            All that are kept now, as :meth:`read` does.

        Raises:
            RuntimeError: If they carry gradients, which a cache cannot keep.
            TypeError: If they are no tensors, or differ in dtype.
            ValueError: If they differ in shape or device, or do not fit what is kept already.
        """
        check_tensor("keys", keys)
        check_tensor("values", values)
        if keys.requires_grad or values.requires_grad:
            raise RuntimeError("a cache keeps no gradients; decode inside `with torch.no_grad():`")
        if keys.dim() != 4 or keys.shape != values.shape:
            raise ValueError(
                "keys and values must have one shape (N, H, L, d_k), "
                f"got {tuple(keys.shape)} and {tuple(values.shape)}"
            )
        if keys.dtype != values.dtype:
            raise TypeError(
                f"keys and values must have one dtype, got {keys.dtype} and {values.dtype}"
            )
        if keys.device != values.device:
            raise ValueError(
                f"keys and values must be on one device, got {keys.device} and {values.device}"
            )
        self._check_whole()
        new, end = torch.stack((keys, values), dim=1), self._length + keys.shape[2]
        if self._buffer is None:
            self._buffer = new
        elif torch.compiler.is_exporting():  # sizes are symbols, and cannot be compared
            self._buffer = torch.cat((self._buffer[..., : self._length, :], new), dim=3)
        else:
            self._check(self._buffer, keys)
            self._make_room(self._buffer, end)[..., self._length : end, :] = new
        self._length = end
        return self.read()

    def read(self) -> tuple[Tensor, Tensor]:
        """Return all keys so far, and all values, each of shape (N, H, S, d_k).

        Both are views: what is added or selected later changes them.

        Raises:
            ValueError: If nothing was ever added.
        """
        if self._buffer is None:
            raise ValueError("the cache is empty: there are no keys and values to look up")
        self._check_whole()
        keys, values = self._buffer[..., : self._length, :].unbind(1)
        return keys, values

    @property
    def buffer(self) -> Tensor | None:
        """The tensor that keeps them, (N, 2, H, room, d_k), with room for more; None if empty."""
        self._check_whole()
        return self._buffer

    def reserve(self, count: int) -> Tensor:
        """Count more positions as kept, which the caller fills in.

        Args:
            count: How many.

        Returns:
            The :attr:`buffer`, in which they are the last before :attr:`length`. It is never full:
            to a compiler, a full one is another case.

        Raises:
            ValueError: If nothing is kept yet.
        """
        check_size(count=count)
        if self._buffer is None:
            raise ValueError("the cache is empty: its first keys and values must be added")
        buffer = self._make_room(self._buffer, self._length + count + 1)
        self._length += count
        return buffer

    def crop(self, length: int) -> None:
        """Remove the positions from number ``length`` on; with fewer kept, nothing happens.

        Args:
            length: How many positions to keep, from the first.

        Raises:
            TypeError: If ``length`` is not an ``int``.
            ValueError: If it is negative.
        """
        check_integer(length=length)
        if length < 0:
            raise ValueError(f"length must be at least 0, got length={length}")
        if length < self._length:
            self._length = length
            if length == 0:
                self._buffer = None

    def reorder(self, rows: Tensor) -> None:
        """Go on with these rows only, in this order.

        A row that keeps its place is not copied, unless there are more rows than before.

        Args:
            rows: Row numbers, int64; one may be named twice, or not at all. Shape (M,).

        Raises:
            IndexError: If there is no such row.
            TypeError: If ``rows`` is of another dtype.
            ValueError: If it has another shape.
        """
        _check_rows(rows)
        if self._buffer is None:
            return
        _check_range(rows, self.rows)
        with _reordering([self]):
            self._reorder(rows)

    def _reorder(self, rows: Tensor) -> None:
        if self._buffer is None:
            return
        device = self._buffer.device
        if len(rows) > self.rows:
            self._buffer = self._buffer[rows.to(device)]
            return
        moved = (rows != torch.arange(len(rows), device=rows.device)).nonzero().flatten()
        if len(moved):
            kept = self._buffer[..., : self._length, :]
            kept.index_copy_(0, moved.to(device), kept.index_select(0, rows[moved].to(device)))
        self._buffer = self._buffer[: len(rows)]

    def _check_whole(self) -> None:
        """Raise if rows were reordered and that did not end."""
        if not self._is_whole:
            raise RuntimeError(
                "the cache was interrupted while its rows were reordered; begin the search again"
            )

    def _check(self, buffer: Tensor, new: Tensor) -> None:
        """Raise unless keys that are to be added fit what is kept."""
        rows, _, heads, _, width = buffer.shape
        if new.shape != (rows, heads, new.shape[2], width) or new.dtype != buffer.dtype:
            raise ValueError(
                f"what is added must have shape {(rows, heads, 'L', width)} and dtype "
                f"{buffer.dtype}, got {tuple(new.shape)} and {new.dtype}"
            )

    def _make_room(self, buffer: Tensor, positions: int) -> Tensor:
        """Give back the buffer, or one at least half as long again if it is too short."""
        *outer, room, width = buffer.shape
        if positions > room:
            wider = buffer.new_empty(*outer, max(positions, room + room // 2, FIRST_ROOM), width)
            wider[..., : self._length, :] = buffer[..., : self._length, :]
            self._buffer = buffer = wider
        return buffer


class SelfAttentionCache:
    """What a causal encoder remembers while it writes; :meth:`Encoder.new_cache` makes one.

    Args:
        num_layers: Of the encoder.

    Example:
        >>> encoder = build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> x, cache = torch.randn(1, 5, 16), encoder.new_cache()
        >>> with torch.no_grad():
        ...     first = encoder(x[:, :3], causal=True, cache=cache)  # a beginning at once ...
        ...     steps = [encoder(word, causal=True, cache=cache) for word in x[:, 3:].split(1, 1)]
        ...     whole = encoder(x, causal=True)  # ... then word by word
        >>> torch.allclose(torch.cat((first, *steps), dim=1), whole, atol=1e-5)
        True
    """

    def __init__(self, num_layers: int) -> None:
        check_size(num_layers=num_layers)
        self.layers = [KeyValueCache() for _ in range(num_layers)]

    @property
    def length(self) -> int:
        """How many positions are written, which is also the number of the next, from 0."""
        return self.layers[0].length

    @property
    def rows(self) -> int:
        """N, how many rows are being written; 0 before the first."""
        return self.layers[0].rows

    def reorder(self, rows: Tensor) -> None:
        """Go on with these rows only, in this order; a row may be named twice, or not at all.

        Args:
            rows: Row numbers, int64. Shape (M,).

        Raises:
            IndexError: If there is no such row.
            TypeError: If ``rows`` is of another dtype.
            ValueError: If it has another shape.
        """
        _check_rows(rows)
        if self.layers[0].rows:
            _check_range(rows, self.layers[0].rows)
        with _reordering(self.layers):
            for cache in self.layers:
                cache._reorder(rows)


class DecoderCache:
    """What a decoder remembers while it writes; :meth:`Decoder.new_cache` makes one.

    It begins with a row for each sentence. After a :meth:`reorder` that names rows several times,
    several rows write the same sentence, as the beams of a beam search do; they go on sharing its
    memory as long as all sentences have equally many rows, and those of a sentence stand together.

    Args:
        memory: For each layer, the keys and values of the source.
        memory_mask: Hides source positions; broadcastable to (B, H, 1, S).

    Raises:
        TypeError: If ``memory`` holds anything but caches, or ``memory_mask`` is not boolean.

    Example:
        >>> decoder = build_decoder(num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> x, memory = torch.randn(1, 5, 16), torch.randn(1, 7, 16)
        >>> with torch.no_grad():
        ...     cache = decoder.new_cache(memory)
        ...     steps = [decoder(word, cache=cache) for word in x.split(1, dim=1)]
        ...     whole = decoder(x, memory)
        >>> torch.allclose(torch.cat(steps, dim=1), whole, atol=1e-5)
        True
    """

    def __init__(
        self, memory: Sequence[KeyValueCache], *, memory_mask: Tensor | None = None
    ) -> None:
        if not isinstance(memory, Sequence):
            refuse("memory", "a list of a KeyValueCache for each layer", memory)
        for layer, cache in enumerate(memory):
            check_instance(KeyValueCache, **{f"memory[{layer}]": cache})
        if memory_mask is not None:
            check_boolean("memory_mask", memory_mask)
        self.layers = [KeyValueCache() for _ in memory]
        self.memory = list(memory)
        self.memory_mask = memory_mask
        if (
            type(memory_mask) is Tensor  # not one of a subclass without values
            and not memory_mask.is_meta  # which has none either, and neither has a compiler
            and not torch.compiler.is_compiling()
            and not memory_mask.any()
        ):
            self.memory_mask = None  # a mask that hides nothing only costs time
        self._rows_per_sentence = 1

    @property
    def length(self) -> int:
        """How many target positions are written, which is also the number of the next, from 0."""
        return self.layers[0].length

    @property
    def rows(self) -> int:
        """N, how many rows are being written."""
        return self.memory[0].rows * self._rows_per_sentence

    def reorder(self, rows: Tensor) -> None:
        """Go on with these rows only, in this order, as beams and finished sentences need it.

        Args:
            rows: Row numbers, int64; one may be named twice, or not at all. Shape (M,).

        Raises:
            IndexError: If there is no such row.
            TypeError: If ``rows`` is of another dtype.
            ValueError: If it has another shape.
        """
        _check_rows(rows)
        _check_range(rows, self.rows)
        sentences, rows_per_sentence = _group(rows // self._rows_per_sentence)
        with _reordering([*self.layers, *self.memory]):
            for cache in self.layers:
                cache._reorder(rows)
            for cache in self.memory:
                cache._reorder(sentences)
            if self.memory_mask is not None and self.memory_mask.shape[0] > 1:
                self.memory_mask = self.memory_mask[sentences]
            self._rows_per_sentence = rows_per_sentence


def undo_on_error(forward: Callable[Inputs, Tensor]) -> Callable[Inputs, Tensor]:
    """Let a module's ``forward`` remove what it has added to its caches if it does not return.

    Otherwise a step that is interrupted after some layers and then repeated would add its position
    to the caches of these layers twice.

    Args:
        forward: Takes an optional ``cache`` by keyword.

    Returns:
        The same function, which crops the caches if an exception of any kind leaves it.

    Example:
        >>> class Interrupted(nn.Module):
        ...     def forward(self, x):
        ...         raise KeyboardInterrupt
        >>> encoder = build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=32).eval()
        >>> cache, encoder.layers[1].feed_forward = encoder.new_cache(), Interrupted()
        >>> try:
        ...     with torch.no_grad():
        ...         encoder(torch.randn(1, 1, 16), cache=cache)
        ... except KeyboardInterrupt:
        ...     print([layer.length for layer in cache.layers])
        [0, 0]
    """

    @wraps(forward)
    def forward_or_undo(*inputs: Inputs.args, **options: Inputs.kwargs) -> Tensor:
        cache = options.get("cache")
        if isinstance(cache, KeyValueCache):
            caches = [cache]
        elif isinstance(cache, SelfAttentionCache | DecoderCache):
            caches = cache.layers
        else:  # None, or something that the forward pass refuses
            return forward(*inputs, **options)
        lengths = [each.length for each in caches]
        try:
            return forward(*inputs, **options)
        except BaseException:
            for each, length in zip(caches, lengths, strict=True):
                each.crop(length)
            raise

    return forward_or_undo


@contextmanager
def _reordering(caches: Sequence[KeyValueCache]) -> Iterator[None]:
    """Mark caches as not whole until the block ends: after an exception they stay so.

    Rows are reordered in place, which cannot be undone; a cache that was reordered in some layers
    only must not be used.
    """
    for cache in caches:
        cache._check_whole()
    for cache in caches:
        cache._is_whole = False
    yield
    for cache in caches:
        cache._is_whole = True


def _check_rows(rows: Tensor) -> None:
    """Raise unless ``rows`` are row numbers."""
    check_tensor("rows", rows)
    if rows.dtype != torch.int64:
        raise TypeError(f"rows must be int64 row numbers, got dtype={rows.dtype}")
    if rows.dim() != 1:
        raise ValueError(f"rows must have shape (M,), got {tuple(rows.shape)}")


def _check_range(rows: Tensor, count: int) -> None:
    """Raise unless there are such rows; values are read on the CPU only."""
    if rows.device.type == "cpu" and rows.numel():
        low, high = rows.min().item(), rows.max().item()
        if low < 0 or high >= count:
            wrong = low if low < 0 else high
            raise IndexError(f"rows must be in 0..{count - 1}, got row {wrong}")


def _group(sentences: Tensor) -> tuple[Tensor, int]:
    """Name a stretch of equal numbers once, if all stretches are equally long: [2, 2, 5, 5]."""
    groups, sizes = sentences.unique_consecutive(return_counts=True)
    if len(groups) and bool((sizes == sizes[0]).all()):
        return groups, int(sizes[0])
    return sentences, 1
