"""Rotary positions on the compressed part of latent attention.

Latent attention compresses keys and values to one vector for each position. Its keys have two
parts: one is projected from that vector and has no position, the other is short, comes from the
input itself, and is rotated. A teaching implementation gave the rotation, and the projection beside
the compressed vector, the size of the part that is not rotated.

Both sizes are equal in a small configuration, and then nothing fails: a model with positions in the
other part trains as well. Weights that were published for the right parts are read without an
error, and the projection of the compressed vector can no longer be absorbed by the query in a
decoding step, for which the rotation was separated. A reader reported it in June 2025.

:theme: positions
:source: https://github.com/junfanz1/MiniGPT-and-DeepSeek-MLA-Multi-Head-Latent-Attention/issues/1
:found by: equivalence
"""

import torch
from torch import Tensor, nn

from transformer_blocks import LatentAttention, RotaryPositionalEncoding
from transformer_blocks.inspection import Difference, first_difference


class Broken(nn.Module):
    """The attention weights of latent attention of one head, whose two parts have the size 4."""

    def __init__(self) -> None:
        super().__init__()
        rotary = RotaryPositionalEncoding(4)
        self.layer = LatentAttention(16, 1, latent_size=8, value_size=4, rotary=rotary)

    def rotate(self, parts: list[Tensor]) -> list[Tensor]:
        """Rotate one of the two parts of queries or keys, each of shape (B, 1, L, 4)."""
        shared, compressed = parts
        # the fault: the part that comes from the compressed vector is rotated
        return [shared, self.layer.transforms[0].transform_keys(compressed, start=0)]

    def forward(self, x: Tensor) -> Tensor:
        """Compute the attention weights (B, 1, L, L) of vectors (B, L, 16)."""
        queries, *stored = self.layer.project_heads(x, x, x)
        keys, _ = self.layer.expand(*stored)
        rotated = [torch.cat(self.rotate([*each.split(4, dim=-1)]), -1) for each in (queries, keys)]
        return (rotated[0] @ rotated[1].mT / 8**0.5).softmax(dim=-1)


class Mended(Broken):
    """Rotates the part that is not compressed."""

    def rotate(self, parts: list[Tensor]) -> list[Tensor]:
        """Rotate one of the two parts of queries or keys, each of shape (B, 1, L, 4)."""
        shared, compressed = parts
        return [self.layer.transforms[0].transform_keys(shared, start=0), compressed]


def examine(model: Broken) -> Difference:
    """Compare with the attention weights of the library's layer."""
    theirs = model.layer.attention_weights
    return first_difference(model, lambda x: theirs(x, x), torch.randn(2, 5, 16))
