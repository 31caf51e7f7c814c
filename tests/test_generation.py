"""Greedy search, over a model whose scores depend on all that a row has written."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.storyteller import END, VOCABULARY, Storyteller
from torch import Tensor

from transformer_blocks import beam_search, build_decoder, greedy_search, sample
from transformer_blocks.generation import Generation
from transformer_blocks.generation.stepping import top_k
from transformer_blocks.inference import prepare


def tell_alone(first: int, max_length: int) -> Generation:
    """Greedy search for one row, without batches."""
    past: tuple[int, ...] = (first,)
    score = 0.0
    while len(past) <= max_length:
        scores = Storyteller.scores(past).tolist()
        best = max(range(VOCABULARY), key=scores.__getitem__)
        score += scores[best] - math.log(sum(map(math.exp, scores)))
        if best == END:
            return Generation(list(past[1:]), score, ended=True)
        past = (*past, best)
    return Generation(list(past[1:]), score, ended=False)


@given(st.lists(st.integers(1, 50), max_size=6), st.integers(1, 8))
def test_a_batch_writes_what_each_would_write_alone_in_the_given_order(
    starts: list[int], max_length: int
) -> None:
    together = greedy_search(
        Storyteller(len(starts)),
        torch.tensor(starts, dtype=torch.int64),
        end_id=END,
        max_length=max_length,
    )
    alone = [tell_alone(first, max_length) for first in starts]
    assert [each.tokens for each in together] == [each.tokens for each in alone]
    assert [each.ended for each in together] == [each.ended for each in alone]
    scores = [each.score for each in together]
    assert scores == pytest.approx([each.score for each in alone], abs=1e-4)


def test_sentences_that_ended_leave_the_batch() -> None:
    starts = range(1, 30)
    model = Storyteller(len(starts))
    stories = greedy_search(model, torch.tensor(starts), end_id=END, max_length=6)
    lengths = [len(story.tokens) + story.ended for story in stories]
    assert len(set(lengths)) > 3  # they end at different steps
    assert model.batches == [sum(n >= step for n in lengths) for step in range(1, 7)]
    for rows in model.selections:
        stay = [row for place, row in enumerate(rows) if place == row]
        moved = set(rows) - set(stay)  # from the end, into the places of those that left
        assert len(stay) + len(moved) == len(rows)
        assert all(row >= len(rows) for row in moved)


def test_a_model_is_not_asked_again_once_all_have_ended() -> None:
    class Mute:
        steps = 0

        def step(self, tokens: Tensor) -> Tensor:
            self.steps += 1
            return torch.eye(VOCABULARY)[[END] * len(tokens)]

        def reorder(self, rows: Tensor) -> None: ...

    model = Mute()
    stories = greedy_search(model, torch.tensor([3, 4]), end_id=END, max_length=100)
    assert model.steps == 1
    assert [(story.tokens, story.ended) for story in stories] == [([], True)] * 2


def test_a_sentence_that_never_ends_stops_at_max_length() -> None:
    model = Storyteller(2)
    stories = greedy_search(model, torch.tensor([3, 4]), end_id=None, max_length=7)
    assert [(len(story.tokens), story.ended) for story in stories] == [(7, False)] * 2
    assert model.selections == []  # nobody left


@pytest.mark.parametrize("end_id", [None, END])
@pytest.mark.parametrize(
    "search",
    [
        greedy_search,
        partial(sample, top_k=1),
        partial(beam_search, beam_size=3),
        partial(beam_search, beam_size=3, lookahead=9),
    ],
)
def test_a_sentence_with_its_own_max_length_is_written_as_if_alone(
    search: Callable[..., list[Any]], end_id: int | None
) -> None:
    starts, lengths = [3, 4, 1, 5, 2], [7, 2, 9, 1, 4]
    together = search(Storyteller(5), torch.tensor(starts), end_id=end_id, max_length=lengths)
    for found, start, length in zip(together, starts, lengths, strict=True):
        (alone,) = search(Storyteller(1), torch.tensor([start]), end_id=end_id, max_length=length)
        assert found == alone
    for wrong in (lengths[:4], [*lengths, 1], []):
        with pytest.raises(ValueError, match="one for each of the 5 sentences"):
            search(Storyteller(5), torch.tensor(starts), end_id=end_id, max_length=wrong)


class Broken(Storyteller):
    """Writes two words, then gives one bad number."""

    def __init__(self, bad: float) -> None:
        super().__init__(2)
        self.bad = bad

    def step(self, tokens: Tensor) -> Tensor:
        logits = super().step(tokens)
        logits[:, END] = -100.0
        if len(self.batches) == 3:
            logits[1, 2] = self.bad
        return logits


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_not_numbers_name_the_step(bad: float) -> None:
    message = r"^logits must be finite, got NaN or infinity at step 3$"
    with pytest.raises(ValueError, match=message):
        greedy_search(Broken(bad), torch.tensor([3, 4]), end_id=END, max_length=5)


def test_a_forbidden_word_may_score_minus_infinity() -> None:
    model = Broken(-math.inf)
    assert len(greedy_search(model, torch.tensor([3, 4]), end_id=END, max_length=5)) == 2


def test_searching_builds_no_graph() -> None:
    class Learner(Storyteller):
        weight = torch.ones(1, requires_grad=True)

        def step(self, tokens: Tensor) -> Tensor:
            logits = super().step(tokens) * self.weight
            assert not logits.requires_grad
            return logits

    greedy_search(Learner(1), torch.tensor([3]), end_id=END, max_length=3)


@given(
    rows=st.integers(0, 3),
    width=st.integers(1, 40),
    count=st.integers(1, 9),
    values=st.integers(2, 50),
    seed=st.integers(0, 99),
)
def test_the_likeliest_are_found_in_blocks_as_one_by_one(
    rows: int, width: int, count: int, values: int, seed: int
) -> None:
    count = min(count, width)
    dice = torch.Generator().manual_seed(seed)
    scores = torch.randint(values, (rows, width), generator=dice).float().log()  # many are equal
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transformer_blocks.generation.stepping.MANY", 0)
        patch.setattr("transformer_blocks.generation.stepping.BLOCK", 4)
        best, places = top_k(scores, count)
    assert torch.equal(best, scores.topk(count).values)
    assert torch.equal(scores.gather(1, places), best)
    assert all(len(set(row)) == count for row in places.tolist())
    if count == 1:
        assert torch.equal(places[:, 0], scores.argmax(-1))


def test_the_likeliest_of_many_are_those_that_torch_finds() -> None:
    scores = torch.randn(16, 4001)
    for count in (1, 8):
        best, places = top_k(scores, count)
        expected = scores.topk(count)
        assert torch.equal(best, expected.values)
        assert torch.equal(places, expected.indices)
    with torch.device("meta"):  # whatever the default is
        assert torch.equal(top_k(scores, 8)[1], expected.indices)
    scores[3, 17] = math.nan
    assert torch.isnan(top_k(scores, 8)[0][3, 0])


class Interpreter:
    """A decoder that writes under a source, with a weight that is not finite."""

    def __init__(self, place: str, *, prepared: bool) -> None:
        decoder = build_decoder(num_layers=1, d_model=8, num_heads=2, d_ff=12).eval()
        decoder.get_parameter(place)[0, 0] = torch.nan
        self.decoder = prepare(decoder) if prepared else decoder
        self.words = torch.randn(VOCABULARY, 8)
        self.cache = self.decoder.new_cache(torch.randn(2, 3, 8))

    def step(self, tokens: Tensor) -> Tensor:
        return self.decoder(self.words[tokens[:, None]], cache=self.cache)[:, 0] @ self.words.T

    def reorder(self, rows: Tensor) -> None:
        self.cache.reorder(rows)


@pytest.mark.parametrize("search", [greedy_search, partial(beam_search, beam_size=2)])
@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize(
    "part",
    [
        *(f"self_attention.{name}_projection" for name in ("query", "key", "value", "output")),
        *(f"cross_attention.{name}_projection" for name in ("query", "key", "value", "output")),
        *("feed_forward.up_projection", "feed_forward.down_projection"),
    ],
)
@torch.no_grad()
def test_no_sentence_is_written_with_a_weight_that_is_not_finite(
    search: Any, prepared: bool, part: str
) -> None:
    model = Interpreter(f"layers.0.{part}.weight", prepared=prepared)
    with pytest.raises(ValueError, match=r"^logits must be finite, got NaN or infinity at step 1$"):
        search(model, torch.tensor([1, 2]), end_id=END, max_length=4)
