"""A mean that includes the padding.

A sentence is often represented by the mean of its output vectors. The author of this thread of May
2022 computed the mean over all positions of the batch, and found that the vector of a sentence
depends on the batch size: the encoder masks padded keys, but its outputs at padded positions are
vectors like any others.

It was reported as a bug of the library, whose outputs the author expected to be zero at padded
positions. Nothing fails: the vectors have the right shape, similar sentences still have similar
vectors, and a sentence that is processed alone has the right one.

:theme: padding
:source: https://github.com/huggingface/transformers/issues/17463
:found by: padding amount
"""

from torch import Tensor, nn

from coursework.museum.models import PADDED, Encoder
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(Encoder):
    """An encoder of sentences."""

    def pool(self, x: Tensor, is_real: Tensor) -> Tensor:
        # the fault: the outputs at padded positions are part of the mean
        return x.mean(dim=1)

    def forward(self, ids: Tensor, is_real: Tensor) -> Tensor:
        x = self.attend(self.embedding(ids), is_real[:, None, :])
        return self.pool(x, is_real)


class Mended(Broken):
    """The same, with the mean over the real tokens."""

    def pool(self, x: Tensor, is_real: Tensor) -> Tensor:
        weights = is_real[:, :, None].to(x.dtype)
        return (x * weights).sum(dim=1) / weights.sum(dim=1)


def examine(model: nn.Module) -> Soundness:
    """Check the model on a batch of two sentences, the second with padding."""
    return check_soundness(model, (PADDED, PADDED != 0), padding_id=0)
