"""A causal mask that only the fused kernel applies.

To let the attention layers of Keras use a fused kernel, a change of May 2026 no longer built a
causal mask, but set the kernel's own causal flag. The layers do not use the kernel if there is
dropout, if the caller asks for the attention scores, or if the inputs do not have four dimensions.
They then compute the softmax themselves, in code that relied on the mask that was no longer built.

The benchmark of the change used the kernel. Every causal Transformer with dropout attended to later
positions, without an error. It was found three weeks later: a metric rose to a value that was too
good to be true, and the user found the commit by bisection.

:theme: masks
:source: https://github.com/keras-team/keras/issues/23038
:found by: causality
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coursework.museum.models import SelfAttention
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(SelfAttention):
    """A causal layer that uses the fused kernel unless it has dropout."""

    dropout = 0.1

    def mask(self, scores: Tensor) -> Tensor:
        # the fault: no mask, as if the kernel were used
        return scores

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = self.project(x)
        if self.dropout == 0:
            return F.scaled_dot_product_attention(query, key, value, is_causal=True)
        scores = self.mask(query @ key.mT / query.shape[-1] ** 0.5)  # (B, L, L)
        weights = F.dropout(scores.softmax(dim=-1), self.dropout, self.training)
        return weights @ value


class Mended(Broken):
    """The same, with the mask in both cases."""

    def mask(self, scores: Tensor) -> Tensor:
        future = torch.ones_like(scores, dtype=torch.bool).triu(diagonal=1)
        return scores.masked_fill(future, float("-inf"))


def examine(model: nn.Module) -> Soundness:
    """Check the layer on a batch of vectors."""
    return check_soundness(model, torch.randn(2, 6, 16), causal=True)
