"""Rotary angles of another position.

Rotary positional encoding rotates the queries and keys of all layers by the same angles. A package
computes them once and stores them in a dictionary. The key of an entry was the length of the
sequence; the position of its first token was not part of it.

A full pass has one length and begins at position zero, so that training was right. In cached
decoding, each step has the length 1, and received the angles of the first step: all positions were
the same. No shape and no value looks wrong. A user found it in August 2023 by reading the function:
whichever offset is passed, the result is that of the first call.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks.inspection import Report, check_cache
from transformer_blocks.museum.exhibit import Exhibit, seeded

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 8]])


class Broken(nn.Module):
    """A causal language model of one layer with rotary positional encoding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 16)
        self.inputs, self.output = nn.Linear(16, 48), nn.Linear(16, 10)
        self.stored: dict[object, Tensor] = {}

    def name(self, length: int, offset: int) -> object:
        """Name the angles of ``length`` positions from ``offset`` on."""
        # the fault: the name does not say where the positions begin
        return length

    def rotate(self, x: Tensor, offset: int) -> Tensor:
        """Rotate each pair of numbers (B, L, 16) by its position."""
        name = self.name(x.shape[1], offset)
        if name not in self.stored:
            positions = torch.arange(offset, offset + x.shape[1])[:, None]
            self.stored[name] = positions * 10000.0 ** -(torch.arange(8) / 8)
        turn = torch.polar(torch.ones(()), self.stored[name])
        return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (8, 2))) * turn).flatten(-2)

    def forward(self, tokens: Tensor, cache: list[Tensor] | None = None) -> Tensor:
        """Compute the logits (B, L, V) of new tokens (B, L), whose predecessors are cached."""
        cached = cache[0].shape[1] if cache else 0
        x = self.embedding(tokens)
        query, key, value = self.inputs(x).chunk(3, dim=-1)
        query, key = self.rotate(query, cached), self.rotate(key, cached)
        if cache:
            key, value = torch.cat([cache[0], key], 1), torch.cat([cache[1], value], 1)
        if cache is not None:
            cache[:] = key, value
        causal = not cached  # a single new token attends to all keys
        return self.output(x + F.scaled_dot_product_attention(query, key, value, is_causal=causal))


class Mended(Broken):
    """Stores the angles by the length and the first position."""

    def name(self, length: int, offset: int) -> object:
        """Name the angles of ``length`` positions from ``offset`` on."""
        return length, offset


class Steps:
    """Decodes step by step with a cache of rotated keys and values."""

    def __init__(self, model: Broken) -> None:
        self.model = model
        self.cache: list[Tensor] = []

    def step(self, tokens: Tensor) -> Tensor:
        """Append the newest tokens (N,); compute the next logits (N, V)."""
        return self.model(tokens[:, None], self.cache)[:, 0]

    def reorder(self, rows: Tensor) -> None:
        """Reorder the cache along the batch dimension."""
        self.cache[:] = [each[rows] for each in self.cache]


def examine(model: Broken) -> Report:
    """Compare the cached steps with a full pass."""
    return check_cache(model, lambda: Steps(model), TOKENS)


EXHIBIT = Exhibit(
    title="Rotary angles of another position",
    theme="positions",
    source="https://github.com/lucidrains/rotary-embedding-torch/issues/11",
    found_by="cache",
    broken=seeded(Broken),
    mended=seeded(Mended),
    examine=examine,
)
