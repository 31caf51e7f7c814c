r"""Attention: every query takes a weighted sum of what it finds.

A dictionary look-up compares a *query* with every *key* and returns the *value* of the one that is
equal. Attention is the soft form of it: every key matches to a degree, and the answer is the sum of
all values, weighted by how well their keys match. Since nothing is either-or, the whole look-up can
be learned by gradient descent.

The match of a query and a key is their dot product; a softmax makes the scores of one query
positive, with sum one (section 3.2.1, equation 1 of the paper):

.. math:: \mathrm{Attention}(Q, K, V) = \mathrm{softmax}\left(\frac{QK^T}{\sqrt{d_k}}\right) V

Why divide by :math:`\sqrt{d_k}`? The dot product of two random vectors of width :math:`d_k` has a
standard deviation of :math:`\sqrt{d_k}`. Left alone, wide heads would score so far apart that the
softmax picks one key and passes no gradient to the others (the paper's footnote 4).

The equation stands here twice. :func:`scaled_dot_product_attention` is the line above, term by
term, and gives the weights too. :func:`fused_attention` is the one to run: where tables of weights
are large it lets torch compute the same result in blocks, and never holds a whole one.

Shapes: B sentences, H heads, L queries, S keys, d_k the width of a head.

Next chapter: :mod:`transformer_blocks.multi_head`, learned projections and several heads.
"""

import math
from contextlib import AbstractContextManager, nullcontext

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from transformer_blocks._checks import check_dropout, check_flag, check_number, check_tensor
from transformer_blocks.fast.dropout import drop
from transformer_blocks.masks import build_causal_mask, check_mask

# Tables, cells of a table in use and while learning, and queries of one that is compiled, as
# measured on two cores.
MANY_TABLES, SMALL_TABLE, SMALL_TABLE_TO_LEARN, FEW_QUERIES = 64, 400, 1024, 8

FEW_KEYS = 16  # with fewer, torch's CPU kernel loses NaN: as many numbers as its vectors hold
# Cells of a mask for torch's kernel, which copies it into the dtype of the scores: 256 MB in
# float32. A larger one is made for some queries at a time.
LARGE_MASK = 2**26


def attention_weights(
    query: Tensor,
    key: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> Tensor:
    r"""Say how much of each value a query takes: :math:`\mathrm{softmax}(QK^T / \sqrt{d_k})`.

    Args:
        query: What each position asks. Shape (B, H, L, d_k).
        key: What each position offers to match. Shape (B, H, S, d_k).
        mask: Boolean, True hides a key. Shape (L, S) or (B|1, H|1, L|1, S).
        causal: Also hide later positions, as :func:`~transformer_blocks.causal_mask` does.
        scale: What the scores are multiplied by; 1 / sqrt(d_k) if not given.

    Returns:
        Weights between 0 and 1, in the inputs' dtype; scores and softmax are computed in float32 or
        better. Each row sums to one, or to zero where every key is masked. Shape (B, H, L, S).

    Raises:
        TypeError: If the dtypes differ, or the mask is not boolean.
        ValueError: If the shapes do not fit.

    Example:
        >>> query = torch.tensor([[[[1.0, 0.0]]]])  # asks for the first feature
        >>> key = torch.tensor([[[[4.0, 0.0], [0.0, 4.0]]]])  # the first key has it
        >>> attention_weights(query, key)
        tensor([[[[0.9442, 0.0558]]]])
    """
    check_inputs(query, key, key, causal=causal, scale=scale)
    hidden = combine_masks(query, key, mask, causal)
    return masked_softmax(attention_scores(query, key, scale), hidden).to(query.dtype)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Mix ``value`` vectors, weighting each by how well its ``key`` answers the ``query``.

    This is equation 1 of the paper as it is printed: easy to read, differentiable twice, and it
    shows the weights. It holds a table of L x S weights for every head.

    Args:
        query: What each position asks. Shape (B, H, L, d_k).
        key: What each position offers to match. Shape (B, H, S, d_k).
        value: What each position hands over. Shape (B, H, S, d_v).
        mask: Boolean, True hides a key. Shape (L, S) or (B|1, H|1, L|1, S).
        causal: Also hide later positions. With L < S the last query sees every key.
        dropout: Probability of dropping a weight, in [0, 1). Applied always: pass 0 to evaluate.
        scale: What the scores are multiplied by; 1 / sqrt(d_k) if not given.

    Returns:
        The mixed values, shape (B, H, L, d_v), and the weights before dropout, shape (B, H, L, S).

    Raises:
        TypeError: If the dtypes differ, or the mask is not boolean.
        ValueError: If the shapes do not fit, or ``dropout`` is out of range.

    Example:
        >>> query, key, value = torch.randn(3, 1, 1, 4, 8).unbind()
        >>> mixed, weights = scaled_dot_product_attention(query, key, value)
        >>> order = torch.tensor([2, 0, 3, 1])  # a memory has no order: shuffle it ...
        >>> again, _ = scaled_dot_product_attention(query, key[:, :, order], value[:, :, order])
        >>> torch.allclose(mixed, again, atol=1e-6)  # ... and the answers stay the same
        True
    """
    check_inputs(query, key, value, causal=causal, scale=scale)
    check_dropout(dropout=dropout)
    weights = attention_weights(query, key, mask=mask, causal=causal, scale=scale)
    return drop(weights, dropout) @ value, weights


def fused_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    dropout: float = 0.0,
    scale: float | None = None,
) -> Tensor:
    """Compute the same mixture with torch's fused kernel, without the L x S table.

    Many small tables on a CPU it leaves to the formula, which is faster there.
    The arguments are those of :func:`scaled_dot_product_attention`. Dropout of the weights costs
    the advantage on a CPU: the table is built after all, by the formula. What is not finite in a
    query, or in a key or value that it attends to, shows in its output, as it does there.

    Returns:
        The mixed values. Shape (B, H, L, d_v).

    Raises:
        TypeError: If the dtypes differ, or the mask is not boolean.
        ValueError: If the shapes do not fit, or ``dropout`` is out of range.

    Example:
        >>> query, key, value = torch.randn(3, 2, 4, 5, 8).unbind()
        >>> fused = fused_attention(query, key, value, causal=True)
        >>> readable, _ = scaled_dot_product_attention(query, key, value, causal=True)
        >>> torch.allclose(fused, readable, atol=1e-6)
        True
    """
    check_inputs(query, key, value, causal=causal, scale=scale)
    check_dropout(dropout=dropout)
    # Torch's own causal rule aligns top left, which is right if L == S.
    mask_free = causal and mask is None and query.shape[-2] == key.shape[-2]
    if _formula_is_faster(query, key, mask_free=mask_free, dropout=dropout):
        mixed, _ = scaled_dot_product_attention(
            query, key, value, mask=mask, causal=causal, dropout=dropout, scale=scale
        )
        return mixed
    if mask_free:
        mixed = F.scaled_dot_product_attention(
            query, key, value, dropout_p=dropout, is_causal=True, scale=scale
        )
        return _restore_nan(mixed, query, key)
    rows = _rows_of_a_mask(query, key, mask, causal)
    if rows < query.shape[-2]:
        return _attend_in_chunks(query, key, value, rows, mask, causal, dropout, scale)
    hidden = combine_masks(query, key, mask, causal)
    if hidden is None:
        mixed = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, scale=scale)
        return _restore_nan(mixed, query, key, sees_all=True)
    # Torch's mask says what is visible. Its kernels differ on a row without any; such a row gets
    # all keys here, and zeros for an answer.
    fully_masked = hidden.all(dim=-1, keepdim=True)
    visible = ~hidden | fully_masked
    mixed = F.scaled_dot_product_attention(
        query, key, value, attn_mask=visible, dropout_p=dropout, scale=scale
    )
    return _restore_nan(mixed, query, key).masked_fill(fully_masked, 0.0)


def _restore_nan(mixed: Tensor, query: Tensor, key: Tensor, *, sees_all: bool = False) -> Tensor:
    """Set an output to NaN where torch's CPU kernel returns zero for a query or key not finite.

    The kernel returns zero for a row whose largest score is -inf, as for a fully masked one. With
    fewer than :data:`FEW_KEYS` keys its maximum ignores NaN, and in half precision its exponential
    turns NaN into zero. In full precision and with more keys, only scores that are all -inf are
    left. An infinite query gives them where it attends to few keys, such as the first ones of
    causal attention; where every query attends to all keys, or there is but one query, no row is
    searched for them.
    """
    if query.device.type != "cpu":
        return mixed
    if not torch.compiler.is_compiling():  # there, the length may be a symbol
        exact = query.dtype in (torch.float32, torch.float64) and key.shape[2] >= FEW_KEYS
        if (exact and (sees_all or query.shape[2] == 1)) or not _has_zero_row(mixed):
            return mixed
    query, key = query.detach(), key.detach()
    # 0 * NaN and 0 * inf are NaN, all else is 0.
    faults = (0.0 * query).sum(-1, keepdim=True) + (0.0 * key).sum((-2, -1), keepdim=True)
    return mixed.masked_fill((mixed == 0.0) & faults.isnan(), math.nan)


def _has_zero_row(mixed: Tensor) -> bool:
    """Tell whether an output may have a row of zeros: by its first column, which is quick.

    Where there are no values to read (in ``vmap``, with fake tensors), it may.
    """
    try:
        return not mixed.detach()[..., 0].all()
    except RuntimeError:
        return True


def _rows_of_a_mask(query: Tensor, key: Tensor, mask: Tensor | None, causal: bool) -> int:
    """Find for how many queries at a time a mask of moderate size can be made.

    What is compiled takes all at once: there, lengths may be symbols.
    """
    length, cells = query.shape[-2], key.shape[-2]
    if torch.compiler.is_compiling() or not (causal or mask is not None):
        return length
    if isinstance(mask, Tensor) and mask.dim() == 4:
        if mask.shape[2] == 1 and not causal:  # one row, which serves every query
            return length
        cells *= mask.shape[0] * mask.shape[1]
    return min(length, max(1, LARGE_MASK // max(1, cells)))


def _attend_in_chunks(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    rows: int,
    mask: Tensor | None,
    causal: bool,
    dropout: float,
    scale: float | None,
) -> Tensor:
    """Compute :func:`fused_attention` for some queries at a time: no mask is larger than theirs.

    Where attention is causal, the keys after the last query of a chunk are left out. While
    gradients are recorded, the backward pass computes each chunk again; to keep the masks for it
    would take as much memory as one large mask.
    """
    length, key_length = query.shape[-2], key.shape[-2]
    if mask is not None:
        check_mask(
            mask, batch=query.shape[0], heads=query.shape[1], queries=length, keys=key_length
        )

    learns = torch.is_grad_enabled() and any(each.requires_grad for each in (query, key, value))
    # Within the transforms of torch.func, nothing can be computed again: they allow no such hooks.
    learns = learns and torch._C._autograd._saved_tensors_hooks_is_enabled()  # type: ignore[attr-defined]
    version = mask._version if learns and mask is not None and not mask.is_inference() else None

    def attend(start: int, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        end = min(start + rows, length)
        keys = max(0, key_length - length + end) if causal else key_length
        part = mask
        if part is not None:
            if version is not None and part._version != version:
                raise RuntimeError("mask must not be changed in place before the backward pass")
            part = part[..., :keys]
            part = part if part.shape[-2] == 1 else part[..., start:end, :]
        return fused_attention(
            query[..., start:end, :],
            key[..., :keys, :],
            value[..., :keys, :],
            mask=part,
            causal=causal,
            dropout=dropout,
            scale=scale,
        )

    chunks = [
        checkpoint(attend, start, query, key, value, use_reentrant=False)
        if learns
        else attend(start, query, key, value)
        for start in range(0, length, rows)
    ]
    return torch.cat(chunks, dim=-2)


def _formula_is_faster(query: Tensor, key: Tensor, *, mask_free: bool, dropout: float) -> bool:
    """Tell whether there are many small tables, or dropout, on a CPU.

    Torch's kernel takes tables one by one, the formula all in one product: up to four times faster,
    as when several beams look at one source. A single query a table is the kernel's best case, and
    so is a future that it hides without a mask. To drop weights, torch builds whole tables as the
    formula does, with dearer dice. Compiled, the formula of few queries becomes a single loop.
    """
    in_full_precision = query.dtype in (torch.float32, torch.float64)  # its sums stay exact
    if query.device.type != "cpu" or not in_full_precision:
        return False
    learns = torch.is_grad_enabled()
    if torch.compiler.is_compiling():
        length = query.shape[2]
        if learns or torch.compiler.is_dynamo_compiling():
            # One graph serves all lengths: a comparison would make two. 1 is a graph of its own.
            return not learns and length == 1
        return isinstance(length, int) and length <= FEW_QUERIES  # not a symbol
    if dropout > 0.0:
        return True
    if mask_free or query.shape[2] == 1:
        return False
    batch, heads, length, _ = query.shape
    largest = SMALL_TABLE_TO_LEARN if learns else SMALL_TABLE
    return batch * heads >= MANY_TABLES and length * key.shape[-2] <= largest


def attention_scores(query: Tensor, key: Tensor, scale: float | None) -> Tensor:
    r"""Compute the attention scores :math:`QK^T / \sqrt{d_k}`, in float32 or better.

    A score near 100 that is rounded to bfloat16 is off by up to 0.25, and its weight by a quarter.
    Fused kernels keep half precision out of the scores and of the softmax, and so does this.

    Args:
        query: Shape (B, H, L, d_k).
        key: Shape (B, H, S, d_k).
        scale: What the scores are multiplied by; 1 / sqrt(d_k) if not given.

    Returns:
        Scores. Shape (B, H, L, S).
    """
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    query, key = to_full_precision(query), to_full_precision(key)
    with without_autocast(query.device):
        return (query * scale) @ key.transpose(-2, -1)


def to_full_precision(x: Tensor) -> Tensor:
    """Convert bfloat16 and float16 to float32; leave float32 and float64 as they are."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def without_autocast(device: torch.device) -> AbstractContextManager[object]:
    """Switch autocast off, which would compute products in half precision, inside the block."""
    kind = device.type
    if torch.amp.is_autocast_available(kind) and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return nullcontext()


def masked_softmax(scores: Tensor, hidden: Tensor | None) -> Tensor:
    """Turn scores into weights: positive, zero where hidden, with sum one in each row.

    Args:
        scores: Shape (B, H, L, S).
        hidden: What :func:`combine_masks` found.

    Returns:
        Weights, which are all zero in a row that may see nothing. Shape (B, H, L, S).
    """
    if hidden is None:
        return scores.softmax(dim=-1)
    # The softmax of a row of -inf is NaN, and so is its gradient. A row that may see nothing
    # therefore keeps its scores; the last step sets its weights to zero.
    fully_masked = hidden.all(dim=-1, keepdim=True)
    scores = scores.masked_fill(hidden & ~fully_masked, -math.inf)
    return scores.softmax(dim=-1).masked_fill(hidden, 0.0)


def combine_masks(query: Tensor, key: Tensor, mask: Tensor | None, causal: bool) -> Tensor | None:
    """Join the caller's mask and the causal one; None where there is nothing to hide."""
    length, key_length = query.shape[-2], key.shape[-2]
    if mask is not None:
        check_mask_fits(mask, query, key)
    if not causal or length == 1:  # the last query sees every key, and so does an only one
        return mask
    future = build_causal_mask(length, key_length, query.device)
    return future if mask is None else mask | future


def check_mask_fits(mask: Tensor, query: Tensor, key: Tensor) -> None:
    """Raise unless ``mask`` fits attention of these queries to these keys; see check_mask."""
    batch, heads, length, _ = query.shape
    check_mask(
        mask, batch=batch, heads=heads, queries=length, keys=key.shape[2], device=query.device
    )


def check_inputs(
    query: Tensor, key: Tensor, value: Tensor, *, causal: bool = False, scale: float | None = None
) -> None:
    """Raise unless shapes are (B, H, L, d_k), (B, H, S, d_k), (B, H, S, d_v), all else alike.

    Raises:
        TypeError: If one is no tensor of real numbers, if their dtypes differ, or if an option is
            of the wrong kind.
        ValueError: If shapes do not fit, or devices differ.
    """
    check_tensor("query", query)
    check_tensor("key", key)
    check_tensor("value", value)
    check_flag(causal=causal)
    if scale is not None:
        check_number(scale=scale)
    asked, matched, mixed = query.shape, key.shape, value.shape
    if not len(asked) == len(matched) == len(mixed) == 4:
        rule = "have four dimensions (B, H, L, d_k)"
    elif not asked[:2] == matched[:2] == mixed[:2]:
        rule = "agree in batch and heads"
    elif asked[3] != matched[3]:
        rule = "agree in width d_k (query and key)"
    elif matched[2] != mixed[2]:
        rule = "agree in length S (key and value)"
    elif not query.dtype == key.dtype == value.dtype:
        raise TypeError(
            "query, key and value must have one dtype, "
            f"got {query.dtype}, {key.dtype} and {value.dtype}"
        )
    elif not query.is_floating_point():
        raise TypeError(
            f"query, key and value must be floating-point tensors, got dtype={query.dtype}"
        )
    elif not query.device == key.device == value.device:
        raise ValueError(
            "query, key and value must be on one device, "
            f"got {query.device}, {key.device} and {value.device}"
        )
    else:
        return
    raise ValueError(
        f"query, key and value must {rule}, got query {tuple(asked)}, "
        f"key {tuple(matched)} and value {tuple(mixed)}"
    )
