"""Attention once more, the slow way: loops over sentences, heads, queries and keys, in float64.

It shares no line with the library, so a mistake would have to be made twice to go unnoticed.
"""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[Any]


def to_numpy(tensor: Tensor) -> Array:
    """Take a tensor of any dtype out of torch; booleans stay, all else becomes float64."""
    return np.asarray(tensor.detach() if tensor.dtype == torch.bool else tensor.detach().double())


def attention_loop(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    match: Callable[[Array, Array, int], float] = lambda query, key, head: float(query @ key),
) -> tuple[Array, Array]:
    """Compute the mixed values (B, H, L, d_v) and the weights (B, H, L, S) one query at a time.

    ``match`` says how well a key answers a query in a head, before the scale.
    """
    q, k, v = to_numpy(query), to_numpy(key), to_numpy(value)
    cells = None if mask is None else to_numpy(mask)
    batch, heads, queries, width = q.shape
    keys = k.shape[2]
    factor = 1.0 / math.sqrt(width) if scale is None else scale
    mixed = np.zeros((batch, heads, queries, v.shape[3]))
    weights = np.zeros((batch, heads, queries, keys))
    for b in range(batch):
        for h in range(heads):
            for i in range(queries):
                newest = keys - queries + i if causal else keys
                seen = [j for j in range(keys) if j <= newest and not _hides(cells, b, h, i, j)]
                scores = [factor * match(q[b, h, i], k[b, h, j], h) for j in seen]
                likeness = [math.exp(score - max(scores)) for score in scores]
                for j, like in zip(seen, likeness, strict=True):
                    weights[b, h, i, j] = like / sum(likeness)
                    mixed[b, h, i] += weights[b, h, i, j] * v[b, h, j]
    return mixed, weights


def _hides(mask: Array | None, b: int, h: int, i: int, j: int) -> bool:
    """Look one cell up; an axis of size 1 holds for every sentence, head or query."""
    if mask is None:
        return False
    place = (i, j) if mask.ndim == 2 else (b, h, i, j)
    return bool(mask[tuple(0 if n == 1 else p for p, n in zip(place, mask.shape, strict=True))])
