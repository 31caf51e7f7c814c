"""Interval masks: masks of long sequences, stored as two positions for each query.

A mask of 32,768 queries and keys has 2^30 elements. In many masks, the keys that a query attends to
are consecutive: those of the same document, those before the query, those in a window. An
:class:`IntervalMask` stores the first of these keys and the end for each query, so its memory grows
linearly with the length. :func:`~transformer_blocks.fused_attention` then takes a block of queries
at a time, and computes the scores of the keys in their intervals alone.

:func:`~transformer_blocks.packed_mask` builds such a mask for packed documents. It equals
:func:`~transformer_blocks.document_mask`.

Equals ``torch.ne(documents[:, None, :, None], documents[:, None, None, :])``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import reduce
from operator import getitem
from typing import Annotated, Any

import torch
from torch import Tensor

from transformer_blocks._contracts import Ids, checked
from transformer_blocks.fast.caching import has_values
from transformer_blocks.masks import document_mask

__all__ = ["IntervalMask", "packed_mask"]

BLOCK_SIZE = 128  # queries that attend together

Attend = Callable[..., Tensor]


@checked
def packed_mask(documents: Annotated[Tensor, Ids("B L")]) -> Tensor:
    """Build a document mask for long sequences: linear memory, and no work for masked keys.

    *Packing* puts several documents into one sequence of the batch instead of padding each to the
    length of the longest. Attention with this mask computes the same as with
    ``document_mask(documents)``, which stores L x L booleans. Combine it with the causal mask by
    ``causal=True``, and with other masks by ``|``.

    Only :func:`~transformer_blocks.fused_attention`, which is the default, and
    :class:`~transformer_blocks.SlidingWindowAttention` save memory and work. Wherever its elements
    are needed, as in explicit attention and in inspection, they are computed, all L x L of them.
    In compiled code, use :func:`~transformer_blocks.document_mask`.

    Args:
        documents: Id of the document that each position belongs to, of shape (B, L). The positions
            of a document are adjacent.

    Returns:
        Boolean mask of shape (B, 1, L, L), the same for all heads; True hides.

    Raises:
        TypeError: If ``documents`` is not an integer tensor.
        ValueError: If it has another shape, or a document is in two places.

    Example:
        >>> import torch
        >>> from transformer_blocks import causal_mask, document_mask, packed_mask
        >>> documents = torch.tensor([[1, 1, 2, 2, 2]])
        >>> mask = packed_mask(documents)
        >>> torch.equal(mask | causal_mask(5), document_mask(documents) | causal_mask(5))
        True
        >>> mask = packed_mask(torch.arange(100_000)[None] // 500)  # 10 GB, if it were stored
        >>> mask.shape
        torch.Size([1, 1, 100000, 100000])
    """
    batch, length = documents.shape
    documents = documents.long()
    edge = torch.ones(batch, min(length, 1), dtype=torch.bool, device=documents.device)
    changes = documents.diff(dim=1) != 0
    starts, ends = torch.cat((edge, changes), dim=1), torch.cat((changes, edge), dim=1)
    sorted_ids = documents.sort(dim=1).values
    runs, ids = starts.sum(1), (sorted_ids.diff(dim=1) != 0).sum(1) + edge.sum(1)
    try:
        is_adjacent = not has_values(documents) or torch.equal(runs, ids)
    except RuntimeError:  # in vmap, where values cannot be read
        return document_mask(documents)
    if not is_adjacent:
        raise ValueError(
            "the positions of a document must be adjacent in documents, got a document in two "
            "places; document_mask(documents) allows this"
        )
    positions = torch.arange(length, device=documents.device)
    first = positions.where(starts, 0).cummax(dim=1).values
    end = (positions + 1).where(ends, length).flip(1).cummin(dim=1).values.flip(1)
    return _make_mask(first, end, length)


class IntervalMask(Tensor):
    """A boolean mask in which the unmasked keys of each query are consecutive.

    Its elements are not stored. It has the shape and dtype of the mask, and every operation on it
    computes the elements first, so that it can be passed wherever a mask can. Only ``|`` with
    another mask, and fused attention, do not need them.

    Args:
        first: Position of the first key that each query attends to, int64, of shape (B|1, L).
        end: Position after the last of these keys, int64, of the same shape. If it is not greater
            than ``first``, the row is fully masked.
        key_length: S, the number of keys.
        rest: A mask of further keys, of shape (B|1, H|1, L|1, S); True hides. None if there is
            none.
    """

    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    first: Tensor
    end: Tensor
    rest: Tensor | None

    @staticmethod
    def __new__(  # noqa: D102
        cls, first: Tensor, end: Tensor, key_length: int, rest: Tensor | None = None
    ) -> "IntervalMask":
        batch, length = first.shape
        shape = torch.Size((batch, 1, length, key_length))
        if rest is not None:
            shape = torch.broadcast_shapes(shape, rest.shape)
        mask: IntervalMask = Tensor._make_wrapper_subclass(
            cls, shape, dtype=torch.bool, device=first.device
        )
        mask.first, mask.end, mask.rest = first, end, rest
        return mask

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls,
        function: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if function._schema.is_mutable:
            raise RuntimeError("an interval mask cannot be changed in place; combine masks with |")
        return function(*_with_elements(args), **_with_elements(kwargs or {}))

    def __or__(self, other: Any) -> Any:
        if not isinstance(other, Tensor) or other.dtype != torch.bool or other.dim() not in (2, 4):
            return self.dense() | other
        first, end = self.first, self.end
        if isinstance(other, IntervalMask):
            first, end = torch.maximum(first, other.first), torch.minimum(end, other.end)
            other = other.rest
        elif other.dim() == 2:
            other = other[None, None]
        rests = [each for each in (self.rest, other) if each is not None]
        rest = reduce(torch.bitwise_or, rests) if rests else None
        return IntervalMask(first, end, self.shape[-1], rest)

    __ror__ = __or__

    def __repr__(self) -> str:  # type: ignore[override]
        return f"IntervalMask(shape={tuple(self.shape)})"

    __deepcopy__ = None  # type: ignore[assignment]  # as below, and not as other tensors

    def __reduce_ex__(self, protocol: Any) -> Any:
        return IntervalMask, (self.first, self.end, self.shape[-1], self.rest)

    def dense(self) -> Tensor:
        """Compute all elements, of shape (B|1, H|1, L, S)."""
        return self._rows(slice(None), slice(None), slice(None))

    def blocks(self, size: int) -> Iterator[tuple[tuple[tuple[slice, ...], ...], Tensor | None]]:
        """Divide the mask into blocks of queries, each with the keys from its first to its last.

        Args:
            size: The number of queries of a block.

        Yields:
            The places of a block in query, key and value, and its mask, of shape (b, H|1, l, s);
            None if no key of the block is masked.
        """
        bounds = torch.stack((self.first, self.end)).cpu()
        batch, length = self.first.shape
        for row in range(batch):
            sequences = slice(row, row + 1) if batch > 1 else slice(None)
            for start in range(0, length, size):
                queries = slice(start, min(start + size, length))
                low, high = bounds[:, row, queries].aminmax(dim=1)
                keys = slice(int(low[0]), max(int(low[0]), int(high[1])))
                is_full = self.rest is None and torch.equal(low, high)
                part = None if is_full else self._rows(sequences, queries, keys)
                of_keys = sequences, slice(None), keys
                yield ((sequences, slice(None), queries), of_keys, of_keys), part

    def _rows(self, sequences: slice, queries: slice, keys: slice) -> Tensor:
        """Compute some of the elements."""
        positions = torch.arange(self.shape[-1], device=self.device)[keys]
        mask = _dense(self.first[sequences, queries], self.end[sequences, queries], positions)
        if self.rest is None:
            return mask
        rest = self.rest[..., keys]
        rest = rest if rest.shape[0] == 1 else rest[sequences]
        return mask | (rest if rest.shape[2] == 1 else rest[:, :, queries])


def band_intervals(
    query_length: int, key_length: int, *, before: int, after: int, like: Tensor
) -> Tensor:
    """Mask the keys outside of a band around each query.

    The query at position i sees the keys i - before + 1, ..., i + after - 1, as far as they exist.
    The last query has the position of the last key. The mask is on the device of ``like``.
    """
    positions = torch.arange(key_length - query_length, key_length, device=like.device)[None]
    first, end = (positions - before + 1).clamp(min=0), (positions + after).clamp(0, key_length)
    return _make_mask(first, end, key_length)


def attend_to_intervals(
    attend: Attend, mask: IntervalMask, *inputs: Tensor, can_recompute: bool
) -> Tensor:
    """Compute attention in blocks of queries, each with the keys in the intervals of its queries.

    Left to autograd, the backward pass would keep the masks of all blocks, and the gradient of each
    slice of the keys would be as large as all keys. It computes each block again instead, where
    this is possible: not in ``vmap`` and the other transforms of torch.func.

    Args:
        attend: The attention function of a block.
        mask: The mask, of which a block has a part.
        inputs: Query, key and value.
        can_recompute: Whether ``attend``, called again, returns the same; with dropout, it does
            not.
    """
    if can_recompute:
        with suppress(RuntimeError):  # which those transforms raise before anything is computed
            output: Tensor = _Blockwise.apply(attend, mask, *inputs)  # type: ignore[no-untyped-call]
            return output
    return _attend_in_blocks(attend, mask, *inputs)


def _attend_in_blocks(attend: Attend, mask: IntervalMask, *inputs: Tensor) -> Tensor:
    """Compute :func:`attend_to_intervals`, with the backward pass of autograd."""
    blocks = [
        attend(*map(getitem, inputs, places), mask=part) for places, part in mask.blocks(BLOCK_SIZE)
    ]
    count = len(blocks) // mask.first.shape[0]  # of blocks of one sequence
    rows = [torch.cat(blocks[i : i + count], dim=2) for i in range(0, len(blocks), count)]
    return torch.cat(rows)


class _Blockwise(torch.autograd.Function):
    """Attention in blocks, whose backward pass computes one block after another."""

    @staticmethod
    def forward(ctx: Any, attend: Attend, mask: IntervalMask, *inputs: Tensor) -> Tensor:
        ctx.save_for_backward(*inputs, mask.rest)  # torch refuses them if they change
        ctx.attend, ctx.mask = attend, mask
        return _attend_in_blocks(attend, mask, *inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        if torch.is_grad_enabled():  # as with create_graph=True
            raise RuntimeError(
                "attention to intervals of keys can be differentiated once, not twice; "
                "scaled_dot_product_attention with sliding_window_mask or document_mask can"
            )
        *inputs, _ = ctx.saved_tensors
        gradients = [torch.zeros_like(each) for each in inputs]
        for places, part in ctx.mask.blocks(BLOCK_SIZE):
            pairs = list(zip(inputs, places, strict=True))
            with torch.enable_grad():
                parts = [each[place].detach().requires_grad_() for each, place in pairs]
                output = ctx.attend(*parts, mask=part)
            of_parts = torch.autograd.grad(output, parts, gradient[places[0]])
            for whole, place, each in zip(gradients, places, of_parts, strict=True):
                whole[place] += each
        return None, None, *gradients


def _with_elements(value: Any) -> Any:
    """Replace the interval masks in the arguments of an operator by ordinary ones."""
    if isinstance(value, IntervalMask):
        return value.dense()
    if isinstance(value, Mapping):
        return {key: _with_elements(item) for key, item in value.items()}
    return type(value)(map(_with_elements, value)) if isinstance(value, list | tuple) else value


def _make_mask(first: Tensor, end: Tensor, key_length: int) -> Tensor:
    """Make an interval mask, or an ordinary one in compiled code, which cannot make a subclass."""
    if torch.compiler.is_compiling():
        return _dense(first, end, torch.arange(key_length, device=first.device))
    return IntervalMask(first, end, key_length)


def _dense(first: Tensor, end: Tensor, positions: Tensor) -> Tensor:
    """Mask the keys at some positions but for those from ``first`` to ``end``, (B|1, 1, L, S)."""
    return ((positions < first[..., None]) | (positions >= end[..., None]))[:, None]
