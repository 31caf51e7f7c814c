"""A padding mask read from vectors that are no longer zero.

An early implementation in TensorFlow stored no padding mask. Padding has an embedding of zeros, so
each attention layer summed its keys over their components: where the sum is zero, there is padding.
But the positional encoding had already been added, so that no key was zero, and no padding was
masked.

The code ran without an error. A short correction of January 2019 names this and a second, rarer
fault: the sum was taken before the absolute value, so that positive and negative components of a
real token could cancel, and it was masked as padding.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks.embedding import sinusoidal_table
from transformer_blocks.inspection import Soundness, check_soundness
from transformer_blocks.museum.exhibit import Exhibit, seeded


class Broken(nn.Module):
    """An encoder that finds the padding itself."""

    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16, padding_idx=0)
        self.query_key_value = nn.Linear(16, 48)
        self.register_buffer("table", sinusoidal_table(32, 16).float(), persistent=False)

    def is_real(self, embedded: Tensor, x: Tensor) -> Tensor:
        # the fault: the positional encoding makes padding differ from zero
        return x.abs().sum(dim=-1) != 0

    def forward(self, ids: Tensor) -> Tensor:
        embedded = self.embedding(ids)
        x = embedded + self.table[: ids.shape[1]]
        mask = self.is_real(embedded, x)[:, None, :]
        query, key, value = self.query_key_value(x).chunk(3, dim=-1)
        return x + F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


class Mended(Broken):
    """The same, with the mask read before the positions are added."""

    def is_real(self, embedded: Tensor, x: Tensor) -> Tensor:
        return embedded.abs().sum(dim=-1) != 0


def examine(model: nn.Module) -> Soundness:
    """Check the model on a batch of two sequences, the second with padding."""
    ids = torch.tensor([[5, 3, 8, 2, 7, 4], [6, 9, 1, 0, 0, 0]])
    return check_soundness(model, ids, padding_id=0)


EXHIBIT = Exhibit(
    title="A padding mask read from vectors that are no longer zero",
    theme="padding",
    source="https://github.com/Kyubyong/transformer/pull/69",
    found_by="padding amount",
    broken=seeded(Broken),
    mended=seeded(Mended),
    examine=examine,
)
