"""A padding mask read from vectors that are no longer zero.

An early implementation in TensorFlow stored no padding mask. Padding has an embedding of zeros, so
each attention layer summed its keys over their components: where the sum is zero, there is padding.
But the positional encoding had already been added, so that no key was zero, and no padding was
masked.

The code ran without an error. A short correction of January 2019 names this and a second, rarer
fault: the sum was taken before the absolute value, so that positive and negative components of a
real token could cancel, and it was masked as padding.

:theme: padding
:source: https://github.com/Kyubyong/transformer/pull/69
:found by: padding amount
"""

from torch import Tensor, nn

from coursework.museum.models import PADDED, Encoder
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(Encoder):
    """An encoder that finds the padding itself."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16, padding_idx=0)  # zeros for token 0

    def is_real(self, embedded: Tensor, x: Tensor) -> Tensor:
        # the fault: the positional encoding makes padding differ from zero
        return x.abs().sum(dim=-1) != 0

    def forward(self, ids: Tensor) -> Tensor:
        embedded = self.embedding(ids)
        x = self.positional_encoding(embedded)
        return self.attend(x, self.is_real(embedded, x)[:, None, :])


class Mended(Broken):
    """The same, with the mask read before the positions are added."""

    def is_real(self, embedded: Tensor, x: Tensor) -> Tensor:
        return embedded.abs().sum(dim=-1) != 0


def examine(model: nn.Module) -> Soundness:
    """Check the model on a batch of two sequences, the second with padding."""
    return check_soundness(model, PADDED, padding_id=0)
