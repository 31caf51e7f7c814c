"""Positions counted through the padding on the left.

A tool that records the activations of language models puts several prompts into one batch with
padding on the left, and passes the ids and the mask to GPT-2, but no positions. The model then
counts them from the start of the row: the first real token of a short prompt is not at position
zero.

The mask is right, so that padding is not attended to, and the longest prompt of each batch is
right. All shorter ones are computed at shifted positions. The report of June 2026 measures the
effect: one padded position changes the most probable next token for most prompts, two change it for
all. There was no error.

:theme: padding
:source: https://github.com/ndif-team/nnsight/issues/672
:found by: batch
"""

import torch
from torch import Tensor, nn

from coursework.museum.models import LEFT_PADDED, LanguageModel
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(LanguageModel):
    """A causal language model with learned positions."""

    def __init__(self) -> None:
        super().__init__()
        self.positional = nn.Embedding(32, 16)

    def positions(self, attention_mask: Tensor) -> Tensor:
        # the fault: the padding is counted
        return torch.arange(attention_mask.shape[1], device=attention_mask.device)

    def forward(self, ids: Tensor, attention_mask: Tensor) -> Tensor:
        x = self.embedding(ids) + self.positional(self.positions(attention_mask))
        length = ids.shape[1]
        past = torch.ones(length, length, dtype=torch.bool, device=ids.device).tril()
        return self.output(self.attend(x, past & attention_mask.bool()[:, None, :]))


class Mended(Broken):
    """The same, with positions counted along the real tokens of each row."""

    def positions(self, attention_mask: Tensor) -> Tensor:
        return (attention_mask.cumsum(dim=1) - 1).clamp(min=0)


def examine(model: nn.Module) -> Soundness:
    """Check the model on a batch of two prompts, the second with padding on the left."""
    attention_mask = (LEFT_PADDED != 0).long()
    return check_soundness(model, (LEFT_PADDED, attention_mask), causal=True, padding_id=0)
