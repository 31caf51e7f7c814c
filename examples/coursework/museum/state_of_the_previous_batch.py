"""A state that continues from the previous batch.

The recurrent layers of cudnn.torch kept the last hidden state of a call as the initial state of the
next one, unless the size of the batch changed. The function that should reset it had no effect.
Unrelated sequences were computed as if each were the continuation of another.

In training, most batches differed in size, and each change reset the state. The validation used one
size, and its results looked strange; this led to the report of March 2017. The shortest test is to
call a model twice with the same input: in evaluation mode, the outputs must be equal.

:theme: layout and modes
:source: https://github.com/soumith/cudnn.torch/issues/348
:found by: determinism
"""

import torch
from torch import Tensor, nn

from transformer_blocks.inspection import Soundness, check_soundness


class Broken(nn.Module):
    """A recurrent encoder that stores its last hidden state."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.GRU(16, 16, batch_first=True)
        self.hidden: Tensor | None = None

    def first_state(self, x: Tensor) -> Tensor | None:
        # the fault: only a batch of another size resets the state
        is_same_size = self.hidden is not None and self.hidden.shape[1] == len(x)
        return self.hidden if is_same_size else None

    def forward(self, x: Tensor) -> Tensor:
        outputs, hidden = self.encoder(x, self.first_state(x))
        self.hidden = hidden.detach()
        return outputs


class Mended(Broken):
    """The same, with an initial state of zeros in each call."""

    def first_state(self, x: Tensor) -> Tensor | None:
        return None


def examine(model: nn.Module) -> Soundness:
    """Check the model on a batch of two sequences."""
    return check_soundness(model, torch.randn(2, 6, 16))
