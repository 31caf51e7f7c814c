r"""Scaled dot-product attention: each query takes a weighted sum of the values.

A dictionary lookup compares a *query* with every *key* and returns the *value* of the key that is
equal to it. Attention is the differentiable form of a lookup: every key matches the query to some
degree, and the output is the sum of all values, weighted by how well their keys match. The weights
vary continuously with queries and keys, so gradient descent can learn which of them match.

The attention score of a query and a key is their dot product, divided by :math:`\sqrt{d_k}`. A
softmax turns the scores of one query into attention weights, which are positive and sum to one
(section 3.2.1, equation 1 of the paper):

.. math:: \mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{QK^T}{\sqrt{d_k}}\right) V

Why divide by :math:`\sqrt{d_k}`? If the elements of a query and of a key are independent random
numbers with mean 0 and variance 1, their dot product has a standard deviation of :math:`\sqrt{d_k}`
(the paper's footnote 4). Without the factor, the scores of heads with a large :math:`d_k` would lie
far apart: the softmax saturates, and its gradient becomes very small.

This chapter is the *explicit implementation*: :func:`scaled_dot_product_attention` computes the
equation term by term and also returns the attention weights. An attention layer accepts any
function with the same arguments, an :class:`AttentionFunction`. By default it uses
:func:`~transformer_blocks.fused_attention`, which computes the same equation faster.

Shapes: B batch size, H heads, L query length, S key length, d_k size of a query or key of one head,
d_v size of a value of one head.

Next: :mod:`transformer_blocks.multi_head`, learned projections and several heads.
"""

import math
from contextlib import AbstractContextManager, nullcontext
from typing import Annotated, Any, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_blocks._contexts import is_autocast
from transformer_blocks._contracts import (
    DropoutProbability,
    HeadVectors,
    Mask,
    checked,
    raise_type_error,
    unchecked,
)
from transformer_blocks.masks import causal_mask

QueryHeads = Annotated[Tensor, HeadVectors("B H L d_k")]
KeyHeads = Annotated[Tensor, HeadVectors("B G S d_k")]
ValueHeads = Annotated[Tensor, HeadVectors("B G S d_v")]

_causal_mask = unchecked(causal_mask)


@checked
def attention_weights(
    query: QueryHeads,
    key: KeyHeads,
    *,
    mask: Mask | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    r"""Compute the attention weights, :math:`\mathrm{softmax}(QK^T / \sqrt{d_k})`.

    Args:
        query: Query vectors, of shape (B, H, L, d_k).
        key: Key vectors, of shape (B, H, S, d_k).
        mask: Boolean mask; True hides a key from a query. Shape (L, S) or (B|1, H|1, L|1, S).
        causal: Also mask future positions, as :func:`~transformer_blocks.causal_mask` does.
        scale: Factor of the scores; 1 / sqrt(d_k) if not given.

    Returns:
        Attention weights between 0 and 1, of shape (B, H, L, S), in the dtype of the inputs; scores
        and softmax are computed in float32 or float64. The weights of a query sum to one, or are
        all zero if every key is masked.

    Raises:
        TypeError: If the dtypes differ, or ``mask`` is not boolean.
        ValueError: If the shapes do not fit.

    Example:
        >>> import torch
        >>> from transformer_blocks import attention_weights
        >>> query = torch.tensor([[[[1.0, 0.0]]]])  # a query for the first feature
        >>> key = torch.tensor([[[[4.0, 0.0], [0.0, 4.0]]]])  # which only the first key has
        >>> attention_weights(query, key)
        tensor([[[[0.9442, 0.0558]]]])
    """
    scores = attention_scores(query, key, scale)
    return masked_softmax(scores, combine_masks(query, key, mask, causal)).to(query.dtype)


_weights = unchecked(attention_weights)


@checked
def scaled_dot_product_attention(
    query: QueryHeads,
    key: KeyHeads,
    value: ValueHeads,
    *,
    mask: Mask | None = None,
    causal: bool = False,
    dropout: DropoutProbability = 0.0,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Compute scaled dot-product attention, and return its output and its attention weights.

    This is equation 1 of the paper as it is printed. It is differentiable twice, and it stores the
    L x S attention weights of every head.

    Args:
        query: Query vectors, of shape (B, H, L, d_k).
        key: Key vectors, of shape (B, H, S, d_k). There may be fewer key and value heads: if their
            number G divides H, each is shared by H / G consecutive query heads
            (grouped-query attention, :mod:`transformer_blocks.multi_head`).
        value: Value vectors, of shape (B, H, S, d_v), with as many heads as ``key``.
        mask: Boolean mask; True hides a key from a query. Shape (L, S) or (B|1, H|1, L|1, S).
        causal: Also mask future positions. With L < S the last query attends to every key.
        dropout: Probability of setting an attention weight to zero, in [0, 1). The function has no
            evaluation mode: pass 0 to evaluate.
        scale: Factor of the scores; 1 / sqrt(d_k) if not given.

    Returns:
        The output, of shape (B, H, L, d_v), and the attention weights before dropout, of shape
        (B, H, L, S).

    Raises:
        TypeError: If the dtypes differ, or ``mask`` is not boolean.
        ValueError: If the shapes do not fit, or ``dropout`` is out of range.

    Example:
        >>> import torch
        >>> from transformer_blocks import scaled_dot_product_attention
        >>> query, key, value = torch.randn(3, 1, 1, 4, 8).unbind()
        >>> output, weights = scaled_dot_product_attention(query, key, value)
        >>> order = torch.tensor([2, 0, 3, 1])  # keys and values are a set: permute them ...
        >>> permuted, _ = scaled_dot_product_attention(query, key[:, :, order], value[:, :, order])
        >>> torch.allclose(output, permuted, atol=1e-6)  # ... and the output stays the same
        True
    """
    weights = _weights(query, key, mask=mask, causal=causal, scale=scale)
    return matmul_by_head(F.dropout(weights, dropout), value), weights


class AttentionFunction(Protocol):
    """Protocol of the functions that an attention layer can be given as ``attention_function``.

    The function returns the output, of shape (B, H, L, d_v), or a pair of it and the attention
    weights before dropout, of shape (B, H, L, S). Keys and values may have fewer heads than
    queries, as in :func:`~transformer_blocks.scaled_dot_product_attention`. The function must obey
    the mask rule of :mod:`transformer_blocks.masks`, and align ``causal`` to the bottom right. If
    it does not return its weights, it also has a method ``attention_weights``, with the arguments
    of :func:`~transformer_blocks.attention_weights`; otherwise the weights are not known, and
    :func:`~transformer_blocks.record_attention` says so. If its weights depend on positions, it has
    an attribute ``uses_positions`` that is True, and no cross-attention accepts it.
    """

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        dropout: float = 0.0,
        scale: float | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Compute attention; see :func:`~transformer_blocks.scaled_dot_product_attention`."""
        ...


def attention_scores(query: Tensor, key: Tensor, scale: float | None) -> Tensor:
    r"""Compute the attention scores :math:`QK^T / \sqrt{d_k}`, in float32 or float64.

    Rounding a score near 100 to bfloat16 changes it by up to 0.25, and its weight by about a
    quarter. Inputs in half precision are therefore converted first; fused kernels, too, compute
    scores and softmax in at least float32.

    Args:
        query: Query vectors, of shape (B, H, L, d_k).
        key: Key vectors, of shape (B, H, S, d_k).
        scale: Factor of the scores; 1 / sqrt(d_k) if not given.

    Returns:
        Scores, of shape (B, H, L, S).
    """
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    query, key = to_full_precision(query), to_full_precision(key)
    with without_autocast(query):
        return matmul_by_head(query * scale, key.transpose(-2, -1))


def matmul_by_head(x: Tensor, y: Tensor) -> Tensor:
    """Multiply the matrices of each head; consecutive heads of ``x`` may share a head of ``y``.

    The matrices that share a head of ``y`` are multiplied by it together, as one matrix of
    H / G * L rows, so that ``y`` need not be repeated.

    Args:
        x: Matrices of H heads, of shape (B, H, L, N).
        y: Matrices of G heads, where G divides H, of shape (B, G, N, M).

    Returns:
        The products, of shape (B, H, L, M).
    """
    batch, heads, length, size = x.shape
    groups = y.shape[1]
    if groups == heads:
        return x @ y
    together = x.reshape(batch, groups, heads // groups * length, size)
    return (together @ y).reshape(batch, heads, length, y.shape[-1])


def to_full_precision(x: Tensor) -> Tensor:
    """Convert bfloat16 and float16 to float32; leave float32 and float64 unchanged."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def without_autocast(x: Tensor) -> AbstractContextManager[object]:
    """Disable autocast on the device of ``x`` inside the ``with`` block.

    It would multiply in half precision.
    """
    return torch.autocast(x.device.type, enabled=False) if is_autocast(x) else nullcontext()


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Compute the softmax over the keys that are not masked.

    Args:
        scores: Attention scores, of shape (B, H, L, S).
        mask: Boolean mask, broadcastable to (B, H, L, S); None if no key is masked.

    Returns:
        Attention weights, of shape (B, H, L, S); those of a fully masked row are all zero.
    """
    if mask is None:
        return scores.softmax(dim=-1)
    # The softmax of a row of -inf is NaN, and so is its gradient. The scores of a fully masked row
    # are therefore left unchanged here, and the last line sets its weights to zero.
    fully_masked = mask.all(dim=-1, keepdim=True)
    scores = scores.masked_fill(mask & ~fully_masked, -math.inf)
    return scores.softmax(dim=-1).masked_fill(mask, 0.0)


def combine_masks(query: Tensor, key: Tensor, mask: Tensor | None, causal: bool) -> Tensor | None:
    """Combine the given mask and the causal mask; return None if no key is masked."""
    length, key_length = query.shape[-2], key.shape[-2]
    if not causal or length == 1:  # a single query is the last one, which attends to every key
        return mask
    future = _causal_mask(length, key_length, device=query.device)
    return future if mask is None else mask | future


def call_attention(
    function: AttentionFunction, query: Tensor, key: Tensor, value: Tensor, options: dict[str, Any]
) -> Tensor:
    """Call an attention function that a layer was given, and check what it returns.

    Args:
        function: The attention function.
        query: Query vectors, of shape (B, H, L, d_k).
        key: Key vectors, of shape (B, H, S, d_k).
        value: Value vectors, of shape (B, H, S, d_v).
        options: Its options by name: the mask, ``causal`` and ``dropout``.

    Returns:
        The output, of shape (B, H, L, d_v).

    Raises:
        TypeError: If the function does not accept these arguments (Python's own error), or returns
            neither an output nor a pair of it and the weights.
        ValueError: If the output has another shape.
    """
    output = function(query, key, value, **options)
    output = output[0] if isinstance(output, tuple) and len(output) == 2 else output
    if not isinstance(output, Tensor):
        rule = "a function that returns an output, or an output and its attention weights"
        raise_type_error("attention_function", rule, output)
    if output.shape != (shape := (*query.shape[:3], value.shape[3])):
        rule = f"an output of shape (B, H, L, d_v) = {shape}"
        raise ValueError(f"attention_function must return {rule}, got {tuple(output.shape)}")
    return output
