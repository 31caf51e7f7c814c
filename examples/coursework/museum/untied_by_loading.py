"""Tied weights that are untied by loading.

An output layer is often the same parameter as the embedding. To save memory, a state dict can be
loaded with assign=True, which makes its tensors the parameters. Each name then has a parameter of
its own, and the two weights are no longer one.

Right after loading they hold the same numbers, and all outputs are right. The fault shows if the
training continues: the two drift apart, and the optimiser treats them as two. The issue on torch is
of June 2026. In Lingua, a program for training language models, tied weights came apart in another
way (January 2025): the training loss fell, and the validation loss did not.

:theme: weights
:source: https://github.com/pytorch/pytorch/issues/188346
:found by: loading
"""

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from coursework.museum.models import TOKENS, LanguageModel
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(LanguageModel):
    """A causal language model whose output layer is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.tie()

    def tie(self) -> None:
        """Make the output layer share the parameter of the embedding."""
        self.output.weight = self.embedding.weight

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load weights without a second copy of them in memory."""
        # the fault: each name gets a parameter of its own
        return super().load_state_dict(state_dict, strict=strict, assign=True)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits (B, L, V) of tokens (B, L)."""
        return self.output(self.attend(self.embed(tokens), causal=True))


class Mended(Broken):
    """Ties the weights again after loading."""

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Load weights without a second copy of them in memory."""
        result = super().load_state_dict(state_dict, strict=strict, assign=True)
        self.tie()
        return result


def examine(model: Broken) -> Soundness:
    """Run all checks on the model as a causal one."""
    return check_soundness(model, TOKENS, causal=True)
