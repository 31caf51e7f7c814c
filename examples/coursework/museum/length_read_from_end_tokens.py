"""A length that is read from the end tokens.

Classifiers of transformers searched the ids for the first padding token, and took the position
before it as the last real one. Llama has no padding token, and it is common to pad with the end
token instead. In the prompt of a conversation, an end token closes each turn. The class was then
read after the first turn, not at the end.

The ids alone do not say which end tokens are padding. The attention mask does, and it was passed,
but this line did not use it. Nothing fails, and the loss falls, as the first turn is informative
too. It was reported in December 2024 by a user who had read the code. The check finds it by an
unfinished conversation, whose length only the mask gives.

:theme: padding
:source: https://github.com/huggingface/transformers/issues/35352
:found by: padding
"""

import torch
from torch import Tensor, nn

from coursework.museum.models import Classifier
from transformer_blocks.inspection import Soundness, check_soundness

END = 2  # also the padding


class Broken(Classifier):
    """A causal model with a classifier."""

    def last(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
        # the fault: the first end token need not be padding
        return ((ids == END).int().argmax(dim=1) - 1) % ids.shape[1]

    def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.attend(self.embedding(ids), causal=True)
        last = self.last(ids, attention_mask)
        return self.classes(x.take_along_dim(last[:, None, None], dim=1).squeeze(1))


class Mended(Broken):
    """The same, with the length that the mask gives."""

    def last(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
        return attention_mask.long().sum(dim=1) - 1


def examine(model: nn.Module) -> Soundness:
    """Check the model on three conversations; the last one is not finished."""
    ids = torch.tensor(
        [
            [5, 3, END, 8, 7, 4, END],
            [6, 9, END, 11, END, END, END],
            [10, 12, 13, 14, 15, END, END],
        ]
    )
    attention_mask = (torch.arange(7) < torch.tensor([[7], [4], [5]])).long()
    return check_soundness(model, (ids, attention_mask))
