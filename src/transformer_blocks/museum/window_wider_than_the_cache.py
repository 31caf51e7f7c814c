"""A sliding window one position wider than the cache.

In mlx-lm, each query of a sliding window of 128 positions attended to itself and to the 128
positions before it: 129 keys. The cache of the decoding steps kept 128 keys, the query among them.

Both readings of "a window of 128" are common. The fault shows only in sequences longer than the
window, and there one key of 129 is missing: the generated text looks fine. A maintainer noticed it
in August 2025. The discussion first had to settle which of the two was right, and followed the
reference implementation of a model.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks.inspection import Report, check_cache
from transformer_blocks.museum.exhibit import Exhibit, seeded

WINDOW = 3


class Broken(nn.Module):
    """A causal language model with a sliding window, and a cache of as many keys."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.query_key_value = nn.Linear(16, 48)
        self.output = nn.Linear(16, 20)

    def in_window(self, distance: Tensor) -> Tensor:
        # the fault: distances 0 to WINDOW are one key too many
        return (distance >= 0) & (distance <= WINDOW)

    def forward(self, ids: Tensor, cache: list[Tensor] | None = None) -> Tensor:
        x = self.embedding(ids)
        query, key, value = self.query_key_value(x).chunk(3, dim=-1)
        mask = None
        if cache is None:
            positions = torch.arange(ids.shape[1], device=ids.device)
            mask = self.in_window(positions[:, None] - positions)
        else:
            if cache:
                key, value = torch.cat((cache[0], key), 1), torch.cat((cache[1], value), 1)
            cache[:] = key, value = key[:, -WINDOW:], value[:, -WINDOW:]
        return self.output(x + F.scaled_dot_product_attention(query, key, value, attn_mask=mask))


class Mended(Broken):
    """The same, with the query counted among the positions of its window."""

    def in_window(self, distance: Tensor) -> Tensor:
        return (distance >= 0) & (distance < WINDOW)


class Steps:
    """Decoding steps of the model: one token of each sequence at a time."""

    def __init__(self, model: Broken) -> None:
        self.model = model
        self.cache: list[Tensor] = []

    def step(self, tokens: Tensor) -> Tensor:
        return self.model(tokens[:, None], self.cache)[:, -1]

    def reorder(self, rows: Tensor) -> None:
        self.cache[:] = [each[rows] for each in self.cache]


def examine(model: Broken) -> Report:
    """Compare the decoding steps with one full forward pass, longer than the window."""
    return check_cache(model, lambda: Steps(model), torch.randint(20, (2, 8)))


EXHIBIT = Exhibit(
    title="A sliding window one position wider than the cache",
    theme="masks",
    source="https://github.com/ml-explore/mlx-lm/pull/390",
    found_by="cache",
    broken=seeded(Broken),
    mended=seeded(Mended),
    examine=examine,
)
