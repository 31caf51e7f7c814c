"""Attention computed with loops over batch, heads, queries and keys, in float64.

It shares no line with the library, so that a mistake would have to be made twice to go unnoticed.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[Any]
Model = TypeVar("Model", bound=nn.Module)


def to_numpy(tensor: Tensor) -> Array:
    """Convert a tensor of any dtype; what is not boolean becomes float64."""
    return np.asarray(tensor.detach() if tensor.dtype == torch.bool else tensor.detach().double())


def randomise(module: Model, std: float = 0.5) -> Model:
    """Replace all parameters: ones and zeros of norms and biases would hide mistakes."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=std)
    return module


def attention_loop(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    mask: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
    score: Callable[[Array, Array, int], float] = lambda query, key, head: float(query @ key),
) -> tuple[Array, Array]:
    """Compute attention one query at a time.

    Args:
        query: Query vectors, of shape (B, H, L, d_k).
        key: Key vectors, of shape (B, G, S, d_k); H / G consecutive heads share each head of keys.
        value: Value vectors, of shape (B, G, S, d_v).
        mask: Boolean mask, broadcastable to (B, H, L, S); True hides a key.
        causal: Also mask future positions, aligned to the bottom right.
        scale: Factor of the scores; 1 / sqrt(d_k) if not given.
        score: Function of a query, a key and the index of the head; returns the unscaled score.

    Returns:
        The output (B, H, L, d_v) and the attention weights (B, H, L, S).
    """
    q, k, v = to_numpy(query), to_numpy(key), to_numpy(value)
    masked = None if mask is None else to_numpy(mask)
    batch, heads, queries, d_k = q.shape
    groups, keys = k.shape[1:3]
    factor = 1.0 / math.sqrt(d_k) if scale is None else scale
    output = np.zeros((batch, heads, queries, v.shape[3]))
    weights = np.zeros((batch, heads, queries, keys))
    for b in range(batch):
        for h in range(heads):
            g = h * groups // heads
            for i in range(queries):
                last = keys - queries + i if causal else keys
                visible = [j for j in range(keys) if j <= last and not _hides(masked, b, h, i, j)]
                scores = [factor * score(q[b, h, i], k[b, g, j], h) for j in visible]
                exponentials = [math.exp(each - max(scores)) for each in scores]
                for j, exponential in zip(visible, exponentials, strict=True):
                    weights[b, h, i, j] = exponential / sum(exponentials)
                    output[b, h, i] += weights[b, h, i, j] * v[b, g, j]
    return output, weights


def _hides(mask: Array | None, b: int, h: int, i: int, j: int) -> bool:
    """Read one element of a mask; an axis of size 1 is broadcast."""
    if mask is None:
        return False
    index = (i, j) if mask.ndim == 2 else (b, h, i, j)
    return bool(mask[tuple(0 if n == 1 else p for p, n in zip(index, mask.shape, strict=True))])


def assert_equals_loop_with_biases(
    attention_function: Callable[..., tuple[Tensor, Tensor]],
    bias: Callable[[int, int], float],
    length: int,
    *,
    causal: bool,
) -> None:
    """Compare attention of 3 heads to 12 keys with the loop, for random inputs and a random mask.

    Args:
        attention_function: Adds a bias to the scaled dot products.
        bias: Function of the distance from query to key, and of the index of the head.
        length: Number of queries; the last one has the position of the last key.
        causal: Whether later keys are masked.
    """
    query = torch.randn(2, 3, length, 4, dtype=torch.float64)
    key, value = torch.randn(2, 2, 3, 12, 4, dtype=torch.float64).unbind()
    options: dict[str, Any] = {"mask": torch.rand(2, 1, length, 12) < 0.3, "causal": causal}

    def score(query: Array, key: Array, head: int) -> float:
        return float(query[:-1] @ key[:-1]) / 2.0 + bias(round(key[-1] - query[-1]), head)

    placed = _with_positions(query, 12 - length), _with_positions(key, 0)
    expected = attention_loop(*placed, value, **options, scale=1.0, score=score)
    for found, right in zip(
        attention_function(query, key, value, **options), expected, strict=True
    ):
        np.testing.assert_allclose(to_numpy(found), right, rtol=0, atol=1e-12)


def _with_positions(x: Tensor, start: int) -> Tensor:
    """Append its position to each vector, of shape (B, H, L, d_k), as one more element."""
    positions = torch.arange(start, start + x.shape[2], dtype=x.dtype)
    return torch.cat((x, positions[:, None].expand(*x.shape[:3], 1)), dim=-1)
