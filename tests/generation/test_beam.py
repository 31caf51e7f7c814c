"""Beam search, compared with a textbook version and with an exhaustive search."""

import math
from itertools import pairwise, product
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from tests.generation.prefix_model import (
    END,
    VOCABULARY_SIZE,
    PrefixModel,
    assert_same,
    generate,
    textbook,
)
from torch import Tensor

from transformer_blocks import beam_search
from transformer_blocks.generation import Generation


@given(
    st.lists(st.integers(1, 50), max_size=5),
    st.integers(1, VOCABULARY_SIZE),
    st.integers(1, 10),
    st.sampled_from([0.0, 0.6, 3.0]),
    st.sampled_from([None, 0, 2, 99]),
    st.sampled_from([(END,), (END, 3), (1, 2, 4)]),
)
@example(list(range(1, 40)), 2, 8, 3.0, 0, (1, 2, 4))  # all beams may end, with any of the tokens
@example(list(range(1, 40)), 2, 8, 3.0, 9, (1, 2, 4))
def test_a_batch_finds_what_a_textbook_search_finds_for_each_sequence(
    starts: list[int],
    beam_size: int,
    max_length: int,
    alpha: float,
    lookahead: int | None,
    ends: tuple[int, ...],
) -> None:
    options: dict[str, Any] = {
        "beam_size": beam_size,
        "max_length": max_length,
        "lookahead": lookahead,
    }
    end_id = ends[0] if len(ends) == 1 else ends
    found = generate(
        beam_search, starts, **options, end_id=end_id, length_penalty=alpha, n_best=beam_size
    )
    for first, best in zip(starts, found, strict=True):
        expected = textbook(first, **options, ends=ends, alpha=alpha)
        assert_same(best, expected[:beam_size])


def test_beams_of_a_sequence_are_adjacent() -> None:
    model, beam_size = PrefixModel(10), 4
    beam_search(model, torch.arange(1, 11), beam_size=beam_size, end_id=END, max_length=6)
    owners = list(range(10))
    for rows in model.reorderings:
        owners = [owners[row] for row in rows]
        assert [owner for owner in owners[::beam_size] for _ in range(beam_size)] == owners
        assert len(set(owners)) * beam_size == len(owners)
    assert len(owners) < 40


def test_where_few_sequences_are_possible_fewer_are_returned() -> None:
    class Narrow(PrefixModel):
        """Allows one next token after each: 1, 2, 3, ... 8, then the end token."""

        def step(self, tokens: Tensor) -> Tensor:
            logits = torch.full((len(tokens), 9), -math.inf)
            return logits.scatter(1, (tokens[:, None] + 1) % 9, 0.0)

    for beam_size, max_length in product((1, 2, 4, 9), (3, 20)):
        sizes = {"beam_size": beam_size, "n_best": beam_size, "max_length": max_length}
        (found,) = beam_search(Narrow(1), torch.tensor([1]), end_id=END, **sizes)
        tokens = [2, 3, 4, 5, 6, 7, 8][:max_length]
        assert found == [Generation(tokens, 0.0, finished=max_length == 20)]


def test_a_repeated_beam_is_never_extended_by_a_token_of_probability_0() -> None:
    never = -math.inf
    logits = torch.tensor(
        [[never] * 4, [0.0, never, never, 1.0], [0.0, never, never, 1.0], [never, 1.0, 1.0, never]]
    )

    class Trie(PrefixModel):
        """Gives every token that follows token 0 a probability of 0."""

        def step(self, tokens: Tensor) -> Tensor:
            return logits[tokens]

    (found,) = beam_search(
        Trie(1), torch.tensor([3]), beam_size=3, end_id=0, max_length=4, n_best=3
    )
    assert len(found) == 3
    for each in found:
        path = [3, *each.tokens] + [0] * each.finished
        assert all(logits[token, then] > never for token, then in pairwise(path))


class Chain(PrefixModel):
    """Tokens with these probabilities after each token, whatever precedes it."""

    def __init__(self, *probabilities: list[float]) -> None:
        super().__init__(1)
        self.table = torch.tensor(probabilities, dtype=torch.float64).log()

    def step(self, tokens: Tensor) -> Tensor:
        super().step(tokens)
        return self.table[tokens]


def test_of_equally_good_finished_hypotheses_the_one_that_finished_first_comes_first() -> None:
    model = Chain([0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0])
    options: dict[str, Any] = {"beam_size": 2, "n_best": 2, "end_id": 0, "length_penalty": 0.0}
    (found,) = beam_search(model, torch.tensor([2]), max_length=5, **options)
    assert [each.tokens for each in found] == [[], [1]]
    assert found[0].score == found[1].score


def test_a_hypothesis_that_can_only_become_as_good_is_not_waited_for() -> None:
    model = Chain([1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.4, 0.4, 0.2])
    options: dict[str, Any] = {"beam_size": 2, "end_id": 0, "length_penalty": 0.0}
    beam_search(model, torch.tensor([2]), max_length=9, lookahead=0, **options)
    assert model.batch_sizes == [1, 2]  # 0.4 and 0.2 are finished, and the best other is 0.2


@given(st.integers(1, 50), st.integers(1, 4))
def test_a_search_is_over_as_soon_as_enough_hypotheses_are_finished(
    first: int, beam_size: int
) -> None:
    model = PrefixModel(1)
    beam_search(model, torch.tensor([first]), beam_size=beam_size, end_id=END, max_length=12)

    def count_finished(steps: int) -> int:
        found = textbook(first, beam_size=beam_size, ends=(END,), max_length=steps, alpha=0.0)
        return sum(each.finished for each in found)

    enough = [steps for steps in range(1, 13) if count_finished(steps) >= beam_size]
    assert len(model.batch_sizes) == min([*enough, 12])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"beam_size": 7}, "beam_size must not exceed the vocabulary size, got beam_size=7 and 6"),
        ({"n_best": 4}, "n_best must not exceed beam_size, got n_best=4 and beam_size=3$"),
    ],
)
def test_more_beams_or_results_than_there_are_is_refused(
    options: dict[str, int], message: str
) -> None:
    sizes = {"beam_size": 3} | options
    with pytest.raises(ValueError, match=f"^{message}"):
        generate(beam_search, [1], max_length=5, **sizes)
