"""Searches: the decoding methods of the programs, each a function of the library with its options.

A search is called with a step model, the start tokens, ``end_id``, and as ``max_length`` the limit
of each sequence. It returns one sequence for each start token.
"""

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from common.options import SamplingOptions
from transformer_blocks import beam_search, sample
from transformer_blocks.generation import Generation, StepModel

Search = Callable[..., list[Generation]]
"""A search with its options: the library's ``greedy_search``, or what a function below returns."""

CANDIDATES = 5  # most probable tokens that are recorded at each position

Candidates = list[list[tuple[str, float]]]
"""For each position, the most probable tokens, with their probabilities."""


def beam(size: int, length_penalty: float) -> Search:
    """Make a beam search.

    Args:
        size: Number of hypotheses in the beam.
        length_penalty: Exponent of the length penalty; larger values favour longer sequences.
    """

    def search(*arguments: Any, **options: Any) -> list[Generation]:
        settings = {"beam_size": size, "length_penalty": length_penalty, **options}
        return [best for best, *_ in beam_search(*arguments, **settings)]

    return search


def sampling(options: SamplingOptions) -> Search:
    """Make sampling with the options of a command line.

    The sequence of a start depends on it and on the seed, not on the other starts of the batch.

    Args:
        options: The options.
    """

    def search(model: StepModel, start: Tensor, **limits: Any) -> list[Generation]:
        generators = [torch.Generator() for _ in start]
        for generator in generators:
            if options.seed is None:
                generator.seed()
            else:
                generator.manual_seed(random.Random(f"{options.seed} 0").getrandbits(63))
        return sample(
            model,
            start,
            temperature=options.temperature or 1.0,
            top_k=options.top_k,
            top_p=options.top_p,
            generator=generators,
            **limits,
        )

    return search


def most_probable(probabilities: Tensor, subwords: Callable[[list[int]], list[str]]) -> Candidates:
    """Return the most probable tokens of each position, from probabilities of shape (L, V)."""
    values, tokens = probabilities.topk(min(CANDIDATES, probabilities.shape[-1]))
    return [
        list(zip(subwords(ids), of_each, strict=True))
        for ids, of_each in zip(tokens.tolist(), values.tolist(), strict=True)
    ]
