"""A causal mask that is no longer causal after a move.

In xformers, a mask for several sequences in one row has two classes: a bidirectional one, and a
causal one that inherits from it. The method that moves a mask to another device was written for the
first class, and makes a new object of that class. A causal mask is bidirectional after the move.

A test on the CPU moves no mask, and the moved mask has the right device, shape and blocks; only the
triangle is missing. The report of December 2024 (version 0.0.28.post3) prints the mask before and
after the move. The correction followed within days.

:theme: masks
:source: https://github.com/facebookresearch/xformers/issues/1185
:found by: causality
"""

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from coursework.museum.models import TOKENS, LanguageModel
from transformer_blocks.inspection import Soundness, check_soundness


@dataclass
class BrokenMask:
    """A mask, computed when it is needed."""

    device: torch.device | str = "cpu"

    def to(self, device: torch.device) -> "BrokenMask":
        # the fault: the result has this class, also if the mask has a subclass
        return BrokenMask(device=device)

    def tensor(self, length: int) -> Tensor:
        return torch.ones(length, length, dtype=torch.bool, device=self.device)


@dataclass
class BrokenCausalMask(BrokenMask):
    """A causal mask."""

    def tensor(self, length: int) -> Tensor:
        return super().tensor(length).tril()


class Broken(LanguageModel):
    """A causal language model that moves its mask to the device of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.mask = BrokenCausalMask()

    def forward(self, ids: Tensor) -> Tensor:
        mask = self.mask.to(ids.device).tensor(ids.shape[1])
        return self.output(self.attend(self.embed(ids), mask))


@dataclass
class MendedCausalMask(BrokenCausalMask):
    """The same, with a move that keeps the class."""

    def to(self, device: torch.device) -> BrokenMask:
        return dataclasses.replace(self, device=device)


class Mended(Broken):
    """The same with the mended mask."""

    def __init__(self) -> None:
        super().__init__()
        self.mask = MendedCausalMask()


def examine(model: nn.Module) -> Soundness:
    """Check the model on a batch of two sequences."""
    return check_soundness(model, TOKENS, causal=True)
