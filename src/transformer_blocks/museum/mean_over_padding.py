"""A mean that includes the padding.

A sentence is often represented by the mean of its output vectors. The author of this thread of May
2022 computed the mean over all positions of the batch, and found that the vector of a sentence
depends on the batch size: the encoder masks padded keys, but its outputs at padded positions are
vectors like any others.

It was reported as a bug of the library, whose outputs the author expected to be zero at padded
positions. Nothing fails: the vectors have the right shape, similar sentences still have similar
vectors, and a sentence that is processed alone has the right one.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks.inspection import Soundness, check_soundness
from transformer_blocks.museum.exhibit import Exhibit, seeded


class Broken(nn.Module):
    """An encoder of sentences."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.query_key_value = nn.Linear(16, 48)

    def pool(self, x: Tensor, is_real: Tensor) -> Tensor:
        # the fault: the outputs at padded positions are part of the mean
        return x.mean(dim=1)

    def forward(self, ids: Tensor, is_real: Tensor) -> Tensor:
        x = self.embedding(ids)
        query, key, value = self.query_key_value(x).chunk(3, dim=-1)
        mask = is_real[:, None, :]
        x = x + F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.pool(x, is_real)


class Mended(Broken):
    """The same, with the mean over the real tokens."""

    def pool(self, x: Tensor, is_real: Tensor) -> Tensor:
        weights = is_real[:, :, None].to(x.dtype)
        return (x * weights).sum(dim=1) / weights.sum(dim=1)


def examine(model: nn.Module) -> Soundness:
    """Check the model on a batch of two sentences, the second with padding."""
    ids = torch.tensor([[5, 3, 8, 2, 7, 4], [6, 9, 1, 0, 0, 0]])
    return check_soundness(model, (ids, ids != 0), padding_id=0)


EXHIBIT = Exhibit(
    title="A mean that includes the padding",
    theme="padding",
    source="https://github.com/huggingface/transformers/issues/17463",
    found_by="padding amount",
    broken=seeded(Broken),
    mended=seeded(Mended),
    examine=examine,
)
