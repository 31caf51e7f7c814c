"""Searches: decoding methods with their options.

Each calls a function of :mod:`transformer_blocks.generation`, which uses only the decoding step of
a model.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from common.options import SamplingOptions
from transformer_blocks import beam_search, greedy_search, sample
from transformer_blocks.generation import Generation, StepModel

Search = Callable[..., list[list[Generation]]]
"""A search with its options: one of the classes below, or a function with the same arguments.

It is called with a step model, the start tokens, ``end_id``, and as ``max_length`` the limit of
each sequence. It returns the sequences found for each start token, best first.
"""

CANDIDATES = 5  # most probable tokens that are recorded at each position

Candidates = list[list[tuple[str, float]]]
"""For each position, the most probable tokens, with their probabilities."""


@dataclass(frozen=True)
class Greedy:
    """Greedy decoding: the most probable token at each step."""

    def __call__(self, model: StepModel, start: Tensor, **options: Any) -> list[list[Generation]]:
        """Return one sequence for each start."""
        return [[found] for found in greedy_search(model, start, **options)]


@dataclass(frozen=True)
class Beam:
    """Beam search.

    Attributes:
        size: Number of hypotheses in the beam.
        length_penalty: Exponent of the length penalty; larger values favour longer sequences.
        n_best: Number of sequences to return for each start.
    """

    size: int
    length_penalty: float
    n_best: int = 1

    def __call__(self, model: StepModel, start: Tensor, **options: Any) -> list[list[Generation]]:
        """Return the best hypotheses for each start."""
        return beam_search(
            model,
            start,
            beam_size=self.size,
            length_penalty=self.length_penalty,
            n_best=self.n_best,
            **options,
        )


@dataclass(frozen=True)
class Sample:
    """Sampling.

    The sequences of a start depend on it and on the seed, not on the other starts of the batch.

    Attributes:
        temperature: The temperature, by which the logits are divided.
        top_k: Sample from this number of most probable tokens only.
        top_p: Sample from the fewest tokens whose probabilities sum to this, among the ``top_k``.
        seed: The seed of the random numbers; if None, they differ at each call.
        n_best: Number of sequences to sample for each start.
    """

    temperature: float
    top_k: int | None
    top_p: float | None
    seed: int | None = None
    n_best: int = 1

    def __call__(
        self, model: StepModel, start: Tensor, *, max_length: list[int], **options: Any
    ) -> list[list[Generation]]:
        """Return the sequences sampled for each start, most probable first."""
        rows = torch.arange(len(start)).repeat_interleave(self.n_best)
        model.reorder(rows)
        sampled = sample(
            model,
            start[rows],
            max_length=[max_length[row] for row in rows.tolist()],
            temperature=self.temperature,
            top_k=self.top_k,
            top_p=self.top_p,
            generator=row_generators(self.seed, len(start), self.n_best),
            **options,
        )
        groups = [
            sampled[first : first + self.n_best] for first in range(0, len(sampled), self.n_best)
        ]
        return [sorted(group, key=lambda each: each.score, reverse=True) for group in groups]


def most_probable(probabilities: Tensor, subwords: Callable[[list[int]], list[str]]) -> Candidates:
    """Return the most probable tokens of each position, from probabilities of shape (L, V)."""
    values, tokens = probabilities.topk(min(CANDIDATES, probabilities.shape[-1]))
    return [
        list(zip(subwords(ids), of_each, strict=True))
        for ids, of_each in zip(tokens.tolist(), values.tolist(), strict=True)
    ]


def sampling_or_greedy(options: SamplingOptions, *, greedy: bool) -> Search:
    """Make the decoding method of a command line that has such options."""
    if greedy:
        return Greedy()
    return Sample(options.temperature or 1.0, options.top_k, options.top_p, options.seed)


def row_generators(seed: int | None, starts: int, copies: int) -> list[torch.Generator]:
    """Make a generator of random numbers for each row of a batch.

    Args:
        seed: The seed; if None, all generators differ at each call.
        starts: Number of starts.
        copies: Number of adjacent rows for each start.

    Returns:
        The generators. Those of different copies have different random numbers; those of the same
        copy of each start have the same ones, so that a row does not depend on the other starts.
    """
    generators = [torch.Generator() for _ in range(starts * copies)]
    for row, generator in enumerate(generators):
        if seed is None:
            generator.seed()
        else:
            generator.manual_seed(random.Random(f"{seed} {row % copies}").getrandbits(63))
    return generators
