"""Positions that start again at each step.

The GPT-2 of mlx-lm numbered positions from zero in every call, and left them out if the call had a
single token. That is right for a prompt. In a decoding step, the call has the newest token only, so
that generated tokens had no positions, and their keys went into the cache without them.

Prompts are processed correctly, and no shape is wrong. The correction of April 2025 mentions that
the largest GPT-2 writes sensible text nevertheless, while the smaller ones repeat themselves or
write nonsense.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks.inspection import Report, check_cache
from transformer_blocks.museum.exhibit import Exhibit, seeded

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 2, 8]])


class Broken(nn.Module):
    """A decoder-only language model of one layer, with learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(10, 16), nn.Embedding(12, 16)
        self.inputs, self.output = nn.Linear(16, 48), nn.Linear(16, 10)

    def number(self, length: int, cached: int) -> Tensor:
        """Number the positions of the new tokens."""
        # the fault: the tokens in the cache come before the new ones
        return torch.arange(length)

    def forward(self, tokens: Tensor, cache: list[Tensor] | None = None) -> Tensor:
        """Compute the logits (B, L, V) of new tokens (B, L), whose predecessors are cached."""
        cached = cache[0].shape[1] if cache else 0
        x = self.tokens(tokens) + self.positions(self.number(tokens.shape[1], cached))
        query, key, value = self.inputs(x).chunk(3, dim=-1)
        if cache:
            key, value = torch.cat([cache[0], key], 1), torch.cat([cache[1], value], 1)
        if cache is not None:
            cache[:] = key, value
        causal = not cached  # a single new token attends to all keys
        return self.output(x + F.scaled_dot_product_attention(query, key, value, is_causal=causal))


class Mended(Broken):
    """Continues the numbers of the cached tokens."""

    def number(self, length: int, cached: int) -> Tensor:
        """Number the positions of the new tokens."""
        return torch.arange(cached, cached + length)


class Steps:
    """Decodes step by step with a cache of keys and values."""

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
    title="Positions that start again at each step",
    theme="caches",
    source="https://github.com/ml-explore/mlx-lm/pull/93",
    found_by="cache",
    broken=seeded(Broken),
    mended=seeded(Mended),
    examine=examine,
)
