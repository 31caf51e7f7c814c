"""A window of keys that is shifted one step too early.

Layers with a sliding window keep the keys of the last W positions in W slots. When the slots are
full, all keys move by one, and the first is dropped. In transformers, the comparison was not
strict: the keys moved while the last slot was still free. The first key was lost too early, and a
row of zeros was attended to in its stead until it had moved out of the window.

Only W steps of a text are affected, from the one in which its length reaches that of the window,
which is thousands of tokens in published models. The issue of April 2025 derives it by hand for
eight slots. The correction, a month later, remarks that everything depends on a strict inequality.

:theme: caches
:source: https://github.com/huggingface/transformers/issues/37574
:found by: cache
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from coursework.museum.models import LanguageModel
from transformer_blocks.inspection import Soundness, check_soundness

WINDOW = 4
TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9, 2, 6], [2, 7, 1, 8, 2, 8, 1, 8]])


class Broken(LanguageModel):
    """A causal language model of one layer that attends to the last WINDOW positions."""

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits (B, L, V) of whole sequences (B, L)."""
        query, key, value = self.project(self.embedding(tokens))
        visible = torch.ones(tokens.shape[1], tokens.shape[1]).tril().triu(1 - WINDOW).bool()
        return self.output(F.scaled_dot_product_attention(query, key, value, attn_mask=visible))

    def is_full(self, seen: int) -> bool:
        """Return whether the oldest of the keys so far has to leave the buffer."""
        # the fault: one slot is still free
        return seen >= WINDOW - 1


class Steps:
    """Decodes step by step with a buffer of WINDOW keys and values."""

    def __init__(self, model: Broken) -> None:
        self.model, self.seen = model, 0
        self.buffer = torch.zeros(len(TOKENS), WINDOW, 32)

    def step(self, tokens: Tensor) -> Tensor:
        """Append the newest tokens (N,); compute the next logits (N, V)."""
        query, key, value = self.model.project(self.model.embedding(tokens))
        if self.model.is_full(self.seen):
            self.buffer = self.buffer.roll(-1, dims=1)
        self.buffer[:, min(self.seen, WINDOW - 1)] = torch.cat([key, value], dim=-1)
        visible = torch.arange(WINDOW)[None] <= self.seen
        keys, values = self.buffer.chunk(2, dim=-1)
        self.seen += 1
        attended = F.scaled_dot_product_attention(query[:, None], keys, values, attn_mask=visible)
        return self.model.output(attended[:, 0])

    def reorder(self, rows: Tensor) -> None:
        """Reorder the cache along the batch dimension."""
        self.buffer = self.buffer[rows]


class Mended(Broken):
    """Shifts the buffer only if all slots hold keys."""

    def is_full(self, seen: int) -> bool:
        """Return whether the oldest of the keys so far has to leave the buffer."""
        return seen > WINDOW - 1


def examine(model: Broken) -> Soundness:
    """Compare the cached steps with a full pass."""
    return check_soundness(model, TOKENS, only="cache", new_step_model=lambda: Steps(model))
