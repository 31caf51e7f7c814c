"""The answer to unit 5: float64, one query and one key at a time."""

from typing import Any

import numpy as np
import torch


def attention_weights(query: Any, key: Any, mask: Any = None) -> Any:
    """Compute the scores in a loop, then their softmax."""
    q, k = np.asarray(query, np.float64), np.asarray(key, np.float64)
    scores = np.zeros((*q.shape[:3], k.shape[2]))
    for b, h, i, j in np.ndindex(scores.shape):
        scores[b, h, i, j] = sum(q[b, h, i] * k[b, h, j]) / q.shape[-1] ** 0.5
    hidden = np.broadcast_to(False if mask is None else np.asarray(mask), scores.shape)
    if mask is not None:
        scores = np.where(hidden, -np.inf, scores)
    exponentials = np.exp(scores - scores.max(-1, keepdims=True))
    weights = exponentials / exponentials.sum(-1, keepdims=True)
    return torch.tensor(np.where(hidden, 0, weights), dtype=torch.float32)


def scaled_dot_product_attention(query: Any, key: Any, value: Any, mask: Any = None) -> Any:
    """Weight the values."""
    weights = attention_weights(query, key, mask)
    return weights @ value, weights
