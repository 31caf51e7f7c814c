"""Experts that choose among earlier and later tokens.

In a mixture of experts, each token chooses experts. With "expert choice", each expert chooses the
tokens with the largest scores instead, so that all experts have the same load. But whether a token
is chosen then depends on the scores of the others in the sequence, also on those of later tokens.

A language model whose layers choose so can encode the future in the choice, and its loss in
training is lower than it can be when it generates. The shapes are right, and in training nothing
looks wrong. The authors of DeepSeek's balancing without a loss describe the leak in August 2024,
and estimate how many bits a layer can pass on.

:theme: layout and modes
:source: https://arxiv.org/abs/2408.15664
:found by: causality
"""

import torch
from torch import Tensor, nn

from coursework.museum.models import TOKENS, LanguageModel
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(LanguageModel):
    """A language model of one layer with four experts."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(16, 4, bias=False)
        self.experts = nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def is_chosen(self, scores: Tensor) -> Tensor:
        """Return for scores (B, L, 4) which expert computes which token."""
        # the fault: the tokens of a sequence compete with each other
        limit = scores.topk(2, dim=1).values[:, -1:]
        return scores >= limit

    def forward(self, ids: Tensor) -> Tensor:
        """Compute the logits (B, L, 20) of tokens (B, L)."""
        x = self.attend(self.embed(ids), causal=True)
        scores = self.router(x).softmax(dim=-1)
        weights = scores * self.is_chosen(scores)
        outputs = torch.stack([expert(x) for expert in self.experts], dim=-1)
        return self.output(x + (outputs * weights[:, :, None]).sum(dim=-1))


class Mended(Broken):
    """Lets each token choose its two experts."""

    def is_chosen(self, scores: Tensor) -> Tensor:
        """Return for scores (B, L, 4) which expert computes which token."""
        return scores >= scores.topk(2, dim=-1).values[..., -1:]


def examine(model: nn.Module) -> Soundness:
    """Check the language model, which must be causal."""
    return check_soundness(model, TOKENS, causal=True)
