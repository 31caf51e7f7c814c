"""Greedy decoding, and what all searches share, over a model whose logits depend on the prefix."""

import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.generation.interruption import InterruptedAt
from tests.generation.prefix_model import END, PrefixModel, assert_same, generate, textbook
from torch import Tensor

from transformer_blocks import (
    beam_search,
    build_encoder,
    build_language_model,
    greedy_search,
    sample,
)
from transformer_blocks.generation import Generation, IncrementalDecoder
from transformer_blocks.inference import prepare

GREEDY: dict[str, Callable[..., list[Generation]]] = {
    "greedy": greedy_search,
    "sampling of one token": partial(sample, top_k=1),
    "sampling at temperature 0": partial(sample, temperature=1e-300),
    "beam search": lambda *inputs, **options: [
        best for (best,) in beam_search(*inputs, beam_size=1, **options)
    ],
}
every_greedy_search = pytest.mark.parametrize("search", GREEDY.values(), ids=GREEDY)


@every_greedy_search
@given(
    st.lists(st.integers(1, 50), max_size=6),
    st.integers(1, 8),
    st.sampled_from([(END,), (END, 3), (1, 2, 4)]),
)
def test_a_search_that_keeps_one_hypothesis_takes_the_most_probable_token_at_each_step(
    search: Any, starts: list[int], max_length: int, ends: tuple[int, ...]
) -> None:
    end_id = ends[0] if len(ends) == 1 else ends
    found = generate(search, starts, end_id=end_id, max_length=max_length)
    for first, each in zip(starts, found, strict=True):
        assert_same([each], textbook(first, beam_size=1, ends=ends, max_length=max_length))


@every_greedy_search
def test_a_batch_that_does_not_change_is_not_reordered(search: Any) -> None:
    model = PrefixModel(2)
    found = search(model, torch.tensor([3, 4]), end_id=None, max_length=7)
    assert [(len(each.tokens), each.finished) for each in found] == [(7, False)] * 2
    assert model.reorderings == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_scores_of_logits_in_half_precision_are_computed_in_float32(dtype: torch.dtype) -> None:
    logits = torch.randn(1, 7).to(dtype)

    class Constant(PrefixModel):
        def step(self, tokens: Tensor) -> Tensor:
            return logits

    (found,) = greedy_search(Constant(1), torch.tensor([1]), end_id=None, max_length=1)
    expected = logits.double().log_softmax(-1).max().item()
    assert found.score == pytest.approx(expected, abs=1e-6)


def test_finished_sequences_leave_the_batch_until_it_is_empty() -> None:
    model = PrefixModel(29)
    found = greedy_search(model, torch.arange(1, 30), end_id=END, max_length=100)
    assert all(each.finished for each in found)
    lengths = [len(each.tokens) + 1 for each in found]
    assert len(set(lengths)) > 3  # they finish at different steps
    steps = range(1, max(lengths) + 1)
    assert model.batch_sizes == [sum(n >= step for n in lengths) for step in steps]


@pytest.mark.parametrize("end_id", [None, END, [END, 3]])
@pytest.mark.parametrize(
    "search",
    [
        greedy_search,
        partial(sample, top_k=1),
        partial(beam_search, beam_size=3),
        partial(beam_search, beam_size=3, lookahead=9),
    ],
)
def test_a_sequence_with_its_own_max_length_is_generated_as_if_alone(
    search: Callable[..., list[Any]], end_id: int | list[int] | None
) -> None:
    starts, lengths = [3, 4, 1, 5, 2], [7, 2, 9, 1, 4]
    together = generate(search, starts, end_id=end_id, max_length=lengths)
    for found, start, length in zip(together, starts, lengths, strict=True):
        assert [found] == generate(search, [start], end_id=end_id, max_length=length)
    for wrong in (lengths[:4], [*lengths, 1], []):
        with pytest.raises(ValueError, match="one for each of the 5 sequences"):
            generate(search, starts, end_id=end_id, max_length=wrong)


class Broken(PrefixModel):
    """Generates two tokens; then one of its logits is not a finite number."""

    def __init__(self, bad: float) -> None:
        super().__init__(2)
        self.bad = bad

    def step(self, tokens: Tensor) -> Tensor:
        logits = super().step(tokens)
        logits[:, END] = -100.0
        if len(self.batch_sizes) == 3:
            logits[1, 2] = self.bad
        return logits


@pytest.mark.parametrize("search", [greedy_search, sample, partial(beam_search, beam_size=3)])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_logits_that_are_not_finite_raise_an_error_that_names_the_step(
    search: Callable[..., Any], bad: float
) -> None:
    message = r"^logits must be finite, got NaN or infinity at step 3$"
    is_impossible = bad == -math.inf  # a token of probability 0, which is allowed
    with nullcontext() if is_impossible else pytest.raises(ValueError, match=message):
        search(Broken(bad), torch.tensor([3, 4]), end_id=END, max_length=5)


SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 8, "num_heads": 2, "d_ff": 12}


def test_prefill_and_searches_record_no_gradients() -> None:
    model, start = build_language_model(9, **SIZES).eval().start([[1, 2, 3]])
    model.prefill(torch.tensor([[4]]))
    greedy_search(model, start, end_id=None, max_length=1)
    assert model.cache.length == 4
    with pytest.raises(RuntimeError, match=r"^a cache stores no gradients; decode inside `with "):
        model.step(start)


def test_decoding_with_dropout_warns() -> None:
    options: Any = {"embed": torch.add, "output": torch.relu}
    for dropout, of_attention in ((0.1, 0.0), (0.0, 0.1), (0.0, 0.0)):
        stack = build_encoder(**SIZES, dropout=dropout, attention_dropout=of_attention)
        drops = pytest.warns(UserWarning, match="drops values at random")
        with drops if dropout or of_attention else nullcontext():
            IncrementalDecoder(stack, stack.new_cache(), **options)
        IncrementalDecoder(stack.eval(), stack.new_cache(), **options)


def test_the_rows_of_a_reordering_are_on_the_cpu_whatever_the_default_device_is() -> None:
    class Uniform:
        def step(self, tokens: Tensor) -> Tensor:
            return torch.arange(8.0, device="cpu").expand(len(tokens), -1).log_softmax(-1)

        def reorder(self, rows: Tensor) -> None:
            assert rows.device.type == "cpu"
            reordered.append(rows)

    start, limits = torch.tensor([1, 2, 3]), [1, 3, 3]
    for search in (greedy_search, partial(beam_search, beam_size=2), sample):
        reordered: list[Tensor] = []
        with torch.device("meta"):
            search(Uniform(), start, end_id=0, max_length=limits)
        assert reordered


CALLS: dict[str, Callable[[IncrementalDecoder], Any]] = {
    "step": lambda model: model.step(torch.tensor([1, 2, 3])),
    "reorder": lambda model: model.reorder(torch.tensor([1, 0, 2])),
    "reorder without padding": lambda model: model.reorder(torch.tensor([1])),
    "prefill": lambda model: model.prefill(torch.tensor([[4, 5]] * 3)),
    "first prefill": lambda model: (
        model.cache.crop(0),
        model.prefill(torch.tensor([[4, 5, 6], [1, 2, 3], [0, 1, 2]]), lengths=[3, 1, 2]),
    ),
}


@pytest.mark.parametrize(("call", "prepared"), [*((call, False) for call in CALLS), ("step", True)])
@torch.no_grad()
def test_a_call_that_is_interrupted_anywhere_can_be_repeated(call: str, prepared: bool) -> None:
    model = build_language_model(9, **SIZES | {"num_layers": 1}).eval()
    model = prepare(model) if prepared else model
    prompts = [[1, 2], [3, 4, 5, 6, 7], [8, 1, 2]]
    undisturbed, _ = model.start(prompts)
    CALLS[call](undisturbed)
    tokens = torch.arange(undisturbed.cache.rows)
    expected = undisturbed.step(tokens)
    for operation in range(1000):
        interrupted, _ = model.start(prompts)
        try:
            with InterruptedAt(operation):
                CALLS[call](interrupted)
        except KeyboardInterrupt:
            CALLS[call](interrupted)
            assert torch.equal(interrupted.step(tokens), expected)
        else:
            break
    assert 3 < operation < 500
