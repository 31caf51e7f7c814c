"""Fused attention: equation 1 without storing the attention weights.

Equals ``torch.nn.functional.scaled_dot_product_attention(query, key, value, ...)``, except in
four points: the mask rule is that of this package, fully masked rows give zeros, ``causal`` is
aligned to the bottom right, and NaN in the inputs is never lost.

Torch's fused kernel computes attention block by block ("FlashAttention", Dao et al. 2022,
https://arxiv.org/abs/2205.14135). The L x S weights of a head are never stored, which saves memory,
and time where L and S are large. On a CPU the explicit implementation is faster in two cases: for
many small matrices of attention weights, which it multiplies all at once, and with dropout of the
attention weights, for which torch stores them after all. :func:`fused_attention` selects the faster
one.
"""

import math
from collections.abc import Callable
from functools import partial
from operator import getitem
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_blocks._contracts import DropoutProbability, Mask, checked, unchecked
from transformer_blocks.attention import (
    Keys,
    Queries,
    Values,
    attention_weights,
    combine_masks,
    matmul_by_head,
    repeat_heads,
)
from transformer_blocks.fast.caching import has_values
from transformer_blocks.fast.dropout import apply_dropout
from transformer_blocks.fast.intervals import IntervalMask, band_intervals

__all__ = ["fused_attention"]

# On a CPU, the explicit implementation is faster if there are at least MANY_MATRICES matrices of
# attention weights, each with at most SMALL_MATRIX elements (SMALL_MATRIX_WITH_GRADIENTS while
# gradients are recorded). In exported code, it is faster up to FEW_QUERIES queries. Measured on two
# cores.
MANY_MATRICES, SMALL_MATRIX, SMALL_MATRIX_WITH_GRADIENTS, FEW_QUERIES = 64, 400, 1024, 8

FEW_KEYS = 16  # with fewer than a vector register holds, torch's CPU kernel loses NaN
BLOCK_SIZE = 128  # queries of a block, with an interval mask

Attend = Callable[..., Tensor]
_weights, _apply_dropout = unchecked(attention_weights), unchecked(apply_dropout)


@checked
def fused_attention(
    query: Queries,
    key: Keys,
    value: Values,
    *,
    mask: Mask | None = None,
    causal: bool = False,
    dropout: DropoutProbability = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Compute attention by torch's fused kernel, or explicitly where that is faster.

    The arguments are those of :func:`~transformer_blocks.scaled_dot_product_attention`. With
    ``dropout``, there is no advantage on a CPU, where the attention weights are then stored. If a
    query, or a key or value that it attends to, is not finite, its output is not finite either.

    Returns:
        The output, of shape (B, H, L, d_v).

    Raises:
        TypeError: If the dtypes differ, or ``mask`` is not boolean.
        ValueError: If the shapes do not fit, or ``dropout`` is out of range.

    Example:
        >>> import torch
        >>> from transformer_blocks import fused_attention, scaled_dot_product_attention
        >>> query, key, value = torch.randn(3, 2, 4, 5, 8).unbind()
        >>> fused = fused_attention(query, key, value, causal=True)
        >>> explicit, _ = scaled_dot_product_attention(query, key, value, causal=True)
        >>> torch.allclose(fused, explicit, atol=1e-6)
        True
    """
    batch, heads, length, d_k = query.shape
    groups, key_length = key.shape[1], key.shape[2]
    if isinstance(mask, IntervalMask) and mask.numel() and has_values(mask.first):
        after = 1 if causal else length
        band = band_intervals(length, key_length, before=key_length, after=after, like=query)
        attend = partial(_fused, dropout=dropout, scale=scale)
        if dropout or not _can_recompute(query):
            return _attend_in_blocks(attend, band | mask, query, key, value)
        return _Blockwise.apply(attend, band | mask, query, key, value)  # type: ignore[no-untyped-call]
    is_grouped = heads != groups
    if is_grouped and length == 1 and (mask is None or mask.dim() == 2 or mask.shape[1] == 1):
        # The single queries of heads that share keys and values are treated as several queries of
        # one head. This takes half the time of torch's enable_gqa, which repeats keys and values.
        together = query.reshape(batch, groups, heads // groups, d_k)
        output = _fused(together, key, value, mask=mask, dropout=dropout, scale=scale)
        return output.reshape(batch, heads, 1, value.shape[3])
    # Torch aligns its causal mask to the top left, which is the same if L == S. A single query
    # needs none, and in a program the number of its keys is a symbol, which is not compared.
    mask_free = length > 1 and causal and mask is None and length == key_length
    if _explicit_is_faster(query, key, mask_free=mask_free, dropout=dropout):
        weights = _weights(query, key, mask=mask, causal=causal, scale=scale)
        weights = _apply_dropout(weights, dropout) if dropout else weights
        return matmul_by_head(weights, value)
    # A condition, as torch refuses a symbolic comparison for `enable_gqa`.
    options: dict[str, Any] = {"enable_gqa": True} if is_grouped else {}
    kernel = partial(
        F.scaled_dot_product_attention, query, key, value, dropout_p=dropout, scale=scale, **options
    )
    if mask_free:
        return _restore_nan(kernel(is_causal=True), query, key)
    mask = combine_masks(query, key, mask, causal)
    if mask is None:
        return _restore_nan(kernel(), query, key, nothing_masked=True)
    # In torch's mask, True marks what is attended to. Its kernels differ on a fully masked row, so
    # such a row attends to all keys here, and its output is set to zero.
    fully_masked = mask.all(dim=-1, keepdim=True)
    output = kernel(attn_mask=~mask | fully_masked)
    return _restore_nan(output, query, key).masked_fill(fully_masked, 0.0)


_fused = unchecked(fused_attention)


def _attend_in_blocks(attend: Attend, mask: IntervalMask, *inputs: Tensor) -> Tensor:
    """Compute attention in blocks of queries, each with the keys in the intervals of its queries.

    In the backward pass, the gradient of each slice of the keys is as large as all keys, and the
    masks of all blocks are kept. :class:`_Blockwise` computes each block again instead.

    Args:
        attend: The attention function of a block.
        mask: The mask, of which a block has a part.
        inputs: Query, key and value.
    """
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


class _Identity(torch.autograd.Function):
    """The simplest function that is of the same kind as :class:`_Blockwise`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x


def _can_recompute(x: Tensor) -> bool:
    """Return whether a backward pass may compute another one, as that of :class:`_Blockwise` does.

    The transforms of torch.func, such as ``vmap``, allow none, and refuse all such functions.
    """
    try:
        _Identity.apply(x.detach())  # type: ignore[no-untyped-call]
        return True
    except RuntimeError:
        return False


def _explicit_is_faster(query: Tensor, key: Tensor, *, mask_free: bool, dropout: float) -> bool:
    """Return whether the explicit implementation is faster on a CPU.

    Torch's kernel computes one matrix of attention weights after another; the explicit
    implementation multiplies all of them at once, up to four times faster where they are many and
    small, as in beam search. A single query is the kernel's best case, and so is causal attention
    without a mask. With dropout, torch stores the attention weights as the explicit implementation
    does, but draws its random numbers more slowly. Compiled, the explicit implementation of few
    queries becomes one loop.
    """
    in_full_precision = query.dtype in (torch.float32, torch.float64)
    if query.device.type != "cpu" or not in_full_precision:
        return False
    records = torch.is_grad_enabled()
    if torch.compiler.is_compiling():
        length = query.shape[2]
        if records or torch.compiler.is_dynamo_compiling():
            # One graph serves all lengths but 1, which torch.compile specialises anyway. Any other
            # comparison of the length would split it into two graphs.
            return not records and length == 1
        return isinstance(length, int) and length <= FEW_QUERIES  # an int is no symbolic length
    if dropout > 0.0:
        return True
    if mask_free or query.shape[2] == 1:
        return False
    batch, heads, length, _ = query.shape
    largest = SMALL_MATRIX_WITH_GRADIENTS if records else SMALL_MATRIX
    return batch * heads >= MANY_MATRICES and length * key.shape[-2] <= largest


def _restore_nan(
    output: Tensor, query: Tensor, key: Tensor, *, nothing_masked: bool = False
) -> Tensor:
    """Set outputs to NaN where torch's CPU kernel returns zero for a non-finite query or key.

    The kernel returns zero for a row whose largest score is -inf, as for a fully masked one. With
    fewer than :data:`FEW_KEYS` keys its maximum ignores NaN, and in half precision its exponential
    turns NaN into zero. In full precision and with more keys, only rows whose scores are all -inf
    need to be corrected. An infinite query has such scores if it attends to few keys, as the first
    queries of causal attention do. If every query attends to all keys, or there is only one query,
    no row is searched.
    """
    if query.device.type != "cpu":
        return output
    if not torch.compiler.is_compiling():  # there, the length may be a symbol
        exact = query.dtype in (torch.float32, torch.float64) and key.shape[2] >= FEW_KEYS
        if (exact and (nothing_masked or query.shape[2] == 1)) or not _has_zero_row(output):
            return output
    query, key = query.detach(), key.detach()
    # 0 * NaN and 0 * inf are NaN; 0 times a finite number is 0.
    of_keys = repeat_heads((0.0 * key).sum((-2, -1), keepdim=True), query.shape[1])
    faults = (0.0 * query).sum(-1, keepdim=True) + of_keys
    return output.masked_fill((output == 0.0) & faults.isnan(), math.nan)


def _has_zero_row(output: Tensor) -> bool:
    """Return whether an output may have a row of zeros, judged by its first column.

    Where values cannot be read (in ``vmap``, with fake tensors), it returns True.
    """
    try:
        return not output.detach()[..., 0].all()
    except RuntimeError:
        return True
