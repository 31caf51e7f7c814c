"""Searches: the ways to choose words, with their choices made.

Each calls a function of :mod:`transformer_blocks.generation`, which knows no more of the model than
how to take a step with it.
"""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from transformer_blocks import beam_search, greedy_search, sample
from transformer_blocks.generation import Generation, StepModel


class Search(Protocol):
    """Writes sentences with a model: a search of ``transformer_blocks`` with its choices made."""

    def __call__(
        self, model: StepModel, start: Tensor, *, end_id: int | None, max_length: list[int]
    ) -> list[list[Generation]]:
        """Return the sentences found for each of ``start``, best first; each has a length limit."""
        ...


@dataclass(frozen=True)
class Greedy:
    """Takes the likeliest token each time."""

    def __call__(
        self, model: StepModel, start: Tensor, *, end_id: int | None, max_length: list[int]
    ) -> list[list[Generation]]:
        """Return one sentence for each start."""
        found = greedy_search(model, start, end_id=end_id, max_length=max_length)
        return [[sentence] for sentence in found]


@dataclass(frozen=True)
class Beam:
    """Follows several beginnings.

    Attributes:
        size: How many.
        length_penalty: Larger favours longer sentences.
        n_best: How many sentences to return.
    """

    size: int
    length_penalty: float
    n_best: int = 1

    def __call__(
        self, model: StepModel, start: Tensor, *, end_id: int | None, max_length: list[int]
    ) -> list[list[Generation]]:
        """Return the best sentences for each start."""
        return beam_search(
            model,
            start,
            beam_size=self.size,
            end_id=end_id,
            max_length=max_length,
            length_penalty=self.length_penalty,
            n_best=self.n_best,
        )


@dataclass(frozen=True)
class Sample:
    """Draws tokens at random.

    Attributes:
        temperature: By which the logits are divided.
        top_k: Draw from so many tokens only.
        top_p: Draw from the fewest tokens with this probability together, among the ``top_k``.
        generator: Where the dice come from.
        n_best: How many sentences to draw.
    """

    temperature: float
    top_k: int | None
    top_p: float | None
    generator: torch.Generator
    n_best: int = 1

    def __call__(
        self, model: StepModel, start: Tensor, *, end_id: int | None, max_length: list[int]
    ) -> list[list[Generation]]:
        """Return the sentences drawn for each start, likeliest first."""
        rows = torch.arange(len(start)).repeat_interleave(self.n_best)
        model.reorder(rows)
        drawn = sample(
            model,
            start[rows],
            end_id=end_id,
            max_length=[max_length[row] for row in rows.tolist()],
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            generator=self.generator,
        )
        groups = [drawn[first : first + self.n_best] for first in range(0, len(drawn), self.n_best)]
        return [sorted(group, key=lambda each: each.score, reverse=True) for group in groups]
