"""Projections: the queries, keys and values of an attention, and the weights that they give.

Torch computes attention without returning either. Here they are computed a second time, from the
arguments of its functions.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from transformer_blocks.attention import masked_softmax, to_full_precision, without_autocast
from transformer_blocks.inspection.changes import without_gradients


class Projections(NamedTuple):
    """The queries, keys and values of one call of an attention layer.

    They are those that enter the attention function: the vectors after the projection, the split
    into heads, rotary positions and query-key normalisation, and with the keys and values of a
    cache.

    Attributes:
        query: Query vectors, of shape (B, H, L, d_k).
        key: Key vectors, of shape (B, H, S, d_k). A key that several heads share is repeated for
            each of them.
        value: Value vectors, of shape (B, H, S, d_v), repeated likewise.
        scale: Factor of the scores, usually 1 / sqrt(d_k).
    """

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float

    def map(self, function: Callable[[Tensor], Tensor]) -> "Projections":
        """Apply a function to queries, keys and values."""
        query, key, value, scale = self
        return Projections(function(query), function(key), function(value), scale)


@torch.no_grad()
def scaled_dot_product_weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Compute the weights that ``F.scaled_dot_product_attention`` does not return, before dropout.

    The arguments are those of torch's function, which differ from ours: in a boolean mask, True
    stands for positions to attend to; a mask of numbers is added to the scores; and ``is_causal``
    is aligned to the top left. Half precision is computed in float32.

    Returns:
        Attention weights of shape (..., H, L, S). The weights of a fully masked row are zero.
    """
    if enable_gqa:  # each head of keys serves a group of heads of queries
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    with without_autocast(query):
        # (..., H, L, S)
        scores = to_full_precision(query) @ to_full_precision(key).transpose(-2, -1) * scale
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    if is_causal:
        shape = scores.shape[-2:]
        future = torch.ones(shape, dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(future, -torch.inf)
    return masked_softmax(scores, scores == -torch.inf).to(query.dtype)


@without_gradients()
def torch_layer_weights(func: Callable[..., Any], kwargs: dict[str, Any]) -> Tensor:
    """Let torch compute the weights of all heads, before dropout, of shape (B, H, L, S)."""
    query, key = kwargs["query"], kwargs["key"]
    options = {"need_weights": True, "average_attn_weights": False, "training": False}
    # If torch returns weights, it ignores is_causal and applies the mask, which its modules pass.
    weights: Tensor = func(**kwargs | options | {"is_causal": False})[1]
    if query.dim() == 2:  # a single sequence
        weights = weights[None]
    is_finite = query.isfinite().all() & key.isfinite().all()  # then NaN marks fully masked rows
    return weights.masked_fill(weights.isnan().all(dim=-1, keepdim=True) & is_finite, 0.0)


def copy_projections(
    query: Tensor, key: Tensor, value: Tensor, scale: float | None, *, groups: int = 1
) -> Projections:
    """Repeat keys and values for the heads that share them, and copy all projections.

    The copies do not change if a cache is reordered, or a tensor is changed in place.

    Args:
        query: Query vectors, of shape (..., H, L, d_k).
        key: Key vectors, of shape (..., G, S, d_k), where G divides H; or of any shape that torch
            broadcasts.
        value: Value vectors, of shape (..., G, S, d_v).
        scale: Factor of the scores; 1 / sqrt(d_k) if not given.
        groups: Number of consecutive heads that share keys and values, H / G.
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    if groups > 1:
        key, value = (x.repeat_interleave(groups, dim=-3) for x in (key, value))
    batch = torch.broadcast_shapes(*(x.shape[:-2] for x in (query, key, value)))
    projections = Projections(query, key, value, scale)
    return projections.map(lambda x: x.detach().expand(*batch, -1, -1).clone())


def scaled_dot_product_projections(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *_: Any,
    scale: float | None = None,
    enable_gqa: bool = False,
    **__: Any,
) -> Projections:
    """Copy the queries, keys and values of a call of ``F.scaled_dot_product_attention``."""
    groups = query.shape[-3] // key.shape[-3] if enable_gqa else 1
    return copy_projections(query, key, value, scale, groups=groups)


def count_folded_heads(
    module: nn.Module, query: Tensor, key: Tensor, *_: Any, **options: Any
) -> int:
    """Return how many heads are folded into the length dimension of the queries; usually 1.

    For a single new token, Hugging Face's grouped-query attention reshapes queries from
    (B, H, 1, d_k) to (B, H / groups, groups, d_k), so that keys need not be repeated.
    """
    groups = getattr(module, "num_key_value_groups", 1)
    try:
        num_heads = module.config.num_attention_heads  # type: ignore[union-attr]
    except Exception:  # no configuration, or one whose layers differ, which raises its own error
        num_heads = None
    is_packed = (
        groups > 1
        and not options.get("enable_gqa", False)
        and query.dim() == 4
        and query.shape[1] * groups == num_heads
    )
    return groups if is_packed else 1


def unpack_heads(recorded: Any, groups: int) -> Any:
    """Reshape weights, outputs or projections of folded heads to (B, H, 1, size).

    The keys and values of projections are repeated for each head.
    """
    if recorded is None or groups == 1:
        return recorded
    if isinstance(recorded, Projections):
        query, key, value, scale = recorded
        key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
        return Projections(unpack_heads(query, groups), key, value, scale)
    return recorded.flatten(1, 2)[:, :, None]
