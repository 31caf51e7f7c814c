"""Rotary angles of another position.

Rotary positional encoding rotates the queries and keys of all layers by the same angles. A package
computes them once and stores them in a dictionary. The key of an entry was the length of the
sequence; the position of its first token was not part of it.

A full pass has one length and begins at position zero, so that training was right. In cached
decoding, each step has the length 1, and received the angles of the first step: all positions were
the same. No shape and no value looks wrong. A user found it in August 2023 by reading the function:
whichever offset is passed, the result is that of the first call.

:theme: positions
:source: https://github.com/lucidrains/rotary-embedding-torch/issues/11
:found by: cache
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from coursework.museum.decoding import Cache, Steps
from coursework.museum.models import TOKENS, LanguageModel, rotate
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(LanguageModel):
    """A causal language model of one layer with rotary positional encoding."""

    def __init__(self) -> None:
        super().__init__()
        self.stored: dict[object, Tensor] = {}

    def name(self, length: int, offset: int) -> object:
        """Name the angles of ``length`` positions from ``offset`` on."""
        # the fault: the name does not say where the positions begin
        return length

    def angles(self, length: int, offset: int) -> Tensor:
        """Return the angles of ``length`` positions from ``offset`` on, of shape (L, 8)."""
        name = self.name(length, offset)
        if name not in self.stored:
            positions = torch.arange(offset, offset + length)[:, None]
            self.stored[name] = positions * 10000.0 ** -(torch.arange(8) / 8)
        return self.stored[name]

    def forward(self, tokens: Tensor, cache: Cache | None = None) -> Tensor:
        """Compute the logits (B, L, V) of new tokens (B, L), whose predecessors are cached."""
        cached = cache.length if cache else 0
        x = self.embedding(tokens)
        query, key, value = self.project(x)
        angles = self.angles(tokens.shape[1], cached)
        query, key = rotate(query, angles), rotate(key, angles)
        if cache:
            key, value = cache.append(key, value)
        causal = not cached  # a single new token attends to all keys
        return self.output(x + F.scaled_dot_product_attention(query, key, value, is_causal=causal))


class Mended(Broken):
    """Stores the angles by the length and the first position."""

    def name(self, length: int, offset: int) -> object:
        """Name the angles of ``length`` positions from ``offset`` on."""
        return length, offset


def examine(model: Broken) -> Soundness:
    """Compare the cached steps with a full pass."""
    return check_soundness(model, TOKENS, only="cache", new_step_model=lambda: Steps(model))
