"""Dropout in evaluation mode.

When nanoGPT changed to the fused attention of torch, it passed the dropout rate of the
configuration. The function is not a module and has no training mode: it drops attention weights
whenever the rate is not zero, in evaluation too.

The default rate of the project is zero, so that runs with the default settings were right, and in
all others the validation loss was a little too high. It was corrected in April 2023 by a user who
trained models with dropout. The same happens with torch.nn.functional.dropout, whose argument
``training`` is true by default.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks.embedding import SinusoidalPositionalEncoding
from transformer_blocks.inspection import Soundness, check_soundness
from transformer_blocks.museum.exhibit import Exhibit, seeded


class Broken(nn.Module):
    """A causal language model with dropout of the attention weights."""

    def __init__(self, dropout: float = 0.2) -> None:
        super().__init__()
        self.dropout = dropout
        self.embedding = nn.Sequential(nn.Embedding(20, 16), SinusoidalPositionalEncoding(16))
        self.query_key_value = nn.Linear(16, 48)
        self.output = nn.Linear(16, 20)

    def rate(self) -> float:
        # the fault: the function has no training or evaluation mode
        return self.dropout

    def forward(self, ids: Tensor) -> Tensor:
        x = self.embedding(ids)
        query, key, value = self.query_key_value(x).chunk(3, dim=-1)
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
    return check_soundness(model, torch.randint(20, (2, 6)), causal=True)


EXHIBIT = Exhibit(
    title="Dropout in evaluation mode",
    theme="layout and modes",
    source="https://github.com/karpathy/nanoGPT/pull/240",
    found_by="determinism",
    broken=seeded(Broken),
    mended=seeded(Mended),
    examine=examine,
)
