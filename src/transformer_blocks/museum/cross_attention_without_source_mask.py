"""A cross-attention without the padding mask of the source.

In the translation example of Keras, the encoder masks the padding of the source, and the
self-attention of the decoder has a causal mask. The cross-attention received the padding mask of
the target, combined with the causal mask, instead of the padding mask of the source.

No error is raised, since the mask can be broadcast to the scores, and a trained model can learn to
give padded positions small weights. The correction of August 2022 shows the fault by printing the
masks that each layer receives for one pair of sequences.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks.embedding import SinusoidalPositionalEncoding
from transformer_blocks.inspection import Soundness, check_soundness
from transformer_blocks.museum.exhibit import Exhibit, seeded


class Broken(nn.Module):
    """A translator: self-attention of the source and of the target, and cross-attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Sequential(nn.Embedding(20, 16), SinusoidalPositionalEncoding(16))
        self.source_attention = nn.Linear(16, 48)
        self.target_attention = nn.Linear(16, 48)
        self.cross_query = nn.Linear(16, 16)
        self.cross_key_value = nn.Linear(16, 32)
        self.output = nn.Linear(16, 20)

    def cross_mask(self, source_is_real: Tensor) -> Tensor | None:
        # the fault: all keys of the source are attended to, the padded ones too
        return None

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        source_is_real = (source != 0)[:, None, :]  # (B, 1, S)
        memory = self.embedding(source)
        query, key, value = self.source_attention(memory).chunk(3, dim=-1)
        memory = memory + F.scaled_dot_product_attention(
            query, key, value, attn_mask=source_is_real
        )
        x = self.embedding(target)
        query, key, value = self.target_attention(x).chunk(3, dim=-1)
        x = x + F.scaled_dot_product_attention(query, key, value, is_causal=True)
        key, value = self.cross_key_value(memory).chunk(2, dim=-1)
        mask = self.cross_mask(source_is_real)
        x = x + F.scaled_dot_product_attention(self.cross_query(x), key, value, attn_mask=mask)
        return self.output(x)


class Mended(Broken):
    """The same, with the mask of the source."""

    def cross_mask(self, source_is_real: Tensor) -> Tensor:
        return source_is_real


def examine(model: nn.Module) -> Soundness:
    """Check the model on two pairs, the second source with padding."""
    source = torch.tensor([[5, 3, 8, 2, 7, 4], [6, 9, 1, 0, 0, 0]])
    target = torch.tensor([[1, 4, 6, 9, 3], [1, 5, 2, 0, 0]])
    return check_soundness(model, (source, target), padding_id=0)


EXHIBIT = Exhibit(
    title="A cross-attention without the padding mask of the source",
    theme="padding",
    source="https://github.com/keras-team/keras-io/pull/1046",
    found_by="padding amount",
    broken=seeded(Broken),
    mended=seeded(Mended),
    examine=examine,
)
