"""Heads that are joined without a transpose.

After attention, the heads are an axis before the positions: (B, H, L, d_k). A Transformer written
from scratch reshaped this to (B, L, d_model) without exchanging the two axes first. The vector of a
position was then concatenated from outputs of one head at several positions. In the decoder, later
positions were among them: information leaks past a correct causal mask.

The test of the project, a training on the task of copying, passed. When the author corrected the
line in March 2026, he explained why: the numbers are always permuted in the same way, and a model
with many parameters learns to compensate for it on an easy task. A reader had asked about the line
ten months before.

:theme: heads
:source: https://github.com/jsbaan/transformer-from-scratch/issues/4
:found by: causality
"""

import torch.nn.functional as F
from torch import Tensor

from coursework.museum.models import TOKENS, LanguageModel
from transformer_blocks.inspection import Soundness, check_soundness

HEADS = 4


class Broken(LanguageModel):
    """A decoder-only language model of one layer."""

    def merge(self, x: Tensor) -> Tensor:
        """Concatenate the heads (B, H, L, 4) to vectors (B, L, 16)."""
        # the fault: four positions of a head become the four heads of a position
        return x.reshape(len(x), -1, 16)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits (B, L, V) of tokens (B, L)."""
        x = self.embed(tokens)
        heads = [each.unflatten(-1, (HEADS, -1)).transpose(1, 2) for each in self.project(x)]
        query, key, value = heads  # (B, H, L, 4)
        attended = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.output(x + self.merge(attended))


class Mended(Broken):
    """Moves the heads behind the positions before it joins them."""

    def merge(self, x: Tensor) -> Tensor:
        """Concatenate the heads (B, H, L, 4) to vectors (B, L, 16)."""
        return x.transpose(1, 2).reshape(len(x), -1, 16)


def examine(model: Broken) -> Soundness:
    """Run all checks on the model as a causal one."""
    return check_soundness(model, TOKENS, causal=True)
