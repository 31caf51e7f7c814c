"""Sampling: tokens are drawn with the probabilities of the model."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
import transformers
from hypothesis import given
from hypothesis import strategies as st
from tests.generation.prefix_model import END, generate
from torch import Tensor

from transformer_blocks import sample


class ConstantDistribution:
    """Gives the next token the same distribution, whatever precedes it."""

    def __init__(self, probabilities: Tensor) -> None:
        self.probabilities = probabilities

    def step(self, tokens: Tensor) -> Tensor:
        return self.probabilities.log().expand(len(tokens), -1)

    def reorder(self, rows: Tensor) -> None: ...


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def draw(probabilities: Tensor, count: int, **options: Any) -> list[int]:
    """Draw a number of tokens from a distribution."""
    model, start = ConstantDistribution(probabilities), torch.zeros(count, dtype=torch.int64)
    drawn = sample(model, start, end_id=None, max_length=1, generator=seeded(), **options)
    return [token for each in drawn for token in each.tokens]


def tokens_of(starts: Sequence[int], seed: int, **options: Any) -> list[list[int]]:
    """Sample from the logits of prefixes, and return the tokens."""
    return [each.tokens for each in generate(sample, starts, generator=seeded(seed), **options)]


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
        drawn = draw(probabilities, 3000, temperature=1.5, top_k=top_k, top_p=top_p)
        counts = torch.tensor(drawn).bincount(minlength=10)
        assert not counts[expected == 0].any()
        deviation = (expected * (1 - expected) / 3000).sqrt()
        assert ((counts / 3000 - expected).abs() <= 4.5 * deviation).all()


@given(st.lists(st.integers(1, 50), max_size=6), st.integers(1, 8))
def test_a_sequence_does_not_depend_on_when_others_finish(
    starts: list[int], max_length: int
) -> None:
    ended, endless = (
        tokens_of(starts, seed=0, end_id=end_id, max_length=max_length) for end_id in (END, None)
    )
    for short, long in zip(ended, endless, strict=True):
        assert short == (long[: long.index(END)] if END in long else long)


def test_the_same_generator_state_gives_the_same_sequences() -> None:
    first, again, other = (tokens_of(range(1, 20), seed, max_length=6) for seed in (1, 1, 2))
    assert first == again != other


def test_top_p_keeps_no_token_beyond_the_one_with_which_its_mass_is_reached() -> None:
    quarters = torch.full((4,), 0.25)  # whose sums are exact
    assert len(set(draw(quarters, 200, top_p=0.5))) == 2


def test_a_token_of_probability_0_is_never_drawn() -> None:
    drawn = draw(torch.tensor([0.0, 0.5, 0.0, 0.5, 0.0]), 500, temperature=50.0)
    assert set(drawn) == {1, 3}


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


@pytest.mark.parametrize("temperature", [0, 0.0, -1.0])
def test_a_temperature_of_zero_names_the_search_that_it_stands_for(temperature: float) -> None:
    message = r"^temperature must be positive \(greedy_search takes the most probable token\), got "
    with pytest.raises(ValueError, match=message):
        draw(torch.ones(3), 1, temperature=temperature)
