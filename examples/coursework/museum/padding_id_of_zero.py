"""A padding id of zero that counts as missing.

NeMo Automodel chose the id of the padding by ``padding_id or end_id``, so that the end token is
used for a tokenizer without a padding token. For some tokenizers the id of the padding is zero, and
in Python zero is false: the expression gives the end token, and the padding is not recognised.

The labels at padded positions are ignored, so the loss looks normal; only the attention is wrong.
The correction, proposed in August 2026, came with a count: of the 150 tokenizers in the examples of
the project, 6 are affected by this fault, and 30 by a second one in the same function, which
concerns padding on the left.

:theme: padding
:source: https://github.com/NVIDIA-NeMo/Automodel/pull/3704
:found by: padding amount
"""

import torch
from torch import Tensor, nn

from coursework.museum.models import Encoder
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(Encoder):
    """An encoder that masks the padding of its tokenizer."""

    def __init__(self, padding_id: int | None = 0, end_id: int = 1) -> None:
        super().__init__()
        self.padding_id = self.choose(padding_id, end_id)

    def choose(self, padding_id: int | None, end_id: int) -> int:
        # the fault: zero is an id, and it is false
        return padding_id or end_id

    def forward(self, ids: Tensor) -> Tensor:
        return self.attend(self.embed(ids), (ids != self.padding_id)[:, None, :])


class Mended(Broken):
    """The same, with the end token only if there is no padding token."""

    def choose(self, padding_id: int | None, end_id: int) -> int:
        return end_id if padding_id is None else padding_id


def examine(model: nn.Module) -> Soundness:
    """Check the model on a batch of two sequences with end tokens, the second with padding."""
    ids = torch.tensor([[5, 3, 8, 2, 7, 1], [6, 9, 1, 0, 0, 0]])
    return check_soundness(model, ids, padding_id=0)
