"""Greedy decoding, and what all searches share, over a model whose logits depend on the prefix."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.prefix_model import END, VOCABULARY_SIZE, PrefixModel
from torch import Tensor

from transformer_blocks import (
    Decoder,
    DecoderCache,
    Encoder,
    SelfAttentionCache,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    beam_search,
    build_decoder,
    build_encoder,
    greedy_search,
    padding_mask,
    sample,
)
from transformer_blocks.generation import Generation, IncrementalDecoder
from transformer_blocks.inference import prepare


def decode_alone(first: int, max_length: int) -> Generation:
    """Greedy decoding of one sequence, without a batch."""
    prefix: tuple[int, ...] = (first,)
    score = 0.0
    while len(prefix) <= max_length:
        logits = PrefixModel.logits(prefix).tolist()
        best = max(range(VOCABULARY_SIZE), key=logits.__getitem__)
        score += logits[best] - math.log(sum(map(math.exp, logits)))
        if best == END:
            return Generation(list(prefix[1:]), score, finished=True)
        prefix = (*prefix, best)
    return Generation(list(prefix[1:]), score, finished=False)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_scores_of_logits_in_half_precision_are_computed_in_float32(dtype: torch.dtype) -> None:
    logits = torch.randn(1, 7).to(dtype)

    class Constant(PrefixModel):
        def step(self, tokens: Tensor) -> Tensor:
            return logits

    (found,) = greedy_search(Constant(1), torch.tensor([1]), end_id=None, max_length=1)
    expected = logits.double().log_softmax(-1).max().item()
    assert found.score == pytest.approx(expected, abs=1e-6)


@given(st.lists(st.integers(1, 50), max_size=6), st.integers(1, 8))
def test_a_batch_generates_what_each_sequence_generates_alone_in_the_given_order(
    starts: list[int], max_length: int
) -> None:
    together = greedy_search(
        PrefixModel(len(starts)),
        torch.tensor(starts, dtype=torch.int64),
        end_id=END,
        max_length=max_length,
    )
    alone = [decode_alone(first, max_length) for first in starts]
    assert [each.tokens for each in together] == [each.tokens for each in alone]
    assert [each.finished for each in together] == [each.finished for each in alone]
    scores = [each.score for each in together]
    assert scores == pytest.approx([each.score for each in alone], abs=1e-4)


def test_finished_sequences_leave_the_batch() -> None:
    starts = range(1, 30)
    model = PrefixModel(len(starts))
    found = greedy_search(model, torch.tensor(starts), end_id=END, max_length=6)
    lengths = [len(each.tokens) + each.finished for each in found]
    assert len(set(lengths)) > 3  # they finish at different steps
    assert model.batch_sizes == [sum(n >= step for n in lengths) for step in range(1, 7)]


def test_no_step_is_computed_once_all_sequences_are_finished() -> None:
    class EndsAtOnce:
        steps = 0

        def step(self, tokens: Tensor) -> Tensor:
            self.steps += 1
            return torch.eye(VOCABULARY_SIZE)[[END] * len(tokens)]

        def reorder(self, rows: Tensor) -> None: ...

    model = EndsAtOnce()
    found = greedy_search(model, torch.tensor([3, 4]), end_id=END, max_length=100)
    assert model.steps == 1
    assert [(each.tokens, each.finished) for each in found] == [([], True)] * 2


def test_a_sequence_without_an_end_token_is_cut_at_max_length() -> None:
    model = PrefixModel(2)
    found = greedy_search(model, torch.tensor([3, 4]), end_id=None, max_length=7)
    assert [(len(each.tokens), each.finished) for each in found] == [(7, False)] * 2
    assert model.reorderings == []  # the batch did not change


@pytest.mark.parametrize("search", [greedy_search, partial(sample, top_k=1)])
def test_any_of_several_end_tokens_finishes_a_sequence(
    search: Callable[..., list[Any]],
) -> None:
    starts = torch.arange(1, 30)
    endless = search(PrefixModel(29), starts, end_id=None, max_length=7)
    ended = search(PrefixModel(29), starts, end_id=[END, 3], max_length=7)
    for found, whole in zip(ended, endless, strict=True):
        places = [place for place, token in enumerate(whole.tokens) if token in (END, 3)]
        assert found.tokens == whole.tokens[: places[0] if places else None]
        assert found.finished == bool(places)
    assert {each.finished for each in ended} == {True, False}


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
    together = search(PrefixModel(5), torch.tensor(starts), end_id=end_id, max_length=lengths)
    for found, start, length in zip(together, starts, lengths, strict=True):
        (alone,) = search(PrefixModel(1), torch.tensor([start]), end_id=end_id, max_length=length)
        assert found == alone
    for wrong in (lengths[:4], [*lengths, 1], []):
        with pytest.raises(ValueError, match="one for each of the 5 sequences"):
            search(PrefixModel(5), torch.tensor(starts), end_id=end_id, max_length=wrong)


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
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_logits_that_are_not_finite_raise_an_error_that_names_the_step(
    search: Callable[..., Any], bad: float
) -> None:
    message = r"^logits must be finite, got NaN or infinity at step 3$"
    with pytest.raises(ValueError, match=message):
        search(Broken(bad), torch.tensor([3, 4]), end_id=END, max_length=5)


def test_a_logit_may_be_minus_infinity() -> None:
    model = Broken(-math.inf)
    assert len(greedy_search(model, torch.tensor([3, 4]), end_id=END, max_length=5)) == 2


SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 8, "num_heads": 2, "d_ff": 12}
MEMORY_MASK = padding_mask(torch.tensor([[5, 6, 7], [8, 9, 0], [3, 0, 0]]))


class Transformer:
    """Parts of a model: a stack, embeddings, an output layer, and the memory of a decoder."""

    def __init__(self, stack: Encoder | Decoder) -> None:
        self.stack = stack
        self.embedding = TokenEmbedding(VOCABULARY_SIZE, 8)
        self.positions = SinusoidalPositionalEncoding(8)
        self.memory = torch.randn(3, 3, 8)

    def embed(self, tokens: Tensor, offset: int) -> Tensor:
        return self.positions(self.embedding(tokens), offset=offset)

    def output(self, hidden: Tensor) -> Tensor:
        return hidden @ self.embedding.weight.T

    def full_pass(self, tokens: Tensor) -> Tensor:
        """Compute the logits of all positions in one pass, without a cache: (N, L, V)."""
        options: dict[str, Tensor] = {}
        if isinstance(self.stack, Decoder):
            options = {"memory": self.memory, "memory_mask": MEMORY_MASK}
        return self.output(self.stack(self.embed(tokens, 0), causal=True, **options))

    def incremental(self) -> IncrementalDecoder:
        cache: DecoderCache | SelfAttentionCache
        if isinstance(self.stack, Decoder):
            cache = self.stack.new_cache(self.memory, memory_mask=MEMORY_MASK)
        else:
            cache = self.stack.new_cache()
        return IncrementalDecoder(self.stack, cache, embed=self.embed, output=self.output)


STACKS: dict[str, Callable[[], Encoder | Decoder]] = {
    "decoder": lambda: build_decoder(**SIZES).eval(),
    "decoder-only": lambda: build_encoder(**SIZES).eval(),
    "prepared decoder": lambda: prepare(build_decoder(**SIZES).eval()),
    "prepared decoder-only": lambda: prepare(build_encoder(**SIZES).eval()),
}


@pytest.mark.parametrize("build", STACKS.values(), ids=STACKS)
@pytest.mark.parametrize("length", [0, 1, 4])
@torch.no_grad()
def test_prefill_of_a_prompt_and_a_step_give_the_logits_of_a_full_pass(
    build: Callable[[], Encoder | Decoder], length: int
) -> None:
    model, tokens = Transformer(build()), torch.randint(VOCABULARY_SIZE, (3, length + 2))
    prefilled = model.incremental()
    prefilled.prefill(tokens[:, :length])
    assert prefilled.cache.length == length
    prefilled.prefill(tokens[:, length : length + 1])  # a prompt may come in several parts
    logits = prefilled.step(tokens[:, -1])
    torch.testing.assert_close(logits, model.full_pass(tokens)[:, -1], rtol=0, atol=1e-5)


def test_prefill_and_searches_record_no_gradients() -> None:
    model = Transformer(build_encoder(**SIZES).eval()).incremental()
    model.prefill(torch.tensor([[1, 2]]))
    greedy_search(model, torch.tensor([3]), end_id=None, max_length=2)
    assert model.cache.length == 4
    with pytest.raises(RuntimeError, match=r"^a cache stores no gradients; decode inside `with "):
        model.step(torch.tensor([3]))


def test_decoding_with_dropout_warns() -> None:
    options: Any = {"embed": torch.add, "output": torch.relu}
    for stack in (
        build_encoder(**SIZES | {"dropout": 0.1}),
        build_encoder(**SIZES | {"dropout": 0.0}, attention_dropout=0.1),
    ):
        with pytest.warns(UserWarning, match="drops values at random"):
            IncrementalDecoder(stack, stack.new_cache(), **options)
        IncrementalDecoder(stack.eval(), stack.new_cache(), **options)
    without = build_encoder(**SIZES | {"dropout": 0.0})
    IncrementalDecoder(without, without.new_cache(), **options)


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


def test_an_incremental_decoder_names_the_argument_that_is_wrong() -> None:
    encoder, decoder = build_encoder(**SIZES).eval(), build_decoder(**SIZES).eval()
    with torch.no_grad():
        caches: dict[Any, Any] = {
            encoder: encoder.new_cache(),
            decoder: decoder.new_cache(torch.randn(2, 3, 8)),
        }
    for stack, other, kind in (
        (encoder, decoder, "SelfAttentionCache"),
        (decoder, encoder, "DecoderCache"),
    ):
        message = rf"^cache must be an instance of {kind}, got "
        with pytest.raises(TypeError, match=message):
            IncrementalDecoder(stack, caches[other], embed=torch.add, output=torch.relu)
