"""Dropout in evaluation mode.

When nanoGPT changed to the fused attention of torch, it passed the dropout rate of the
configuration. The function is not a module and has no training mode: it drops attention weights
whenever the rate is not zero, in evaluation too.

The default rate of the project is zero, so that runs with the default settings were right, and in
all others the validation loss was a little too high. It was corrected in April 2023 by a user who
trained models with dropout. The same happens with torch.nn.functional.dropout, whose argument
``training`` is true by default.

:theme: layout and modes
:source: https://github.com/karpathy/nanoGPT/pull/240
:found by: determinism
"""

import torch.nn.functional as F
from torch import Tensor, nn

from coursework.museum.models import TOKENS, LanguageModel
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(LanguageModel):
    """A causal language model with dropout of the attention weights."""

    dropout = 0.2

    def rate(self) -> float:
        # the fault: the function has no training or evaluation mode
        return self.dropout

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embed(ids)
        query, key, value = self.project(x)
        x = x + F.scaled_dot_product_attention(
            query, key, value, is_causal=True, dropout_p=self.rate()
        )
        return self.output(x)


class Mended(Broken):
    """The same, with dropout in training mode only."""

    def rate(self) -> float:
        return self.dropout if self.training else 0.0


def examine(model: nn.Module) -> Soundness:
    """Check the model on a batch of two sequences."""
    return check_soundness(model, TOKENS, causal=True)
