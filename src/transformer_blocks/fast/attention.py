"""Fused attention: equation 1 without storing the attention weights.

Equals ``torch.nn.functional.scaled_dot_product_attention(query, key, value, ...)``, with
``enable_gqa=True`` if there are fewer key heads than query heads, except in three points: the mask
rule is that of this package, fully masked rows give zeros on every device, and ``causal`` is
aligned to the bottom right.

Torch's fused kernel computes attention block by block ("FlashAttention", Dao et al. 2022,
https://arxiv.org/abs/2205.14135). The L x S weights of a head are never stored, which saves memory,
and time where L and S are large. Where the explicit implementation is faster on a CPU,
:func:`fused_attention` selects it.

Differs on NaN: on a CPU, a non-finite query or key may yield zeros instead of NaN, as in torch's
kernel; we do not correct this.
"""

from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_blocks._contracts import DropoutProbability, Mask, checked, unchecked
from transformer_blocks.attention import (
    KeyHeads,
    QueryHeads,
    ValueHeads,
    attention_weights,
    combine_masks,
    matmul_by_head,
)
from transformer_blocks.fast.caching import has_values
from transformer_blocks.fast.dropout import apply_dropout
from transformer_blocks.fast.intervals import IntervalMask, attend_to_intervals, band_intervals

__all__ = ["fused_attention"]

# What is called with arguments that have been checked.
_weights, _apply_dropout = unchecked(attention_weights), unchecked(apply_dropout)


@checked
def fused_attention(
    query: QueryHeads,
    key: KeyHeads,
    value: ValueHeads,
    *,
    mask: Mask | None = None,
    causal: bool = False,
    dropout: DropoutProbability = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Compute attention by torch's fused kernel, or explicitly where that is faster.

    The arguments are those of :func:`~transformer_blocks.scaled_dot_product_attention`. With
    ``dropout``, there is no advantage on a CPU, where the attention weights are then stored.

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
    # Four ways, the first that applies: 1. interval masks, in blocks of queries; 2. a decoding step
    # whose heads share keys; 3. the explicit implementation; 4. torch's kernel.
    batch, heads, length, d_k = query.shape
    groups, key_length = key.shape[1], key.shape[2]
    if isinstance(mask, IntervalMask) and mask.numel() and has_values(mask.first):
        # Without `causal`, the band has all keys and masks none.
        after = 1 if causal else length
        intervals = mask | band_intervals(
            length, key_length, before=key_length, after=after, like=query
        )
        attend = partial(_fused, dropout=dropout, scale=scale)
        return attend_to_intervals(attend, intervals, query, key, value, can_recompute=not dropout)
    is_grouped = heads != groups
    if is_grouped and length == 1 and (mask is None or mask.dim() == 2 or mask.shape[1] == 1):
        # The single queries of heads that share keys and values are treated as several queries of
        # one head. On a CPU, this takes 0.5 to 0.9 of the time of torch's enable_gqa, which repeats
        # keys and values.
        together = query.reshape(batch, groups, heads // groups, d_k)
        output = _fused(together, key, value, mask=mask, dropout=dropout, scale=scale)
        return output.reshape(batch, heads, 1, value.shape[3])
    if _explicit_is_faster(query, dropout):
        weights = _weights(query, key, mask=mask, causal=causal, scale=scale)
        weights = _apply_dropout(weights, dropout) if dropout else weights
        return matmul_by_head(weights, value)
    # Passed only if needed: torch refuses `enable_gqa=heads != groups` where heads are symbolic.
    options: dict[str, Any] = {"enable_gqa": True} if is_grouped else {}
    kernel = partial(
        F.scaled_dot_product_attention, query, key, value, dropout_p=dropout, scale=scale, **options
    )
    # Torch aligns its causal mask to the top left, which is the same if L == S. `length > 1` first:
    # a single query needs no causal mask, and in compiled code, comparing a symbolic key_length
    # would add a guard.
    if length > 1 and causal and mask is None and length == key_length:
        return kernel(is_causal=True)
    mask = combine_masks(query, key, mask, causal)
    if mask is None:
        return kernel()
    visible = ~mask  # in torch's mask, True marks what is attended to
    if query.device.type == "cpu":  # where torch's kernels give zeros for a fully masked row
        return kernel(attn_mask=visible)
    # Elsewhere, such a row attends to all keys, and its output is set to zero.
    fully_masked = mask.all(dim=-1, keepdim=True)
    return kernel(attn_mask=visible | fully_masked).masked_fill(fully_masked, 0.0)


_fused = unchecked(fused_attention)


def _explicit_is_faster(query: Tensor, dropout: float) -> bool:
    """Return whether the explicit implementation is faster: in two cases on a CPU.

    *With dropout*, except in compiled code: torch stores the attention weights too, and draws its
    random numbers more slowly.

    *In a compiled decoding step without gradients*: it becomes one loop. Its length is 1, the only
    length that a compiler compares without splitting the code in two. A step whose heads share keys
    comes here with several queries per key head, and takes torch's kernel, which is about as fast.

    Otherwise torch's kernel is faster, also for many small matrices of attention weights, as in
    beam search. With torch 2.13 on one thread, for 64 to 1024 matrices of 20 to 1024 weights, the
    explicit implementation takes up to four times as long; only without a mask and without
    gradients does it sometimes win, by a third at most. In half precision, it converts its
    inputs first.
    """
    if query.device.type != "cpu" or query.dtype not in (torch.float32, torch.float64):
        return False
    if torch.compiler.is_compiling():
        return query.shape[2] == 1 and not torch.is_grad_enabled()
    return dropout > 0.0
