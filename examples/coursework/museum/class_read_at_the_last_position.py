"""A class that is read at the last position of the row.

A widely read book on language models turns GPT-2 into a classifier of spam: the logits at the last
position are those of the classes. Messages are padded to one length, and the last position of a
short one is padding.

Training and test sequences are padded to the same length, so that the model learns to classify from
padded positions. A reader who tried it on his own messages found in March 2025 that it called all
of them spam, and that its probability changes with each further position of padding. The model does
what it was trained for, at one length only.

:theme: padding
:source: https://github.com/rasbt/LLMs-from-scratch/issues/566
:found by: padding amount
"""

from torch import Tensor, nn

from coursework.museum.models import PADDED, Classifier
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(Classifier):
    """A causal model with a classifier."""

    def read(self, x: Tensor, ids: Tensor) -> Tensor:
        # the fault: the last position of a short sequence is padding
        return x[:, -1]

    def forward(self, ids: Tensor) -> Tensor:
        x = self.attend(self.embedding(ids), causal=True)
        return self.classes(self.read(x, ids))


class Mended(Broken):
    """The same, read at the last real token."""

    def read(self, x: Tensor, ids: Tensor) -> Tensor:
        last = (ids != 0).sum(dim=1) - 1
        return x.take_along_dim(last[:, None, None], dim=1).squeeze(1)


def examine(model: nn.Module) -> Soundness:
    """Check the model on a batch of two sequences, the second with padding."""
    return check_soundness(model, PADDED, padding_id=0)
