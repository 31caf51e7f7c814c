"""Functions of torch, computed in other ways, which round differently."""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def attention_with_einsum(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, *rest: Any, **options: Any
) -> Tensor:
    """Compute what ``F.scaled_dot_product_attention`` computes."""
    scores = torch.einsum("...ld,...sd->...ls", query, key) / query.shape[-1] ** 0.5
    if options.get("is_causal"):
        attn_mask = torch.ones_like(scores, dtype=torch.bool).tril()
    if attn_mask is not None:
        scores = scores.masked_fill(attn_mask.logical_not(), -torch.inf)
    return torch.einsum("...ls,...sd->...ld", torch.softmax(scores, -1).nan_to_num(), value)


def linear_in_float64(x: Tensor, weight: Tensor, bias: Any = 0.0) -> Tensor:
    """Compute what ``F.linear`` computes."""
    return (x.double() @ weight.double().mT).to(x.dtype) + (0.0 if bias is None else bias)


IN_OTHER_STYLES: dict[str, dict[str, Callable[..., Any]]] = {
    "only the weights are others": {},
    "attention is written with einsum": {"scaled_dot_product_attention": attention_with_einsum},
    "a softmax is written with a log-softmax": {
        "softmax": lambda x, dim=-1, **_: x.log_softmax(dim).exp()
    },
    "a log-softmax is written with a logarithm": {
        "log_softmax": lambda x, dim=-1, **_: x - x.logsumexp(dim, keepdim=True)
    },
    "linear layers are computed in float64": {"linear": linear_in_float64},
    "embeddings are products with one-hot vectors": {
        "embedding": lambda ids, weight, *_, **__: F.one_hot(ids, len(weight)).to(weight) @ weight
    },
}
"""What is computed in another way, and how."""
