"""The last token, counted from the left.

BioGPT classifies a sequence by its last token, and finds it by counting: a row with five real
tokens ends at position four. With padding on the left, the same count gives a position nearer to
the start of the row.

The other classifiers of transformers had similar lines, and a change of January 2025 corrected them
together, after a report about one of them. BioGPT, whose line is written differently, was missed.
It was found in June 2026: with padding on the left, the classes and the loss were wrong, with
neither an error nor a warning.

:theme: padding
:source: https://github.com/huggingface/transformers/pull/46782
:found by: padding
"""

import torch
from torch import Tensor, nn

from coursework.museum.models import LEFT_PADDED, Classifier
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(Classifier):
    """A causal model with a classifier."""

    def last(self, is_real: Tensor) -> Tensor:
        # the fault: right only if the padding is on the right
        return is_real.sum(dim=1) - 1

    def forward(self, ids: Tensor) -> Tensor:
        is_real, length = ids != 0, ids.shape[1]
        past = torch.ones(length, length, dtype=torch.bool, device=ids.device).tril()
        x = self.attend(self.embedding(ids), past & is_real[:, None, :])
        return self.classes(x.take_along_dim(self.last(is_real)[:, None, None], dim=1).squeeze(1))


class Mended(Broken):
    """The same, with the last position that is real, on whichever side the padding is."""

    def last(self, is_real: Tensor) -> Tensor:
        return (is_real * torch.arange(is_real.shape[1], device=is_real.device)).argmax(dim=1)


def examine(model: nn.Module) -> Soundness:
    """Check the model on a batch of two sequences, the second with padding on the left."""
    return check_soundness(model, LEFT_PADDED, padding_id=0)
