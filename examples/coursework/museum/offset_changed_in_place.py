"""An offset that changes while it is in use.

The attention of Gemma 3n in mlx-lm reads the length of its cache, rotates the new keys by their
positions, appends them to the cache, and then rotates the queries. The length of a simple cache is
a number. A cache of several sequences keeps it in an array and increases it in place: the queries
were rotated by the new length, one position too far in each step.

The model is right with the simple cache, for which it was written. With the other one, an error in
some layers stopped all runs, and hid the fault: users who worked around the error received text
that repeats itself without end. The issue of August 2026 names the cause; a pull request of April
had described it for all models that read the length before they append.

:theme: caches
:source: https://github.com/ml-explore/mlx-lm/issues/1699
:found by: cache
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from coursework.museum.decoding import Cache, Steps
from coursework.museum.models import TOKENS, LanguageModel, rotate
from transformer_blocks.inspection import Soundness, check_soundness


class BatchCache(Cache):
    """A cache that counts the earlier tokens of each row."""

    def __init__(self) -> None:
        super().__init__()
        self.lengths = torch.zeros(len(TOKENS), 1, dtype=torch.long)

    def append(self, key: Tensor, value: Tensor) -> list[Tensor]:
        """Append new keys and values (B, L, 16), and return all of them."""
        self.lengths += key.shape[1]
        return super().append(key, value)

    def reorder(self, rows: Tensor) -> None:
        """Reorder the cache along the batch dimension."""
        super().reorder(rows)
        self.lengths = self.lengths[rows]


class Broken(LanguageModel):
    """A causal language model of one layer with rotary positional encoding."""

    def offsets(self, cache: BatchCache) -> Tensor:
        """Return the position of the first new token of each row, of shape (B, 1)."""
        # the fault: appending to the cache changes this tensor
        return cache.lengths

    def rotate_from(self, x: Tensor, offsets: Tensor) -> Tensor:
        """Rotate each pair of numbers (B, L, 16) by its position; the first ones are given."""
        positions = offsets + torch.arange(x.shape[1])  # (B, L)
        return rotate(x, positions[..., None] * 10000.0 ** -(torch.arange(8) / 8))

    def forward(self, tokens: Tensor, cache: BatchCache | None = None) -> Tensor:
        """Compute the logits (B, L, V) of new tokens (B, L), whose predecessors are cached."""
        x = self.embedding(tokens)
        query, key, value = self.project(x)
        offsets = self.offsets(cache) if cache else torch.zeros(1, 1)
        key = self.rotate_from(key, offsets)
        if cache:
            key, value = cache.append(key, value)
        query = self.rotate_from(query, offsets)
        causal = cache is None  # a single new token attends to all keys
        return self.output(x + F.scaled_dot_product_attention(query, key, value, is_causal=causal))


class Mended(Broken):
    """Copies the lengths before the cache changes them."""

    def offsets(self, cache: BatchCache) -> Tensor:
        """Return the position of the first new token of each row, of shape (B, 1)."""
        return cache.lengths.clone()


def examine(model: Broken) -> Soundness:
    """Compare the cached steps with a full pass."""
    return check_soundness(
        model, TOKENS, only="cache", new_step_model=lambda: Steps(model, BatchCache())
    )
