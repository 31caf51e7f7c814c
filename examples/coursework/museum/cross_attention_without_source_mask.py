"""A cross-attention without the padding mask of the source.

In the translation example of Keras, the encoder masks the padding of the source, and the
self-attention of the decoder has a causal mask. The cross-attention received the padding mask of
the target, combined with the causal mask, instead of the padding mask of the source.

No error is raised, since the mask can be broadcast to the scores, and a trained model can learn to
give padded positions small weights. The correction of August 2022 shows the fault by printing the
masks that each layer receives for one pair of sequences.

:theme: padding
:source: https://github.com/keras-team/keras-io/pull/1046
:found by: padding amount
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coursework.museum.models import PADDED, LanguageModel, SelfAttention
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(LanguageModel):
    """A translator: self-attention of the source and of the target, and cross-attention."""

    def __init__(self) -> None:
        super().__init__()
        self.source_attention = SelfAttention()
        self.cross_query = nn.Linear(16, 16)
        self.cross_key_value = nn.Linear(16, 32)

    def cross_mask(self, source_is_real: Tensor) -> Tensor | None:
        # the fault: all keys of the source are attended to, the padded ones too
        return None

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        source_is_real = (source != 0)[:, None, :]  # (B, 1, S)
        memory = self.source_attention.attend(self.embed(source), source_is_real)
        x = self.attend(self.embed(target), causal=True)
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
    target = torch.tensor([[1, 4, 6, 9, 3], [1, 5, 2, 0, 0]])
    return check_soundness(model, (PADDED, target), padding_id=0)
