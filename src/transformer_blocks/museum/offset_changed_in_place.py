"""An offset that changes while it is in use.

The attention of Gemma 3n in mlx-lm reads the length of its cache, rotates the new keys by their
positions, appends them to the cache, and then rotates the queries. The length of a simple cache is
a number. A cache of several sequences keeps it in an array and increases it in place: the queries
were rotated by the new length, one position too far in each step.

The model is right with the simple cache, for which it was written. With the other one, an error in
some layers stopped all runs, and hid the fault: users who worked around the error received text
that repeats itself without end. The issue of August 2026 names the cause; a pull request of April
had described it for all models that read the length before they append.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks.inspection import Report, check_cache
from transformer_blocks.museum.exhibit import Exhibit, seeded

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 8]])


class Cache:
    """The keys and values of earlier tokens, and their number in each row."""

    def __init__(self, rows: int) -> None:
        self.keys = self.values = torch.empty(rows, 0, 16)
        self.lengths = torch.zeros(rows, 1, dtype=torch.long)

    def append(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        """Append new keys and values (B, L, 16); return all of them."""
        self.keys, self.values = torch.cat([self.keys, key], 1), torch.cat([self.values, value], 1)
        self.lengths += key.shape[1]
        return self.keys, self.values

    def reorder(self, rows: Tensor) -> None:
        """Reorder the cache along the batch dimension."""
        self.keys, self.values = self.keys[rows], self.values[rows]
        self.lengths = self.lengths[rows]


class Broken(nn.Module):
    """A causal language model of one layer with rotary positional encoding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 16)
        self.inputs, self.output = nn.Linear(16, 48), nn.Linear(16, 10)

    def offsets(self, cache: Cache) -> Tensor:
        """Return the position of the first new token of each row, of shape (B, 1)."""
        # the fault: appending to the cache changes this tensor
        return cache.lengths

    def rotate(self, x: Tensor, offsets: Tensor) -> Tensor:
        """Rotate each pair of numbers (B, L, 16) by its position."""
        positions = offsets + torch.arange(x.shape[1])  # (B, L)
        angles = positions[..., None] * 10000.0 ** -(torch.arange(8) / 8)
        turn = torch.polar(torch.ones(()), angles)
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (8, 2))) * turn).flatten(-2)

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Compute the logits (B, L, V) of new tokens (B, L), whose predecessors are cached."""
        x = self.embedding(tokens)
        query, key, value = self.inputs(x).chunk(3, dim=-1)
        offsets = self.offsets(cache) if cache else torch.zeros(1, 1)
        key = self.rotate(key, offsets)
        if cache:
            key, value = cache.append(key, value)
        query = self.rotate(query, offsets)
        causal = cache is None  # a single new token attends to all keys
        return self.output(x + F.scaled_dot_product_attention(query, key, value, is_causal=causal))


class Mended(Broken):
    """Copies the lengths before the cache changes them."""

    def offsets(self, cache: Cache) -> Tensor:
        """Return the position of the first new token of each row, of shape (B, 1)."""
        return cache.lengths.clone()


class Steps:
    """Decodes step by step with a cache."""

    def __init__(self, model: Broken) -> None:
        self.model, self.cache = model, Cache(len(TOKENS))

    def step(self, tokens: Tensor) -> Tensor:
        """Append the newest tokens (N,); compute the next logits (N, V)."""
        return self.model(tokens[:, None], self.cache)[:, 0]

    def reorder(self, rows: Tensor) -> None:
        """Reorder the cache along the batch dimension."""
        self.cache.reorder(rows)


def examine(model: Broken) -> Report:
    """Compare the cached steps with a full pass."""
    return check_cache(model, lambda: Steps(model), TOKENS)


EXHIBIT = Exhibit(
    title="An offset that changes while it is in use",
    theme="caches",
    source="https://github.com/ml-explore/mlx-lm/issues/1699",
    found_by="cache",
    broken=seeded(Broken),
    mended=seeded(Mended),
    examine=examine,
)
