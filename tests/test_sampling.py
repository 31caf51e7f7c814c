"""Sampling: tokens are drawn with the probabilities of the model."""

from typing import Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tests.prefix_model import END, PrefixModel
from torch import Tensor

from transformer_blocks import greedy_search, sample


class ConstantDistribution:
    """Gives the next token the same distribution, whatever precedes it."""

    def __init__(self, probabilities: Tensor) -> None:
        self.probabilities = probabilities

    def step(self, tokens: Tensor) -> Tensor:
        return self.probabilities.log().expand(len(tokens), -1)

    def reorder(self, rows: Tensor) -> None: ...


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize(
    ("top_k", "top_p"),
    [(None, None), (None, 0.5), (1, 0.8), (3, None), (3, 0.8), (7, 0.95), (99, 0.2)],
)
def test_top_k_and_top_p_draw_from_the_tokens_that_transformers_draws_from(
    top_k: int | None, top_p: float | None
) -> None:
    warpers: list[Any] = [transformers.TemperatureLogitsWarper(1.5)]
    warpers += [transformers.TopKLogitsWarper(top_k)] if top_k else []
    warpers += [transformers.TopPLogitsWarper(top_p)] if top_p else []
    for seed in range(5):
        probabilities = (2 * torch.randn(10, generator=seeded(seed))).softmax(-1)
        logits = probabilities.log()[None]
        for warper in warpers:
            logits = warper(torch.zeros(1, 1, dtype=torch.int64), logits)
        expected = logits.softmax(-1)[0]
        drawn = sample(
            ConstantDistribution(probabilities),
            torch.zeros(draws := 3000, dtype=torch.int64),
            end_id=None,
            max_length=1,
            temperature=1.5,
            top_k=top_k,
            top_p=top_p,
            generator=seeded(),
        )
        counts = torch.tensor([each.tokens[0] for each in drawn]).bincount(minlength=10)
        assert not counts[expected == 0].any()
        deviation = (expected * (1 - expected) / draws).sqrt()
        assert ((counts / draws - expected).abs() <= 4.5 * deviation).all()


@given(st.lists(st.integers(1, 50), max_size=6), st.integers(1, 8))
def test_a_sequence_does_not_depend_on_when_others_finish(
    starts: list[int], max_length: int
) -> None:
    start = torch.tensor(starts, dtype=torch.int64)

    class Endless(PrefixModel):
        def reorder(self, rows: Tensor) -> None:
            raise AssertionError("no sequence is finished")

    def draw(model: PrefixModel, end_id: int | None) -> list[list[int]]:
        drawn = sample(model, start, end_id=end_id, max_length=max_length, generator=seeded())
        return [each.tokens for each in drawn]

    for short, long in zip(
        draw(PrefixModel(len(starts)), END),
        draw(Endless(len(starts)), None),
        strict=True,
    ):
        assert short == (long[: long.index(END)] if END in long else long)


def test_sampling_from_the_most_probable_token_is_greedy_decoding_with_the_same_scores() -> None:
    start = torch.arange(1, 20)
    greedy = greedy_search(PrefixModel(19), start, end_id=END, max_length=6)
    assert sample(PrefixModel(19), start, end_id=END, max_length=6, top_k=1) == greedy
    cold = sample(PrefixModel(19), start, end_id=END, max_length=6, temperature=1e-300)
    assert cold == greedy


def test_the_same_generator_state_gives_the_same_sequences() -> None:
    start = torch.arange(1, 20)

    def draw(seed: int) -> list[list[int]]:
        drawn = sample(PrefixModel(19), start, end_id=END, max_length=6, generator=seeded(seed))
        return [each.tokens for each in drawn]

    assert draw(1) == draw(1) != draw(2)


def test_top_p_keeps_no_token_beyond_the_one_with_which_its_mass_is_reached() -> None:
    (drawn,) = sample(
        ConstantDistribution(torch.full((4,), 0.25)),  # sums of quarters are exact
        torch.zeros(1, dtype=torch.int64),
        end_id=None,
        max_length=200,
        top_p=0.5,
        generator=seeded(),
    )
    assert len(set(drawn.tokens)) == 2


def test_a_token_of_probability_0_is_never_drawn() -> None:
    (drawn,) = sample(
        ConstantDistribution(torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0])),
        torch.zeros(1, dtype=torch.int64),
        end_id=None,
        max_length=500,
        temperature=50.0,
        generator=seeded(),
    )
    assert set(drawn.tokens) == {1, 3}


def test_logits_of_another_shape_are_refused() -> None:
    class DoubledBatch(ConstantDistribution):
        def step(self, tokens: Tensor) -> Tensor:
            return super().step(torch.cat((tokens, tokens)))

    with pytest.raises(
        ValueError, match=r"^logits must have shape \(N, V\) = \(1, V\), got \(2, 5"
    ):
        sample(
            DoubledBatch(torch.ones(5)), torch.zeros(1, dtype=torch.int64), end_id=0, max_length=3
        )
