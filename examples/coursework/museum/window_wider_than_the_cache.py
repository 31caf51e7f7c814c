"""A sliding window one position wider than the cache.

In mlx-lm, each query of a sliding window of 128 positions attended to itself and to the 128
positions before it: 129 keys. The cache of the decoding steps kept 128 keys, the query among them.

Both readings of "a window of 128" are common. The fault shows only in sequences longer than the
window, and there one key of 129 is missing: the generated text looks fine. A maintainer noticed it
in August 2025. The discussion first had to settle which of the two was right, and followed the
reference implementation of a model.

:theme: masks
:source: https://github.com/ml-explore/mlx-lm/pull/390
:found by: cache
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from coursework.museum.decoding import Cache, Steps
from coursework.museum.models import TOKENS, LanguageModel
from transformer_blocks.inspection import Soundness, check_soundness

WINDOW = 3


class Broken(LanguageModel):
    """A causal language model with a sliding window, and a cache of as many keys."""

    def in_window(self, distance: Tensor) -> Tensor:
        # the fault: distances 0 to WINDOW are one key too many
        return (distance >= 0) & (distance <= WINDOW)

    def forward(self, ids: Tensor, cache: Cache | None = None) -> Tensor:
        x = self.embedding(ids)
        query, key, value = self.project(x)
        mask = None
        if cache is None:
            positions = torch.arange(ids.shape[1], device=ids.device)
            mask = self.in_window(positions[:, None] - positions)
        else:
            cache.keys_and_values = [each[:, -WINDOW:] for each in cache.append(key, value)]
            key, value = cache.keys_and_values
        return self.output(x + F.scaled_dot_product_attention(query, key, value, attn_mask=mask))


class Mended(Broken):
    """The same, with the query counted among the positions of its window."""

    def in_window(self, distance: Tensor) -> Tensor:
        return (distance >= 0) & (distance < WINDOW)


def examine(model: Broken) -> Soundness:
    """Compare the decoding steps with one full forward pass, longer than the window."""
    return check_soundness(model, TOKENS, only="cache", new_step_model=lambda: Steps(model))
