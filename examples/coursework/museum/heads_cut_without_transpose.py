"""Heads that are cut from the sequence.

To split vectors into heads, a tensor (B, L, d_model) is viewed as (B, L, H, d_k), and two axes are
exchanged. FuxiCTR, a library of recommendation models, viewed it as H times as many sequences of
vectors of size d_k. The shape is right, but each head holds all components of some of the
positions, not some components of all positions. A position attends to a part of the sequence only.

After the attention, a second view undoes the first, so that each number returns to its place. With
one head, the code is right. Three models of the library used it until a maintainer noticed it in
June 2022. The lines came from a published reference implementation.

:theme: heads
:source: https://github.com/reczoo/FuxiCTR/issues/30
:found by: equivalence
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coursework.museum.models import SelfAttention
from transformer_blocks.inspection import Difference, first_difference

HEADS = 4


class Broken(SelfAttention):
    """Multi-head self-attention."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Linear(16, 16)

    def split(self, x: Tensor) -> Tensor:
        """Split vectors (B, L, 16) into heads (B, H, L, 4)."""
        # the fault: the first L / H positions become the first head
        return x.reshape(len(x), HEADS, -1, 16 // HEADS)

    def merge(self, x: Tensor) -> Tensor:
        """Concatenate the heads (B, H, L, 4) to vectors (B, L, 16)."""
        return x.reshape(len(x), -1, 16)

    def forward(self, x: Tensor) -> Tensor:
        """Attend from each position to all positions."""
        query, key, value = (self.split(each) for each in self.project(x))
        return self.output(self.merge(F.scaled_dot_product_attention(query, key, value)))


class Mended(Broken):
    """Splits each vector, then moves the heads before the positions."""

    def split(self, x: Tensor) -> Tensor:
        """Split vectors (B, L, 16) into heads (B, H, L, 4)."""
        return x.reshape(len(x), -1, HEADS, 16 // HEADS).transpose(1, 2)

    def merge(self, x: Tensor) -> Tensor:
        """Concatenate the heads (B, H, L, 4) to vectors (B, L, 16)."""
        return x.transpose(1, 2).reshape(len(x), -1, 16)


def examine(model: Broken) -> Difference:
    """Compare with torch's multi-head attention, which has the same weights."""
    theirs = nn.MultiheadAttention(16, HEADS, batch_first=True)
    theirs.load_state_dict(
        {
            "in_proj_weight": model.query_key_value.weight,
            "in_proj_bias": model.query_key_value.bias,
            "out_proj.weight": model.output.weight,
            "out_proj.bias": model.output.bias,
        }
    )
    x = torch.randn(2, 8, 16)
    return first_difference(model, lambda x: theirs(x, x, x, need_weights=False), x)
