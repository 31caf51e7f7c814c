"""A step model whose logits depend on the whole prefix of a row: a wrong row has other logits."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from transformer_blocks.generation import Generation

END, VOCABULARY_SIZE = 0, 6


class PrefixModel:
    """Logits are random numbers, seeded by the prefix of the row.

    Attributes:
        prefixes: The tokens of each row so far.
        batch_sizes: The number of rows in each step.
        reorderings: The arguments of each call of ``reorder``.
    """

    def __init__(self, rows: int) -> None:
        self.prefixes: list[tuple[int, ...]] = [()] * rows
        self.batch_sizes: list[int] = []
        self.reorderings: list[list[int]] = []

    def step(self, tokens: Tensor) -> Tensor:
        self.batch_sizes.append(len(tokens))
        pairs = zip(self.prefixes, tokens.tolist(), strict=True)
        self.prefixes = [(*prefix, token) for prefix, token in pairs]
        return torch.stack([self.logits(prefix) for prefix in self.prefixes])

    def reorder(self, rows: Tensor) -> None:
        self.reorderings.append(rows.tolist())
        self.prefixes = [self.prefixes[row] for row in rows.tolist()]

    @staticmethod
    def logits(prefix: tuple[int, ...]) -> Tensor:
        seed = sum((place + 1) * token for place, token in enumerate(prefix))
        generator = torch.Generator().manual_seed(seed)
        return torch.randn(VOCABULARY_SIZE, generator=generator, dtype=torch.float64)


def generate(
    search: Callable[..., list[Any]], starts: Sequence[int], *, end_id: Any = END, **options: Any
) -> list[Any]:
    """Search from each of these first tokens, in one batch."""
    start = torch.tensor(starts, dtype=torch.int64)
    return search(PrefixModel(len(starts)), start, end_id=end_id, **options)


def penalised(found: Generation, alpha: float) -> float:
    return found.score / ((5 + len(found.tokens) + found.finished) / 6) ** alpha


def textbook(
    first: int,
    *,
    beam_size: int,
    ends: tuple[int, ...],
    max_length: int,
    alpha: float = 0.0,
    lookahead: int | None = None,
) -> list[Generation]:
    """Beam search for one sequence, over lists; greedy decoding with one beam."""
    beams: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    finished: list[Generation] = []
    for length in range(1, max_length + 1):
        candidates = [
            (score + log_probability, (*path, token))
            for score, path in beams
            for token, log_probability in enumerate(
                PrefixModel.logits((first, *path)).log_softmax(-1).tolist()
            )
        ]
        candidates.sort(reverse=True)
        for score, path in candidates[:beam_size]:
            if path[-1] in ends:
                finished.append(Generation(list(path[:-1]), score, finished=True))
        beams = [each for each in candidates if each[1][-1] not in ends][:beam_size]
        if len(finished) >= beam_size:
            reach = min(length + (lookahead or 0), max_length)
            best_possible = penalised(Generation([END] * reach, beams[0][0], finished=False), alpha)
            worst = sorted((penalised(each, alpha) for each in finished), reverse=True)[
                beam_size - 1
            ]
            if lookahead is None or best_possible <= worst:
                break
    else:
        finished += [Generation(list(path), score, finished=False) for score, path in beams]
    return sorted(finished, key=lambda each: (each.finished, penalised(each, alpha)), reverse=True)


def assert_same(found: list[Generation], expected: list[Generation]) -> None:
    assert [each.tokens for each in found] == [each.tokens for each in expected]
    assert [each.finished for each in found] == [each.finished for each in expected]
    scores = [each.score for each in expected]
    assert [each.score for each in found] == pytest.approx(scores, abs=1e-9)
