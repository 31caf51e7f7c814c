"""Positions that start again at each step.

The GPT-2 of mlx-lm numbered positions from zero in every call, and left them out if the call had a
single token. That is right for a prompt. In a decoding step, the call has the newest token only, so
that generated tokens had no positions, and their keys went into the cache without them.

Prompts are processed correctly, and no shape is wrong. The correction of April 2025 mentions that
the largest GPT-2 writes sensible text nevertheless, while the smaller ones repeat themselves or
write nonsense.

:theme: caches
:source: https://github.com/ml-explore/mlx-lm/pull/93
:found by: cache
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coursework.museum.decoding import Cache, Steps
from coursework.museum.models import TOKENS, LanguageModel
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(LanguageModel):
    """A causal language model of one layer, with learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.positions = nn.Embedding(12, 16)

    def number(self, length: int, cached: int) -> Tensor:
        """Number the positions of the new tokens."""
        # the fault: the tokens in the cache come before the new ones
        return torch.arange(length)

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Compute the logits (B, L, V) of new tokens (B, L), whose predecessors are cached."""
        cached = cache.length if cache else 0
        x = self.embedding(tokens) + self.positions(self.number(tokens.shape[1], cached))
        query, key, value = self.project(x)
        if cache:
            key, value = cache.append(key, value)
        causal = not cached  # a single new token attends to all keys
        return self.output(x + F.scaled_dot_product_attention(query, key, value, is_causal=causal))


class Mended(Broken):
    """Continues the numbers of the cached tokens."""

    def number(self, length: int, cached: int) -> Tensor:
        """Number the positions of the new tokens."""
        return torch.arange(cached, cached + length)


def examine(model: Broken) -> Soundness:
    """Compare the cached steps with a full pass."""
    return check_soundness(model, TOKENS, only="cache", new_step_model=lambda: Steps(model))
