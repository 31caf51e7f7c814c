"""Projections: the queries, keys and values of an attention, and the weights that they give.

Torch computes attention without returning either. Here they are computed a second time, from the
arguments of its functions.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from transformer_blocks.attention import masked_softmax, to_full_precision, without_autocast


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


class KernelCall(NamedTuple):
    """The arguments of a call of ``F.scaled_dot_product_attention``, which differ from ours.

    In a boolean mask, True stands for positions to attend to; a mask of numbers is added to the
    scores; and ``is_causal`` is aligned to the top left. Keys and values may have any shape that
    torch broadcasts.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    attn_mask: Tensor | None = None
    dropout_p: float = 0.0
    is_causal: bool = False
    scale: float | None = None
    enable_gqa: bool = False

    def weights(self) -> Tensor:
        """Compute the weights, which torch does not return, before dropout, (..., H, L, S).

        Half precision is computed in float32. The weights of a fully masked row are zero.
        """
        query, key = to_full_precision(self.query), to_full_precision(self._repeat(self.key))
        with without_autocast(query):
            scores = query @ key.transpose(-2, -1) * self._find_scale()  # (..., H, L, S)
        mask = self.attn_mask
        if mask is not None and mask.dtype == torch.bool:
            scores = scores.masked_fill(~mask, -torch.inf)
        elif mask is not None:
            scores = scores + mask
        if self.is_causal:
            shape = scores.shape[-2:]
            future = torch.ones(shape, dtype=torch.bool, device=scores.device).triu(1)
            scores = scores.masked_fill(future, -torch.inf)
        return masked_softmax(scores, scores == -torch.inf).to(self.query.dtype)

    def projections(self) -> Projections:
        """Copy the projections: they do not change if a cache is reordered, or a tensor in place.

        Keys and values are repeated for the heads that share them.
        """
        inputs = self.query, self._repeat(self.key), self._repeat(self.value)
        batch = torch.broadcast_shapes(*(x.shape[:-2] for x in inputs))
        projections = Projections(*inputs, self._find_scale())
        return projections.map(lambda x: x.expand(*batch, -1, -1).clone())

    def has_folded_heads(self, module: Any) -> bool:
        """Return whether heads of a module are folded into the length dimension of the queries.

        For a single new token, Hugging Face's grouped-query attention reshapes queries from
        (B, H, 1, d_k) to (B, H / groups, groups, d_k), so that keys need not be repeated.
        """
        groups, query = getattr(module, "num_key_value_groups", 1), self.query
        if groups == 1 or query.dim() != 4:
            return False
        try:
            return bool(query.shape[1] * groups == module.config.num_attention_heads)
        except Exception:  # no configuration, or one whose layers differ, which raises its own
            return False

    def unfolded(self) -> "KernelCall":
        """Return the call with all heads in the dimension of heads."""
        query, mask = self.query, self.attn_mask
        if mask is not None:
            mask = unfold_heads(mask.expand(*query.shape[:-1], -1))
        return self._replace(query=unfold_heads(query), attn_mask=mask, enable_gqa=True)

    def _find_scale(self) -> float:
        return self.query.shape[-1] ** -0.5 if self.scale is None else self.scale

    def _repeat(self, x: Tensor) -> Tensor:
        """Repeat each head of keys or values for the group of heads of queries that it serves."""
        if not self.enable_gqa or x.shape[-3] == self.query.shape[-3]:
            return x
        return x.repeat_interleave(self.query.shape[-3] // x.shape[-3], dim=-3)


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


def unfold_heads(x: Tensor) -> Tensor:
    """Reshape queries, outputs or a mask of folded heads to (B, H, 1, size)."""
    return x.flatten(1, 2)[:, :, None]
