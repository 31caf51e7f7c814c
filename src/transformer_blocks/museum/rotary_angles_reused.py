"""Rotary angles of another offset.

rotary-embedding-torch, issue 11 (August 2023). The angles of a sequence are the same in every
layer, so the library stored them in a dictionary. The name under which they were stored contained
the length of the sequence, but not the position of its first token. A full pass asks for one length
from position 0 and is correct. Cached decoding asks for length 1 at each step, and always received
the angles of the first step: all queries and keys were rotated alike, which is as good as no
positions at all. The text stays fluent for a while, since no shape and no value looks wrong.
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
    title="Rotary angles of another offset",
    theme="positions",
    source="https://github.com/lucidrains/rotary-embedding-torch/issues/11",
    found_by="cache",
    broken=seeded(Broken),
    mended=seeded(Mended),
    examine=examine,
)
