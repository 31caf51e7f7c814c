"""A sliding window that single queries do without.

In January 2026, nanochat added an attention with sliding windows for computers that lack the fused
kernel. A call with a single query was a special case: it attended to all keys, since a causal mask
hides none of them from the last query. But a window does.

The model is trained with full passes, whose windows are right. The generated text comes from the
decoding steps, in which the layers attend to more keys than in training. Only texts longer than the
window differ, and they are still fluent. A reader of the new code asked about this branch.

:theme: caches
:source: https://github.com/karpathy/nanochat/issues/452
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
    """A causal language model of one layer that attends to the last WINDOW positions."""

    def visible(self, queries: int, keys: int) -> Tensor:
        """Tell which keys each query attends to; the last query belongs to the last key."""
        distances = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
        # the fault: the window hides keys from a single query too
        window = keys if queries == 1 else WINDOW
        return (distances >= 0) & (distances < window)

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Compute the logits (B, L, V) of new tokens (B, L), whose predecessors are cached."""
        x = self.embedding(tokens)
        query, key, value = self.project(x)
        if cache:
            key, value = cache.append(key, value)
        visible = self.visible(query.shape[1], key.shape[1])
        return self.output(x + F.scaled_dot_product_attention(query, key, value, visible))


class Mended(Broken):
    """Applies the window to every query."""

    def visible(self, queries: int, keys: int) -> Tensor:
        """Tell which keys each query attends to; the last query belongs to the last key."""
        distances = torch.arange(keys - queries, keys)[:, None] - torch.arange(keys)
        return (distances >= 0) & (distances < WINDOW)


def examine(model: Broken) -> Soundness:
    """Compare the cached steps with a full pass."""
    return check_soundness(model, TOKENS, only="cache", new_step_model=lambda: Steps(model))
