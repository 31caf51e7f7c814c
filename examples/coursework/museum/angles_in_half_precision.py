"""Angles that are computed in half precision.

In GPT-NeoX, the frequencies of rotary positional encoding were a buffer, so that converting the
model to float16 or bfloat16 converted them too, and then the positions, which took their dtype.
bfloat16 has no number between 256 and 258. The angle of a distant position is rounded by more than
a radian, and its sine and cosine are nearly random.

Short sequences are right, and so is the start of long ones. Half precision is expected to change
the numbers a little, so that a difference is no surprise. The report of July 2023 compares the
tables in float16 and in float32, and finds cosines that differ by 0.78. An issue of August reports
the same for Llama in transformers.

:theme: positions
:source: https://github.com/EleutherAI/gpt-neox/issues/1003
:found by: dtype
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coursework.museum.models import LanguageModel
from transformer_blocks.inspection import Soundness, check_soundness

TOKENS = torch.randint(1, 10, (2, 280), generator=torch.Generator().manual_seed(0))


class Broken(LanguageModel):
    """A causal language model of one layer with rotary positional encoding."""

    frequencies: Tensor

    def __init__(self) -> None:
        super().__init__()
        nn.init.normal_(self.query_key_value.weight, std=0.8)  # attend to few keys, as if trained
        self.register_buffer("frequencies", 10000.0 ** -(torch.arange(8) / 8), persistent=False)

    def angles(self, length: int) -> Tensor:
        """Compute the angle of each pair at each position, of shape (L, 8)."""
        # the fault: the frequencies have the dtype of the model
        return torch.arange(length).to(self.frequencies)[:, None] * self.frequencies

    def rotate(self, x: Tensor) -> Tensor:
        """Rotate each pair of numbers by its position."""
        angles = self.angles(x.shape[1])
        cosine, sine = angles.cos().to(x), angles.sin().to(x)
        first, second = x.chunk(2, dim=-1)
        return torch.cat([first * cosine - second * sine, first * sine + second * cosine], dim=-1)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits (B, L, V) of tokens (B, L)."""
        query, key, value = self.project(self.embedding(tokens))
        query, key = self.rotate(query), self.rotate(key)
        return self.output(F.scaled_dot_product_attention(query, key, value, is_causal=True))


class Mended(Broken):
    """Computes the angles in float32, whatever the dtype of the model."""

    def angles(self, length: int) -> Tensor:
        """Compute the angle of each pair at each position, of shape (L, 8)."""
        positions = torch.arange(length, device=self.frequencies.device)[:, None]
        return positions * 10000.0 ** -(torch.arange(8, device=positions.device) / 8)


def examine(model: Broken) -> Soundness:
    """Run all checks on sequences of 280 tokens."""
    return check_soundness(model, TOKENS, causal=True)
