"""Projections: the queries, keys and values that enter an attention function."""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_blocks.inspection.eager import without_gradients


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


def project(
    query: Tensor, key: Tensor, value: Tensor, scale: float | None, *, groups: int = 1
) -> Projections:
    """Repeat keys and values for the heads that share them, and copy all of it.

    A copy remains as it is when a cache is reordered, or a tensor is changed in place.

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


def of_scaled_dot_product(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Projections:
    """Copy the queries, keys and values of a call of ``F.scaled_dot_product_attention``."""
    groups = query.shape[-3] // key.shape[-3] if enable_gqa else 1
    return project(query, key, value, scale, groups=groups)


@without_gradients()
def of_torch_layer(func: Callable[..., Any], kwargs: dict[str, Any]) -> Projections:
    """Compute the queries, keys and values of a call of ``F.multi_head_attention_forward``.

    The function computes them inside, and calls nothing that could be observed meanwhile.
    """
    inputs = [kwargs[name] for name in ("query", "key", "value")]
    if inputs[0].dim() == 2:  # a single sequence
        inputs = [x[:, None] for x in inputs]
    num_heads, bias = kwargs["num_heads"], kwargs["in_proj_bias"]
    if kwargs.get("use_separate_proj_weight"):
        weights = [kwargs[f"{name}_proj_weight"] for name in "qkv"]
    else:
        weights = kwargs["in_proj_weight"].chunk(3)
    biases = [None] * 3 if bias is None else bias.chunk(3)
    query, key, value = map(F.linear, inputs, weights, biases)  # (L, B, d_model)
    batch = query.shape[1]
    if kwargs.get("bias_k") is not None:  # a learned key and value after those of the sequence
        key = torch.cat([key, kwargs["bias_k"].expand(1, batch, -1)])
        value = torch.cat([value, kwargs["bias_v"].expand(1, batch, -1)])

    def split(x: Tensor) -> Tensor:
        return x.unflatten(-1, (num_heads, -1)).permute(1, 2, 0, 3)  # (B, H, L, d_k)

    query, key, value = map(split, (query, key, value))
    if kwargs.get("static_k") is not None:
        key = kwargs["static_k"].unflatten(0, (batch, num_heads))
    if kwargs.get("static_v") is not None:
        value = kwargs["static_v"].unflatten(0, (batch, num_heads))
    if kwargs.get("add_zero_attn"):
        key, value = (F.pad(x, (0, 0, 0, 1)) for x in (key, value))
    return project(query, key, value, None)


def separate_heads(projections: Projections, groups: int) -> Projections:
    """Undo the packing of heads that ``packed_groups`` describes."""
    query, key, value, scale = projections  # (B, H / groups, groups, d_k) and (B, H / groups, S, d)
    key, value = (x.repeat_interleave(groups, dim=1) for x in (key, value))
    return Projections(query.flatten(1, 2)[:, :, None], key, value, scale)
