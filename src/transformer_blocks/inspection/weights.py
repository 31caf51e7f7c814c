"""Weights of attention that torch computes without returning them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks.attention import without_autocast
from transformer_blocks.inspection.eager import without_gradients


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
    dtype = torch.promote_types(query.dtype, torch.float32)
    if enable_gqa:  # each head of keys serves a group of heads of queries
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], dim=-3)
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    with without_autocast(query):
        scores = query.to(dtype) @ key.to(dtype).transpose(-2, -1) * scale  # (..., H, L, S)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        scores = scores.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        scores = scores + attn_mask
    if is_causal:
        shape = scores.shape[-2:]
        future = torch.ones(shape, dtype=torch.bool, device=scores.device).triu(1)
        scores = scores.masked_fill(future, -torch.inf)
    is_masked = (scores == -torch.inf).all(dim=-1, keepdim=True)  # fully masked rows
    return scores.softmax(dim=-1).masked_fill(is_masked, 0.0).to(query.dtype)


MULTI_HEAD_ARGUMENTS = (
    *("query", "key", "value", "embed_dim_to_check", "num_heads", "in_proj_weight"),
    *("in_proj_bias", "bias_k", "bias_v", "add_zero_attn", "dropout_p", "out_proj_weight"),
    *("out_proj_bias", "training", "key_padding_mask", "need_weights", "attn_mask"),
    *("use_separate_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "static_k"),
    *("static_v", "average_attn_weights", "is_causal"),
)
"""Names of the arguments of ``F.multi_head_attention_forward``, in their order."""


@without_gradients()
def torch_weights(func: Callable[..., Any], kwargs: dict[str, Any]) -> Tensor:
    """Let torch compute the weights of all heads, before dropout, of shape (B, H, L, S)."""
    query, key = kwargs["query"], kwargs["key"]
    asked = {"need_weights": True, "average_attn_weights": False, "training": False}
    # With weights, torch ignores is_causal unless it is told the mask, which its modules pass too.
    weights: Tensor = func(**kwargs | asked | {"is_causal": False})[1]
    if query.dim() == 2:  # a single sequence
        weights = weights[None]
    is_finite = query.isfinite().all() & key.isfinite().all()  # then NaN marks fully masked rows
    return weights.masked_fill(weights.isnan().all(dim=-1, keepdim=True) & is_finite, 0.0)


def packed_groups(module: nn.Module, query: Tensor, key: Tensor, *_: Any, **options: Any) -> int:
    """Return how many heads of a group stand in the dimension of the queries; usually 1.

    For a single new token, Hugging Face's grouped-query attention reshapes queries from
    (B, H, 1, d_k) to (B, H / groups, groups, d_k), so that keys need not be repeated.
    """
    groups = getattr(module, "num_key_value_groups", 1)
    num_heads = getattr(getattr(module, "config", None), "num_attention_heads", None)
    is_packed = (
        groups > 1
        and not options.get("enable_gqa", False)
        and query.dim() == 4
        and query.shape[1] * groups == num_heads
    )
    return groups if is_packed else 1
