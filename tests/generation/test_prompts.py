"""Prompts of unequal length in one batch: each gives what it gives alone, token for token."""

import random
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_blocks import (
    ALiBi,
    LanguageModel,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    PreNorm,
    QueryKeyNorm,
    RelativeBias,
    RotaryPositionalEncoding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    beam_search,
    build_decoder,
    build_encoder,
    greedy_search,
    sample,
)
from transformer_blocks.generation import Generation, IncrementalDecoder, left_pad
from transformer_blocks.inference import prepare

V, D, H, END = 12, 16, 2, 3
MAX_LENGTH = 40
DTYPES = torch.float32, torch.float64


class Prompted(LanguageModel):
    """A decoder-only model with large weights, so that its logits are far apart."""

    def __init__(self, positions: nn.Module | None, attention: Callable[[], nn.Module]) -> None:
        stack: Any = build_encoder(
            num_layers=2,
            d_model=D,
            num_heads=H,
            d_ff=24,
            residual=PreNorm,
            attention=attention,  # type: ignore[arg-type]
        )
        super().__init__(TokenEmbedding(V, D), stack, positions=positions)
        nn.init.constant_(stack.norm.weight, 2.0)
        for name, weight in self.named_parameters():
            if "projection.weight" in name:
                nn.init.normal_(weight, std=0.6)
        if isinstance(positions, LearnedPositionalEncoding):
            nn.init.normal_(positions.weight, std=0.7)

    def steps(self) -> IncrementalDecoder:
        cache = self.decoder.new_cache()
        return IncrementalDecoder(self.decoder, cache, embed=self.embed, output=self.output)


POSITIONS: dict[str, Callable[[], Prompted]] = {
    "sinusoidal": lambda: Prompted(
        SinusoidalPositionalEncoding(D, max_length=MAX_LENGTH), lambda: MultiHeadAttention(D, H)
    ),
    "learned": lambda: Prompted(
        LearnedPositionalEncoding(D, max_length=MAX_LENGTH),
        lambda: MultiHeadAttention(D, H, num_key_value_heads=1),
    ),
    "rotary": lambda: Prompted(
        None,
        lambda: MultiHeadAttention(
            D, H, transforms=[QueryKeyNorm(D // H), RotaryPositionalEncoding(D // H)]
        ),
    ),
    "ALiBi": lambda: Prompted(None, lambda: MultiHeadAttention(D, H, attention_function=ALiBi(H))),
    "relative bias": lambda: Prompted(
        None,
        lambda: MultiHeadAttention(
            D, H, attention_function=RelativeBias(H, num_buckets=6, max_distance=8)
        ),
    ),
}
MODELS = list(product(POSITIONS, DTYPES, (False, True)))  # prepared or not
every_model = pytest.mark.parametrize("positions", POSITIONS)


@cache
def build(positions: str, *, dtype: torch.dtype = torch.float32, prepared: bool = False) -> Any:
    torch.manual_seed(0)
    model = POSITIONS[positions]().to(dtype).eval()
    return prepare(model) if prepared else model


def seeded(seeds: Sequence[int]) -> list[torch.Generator]:
    return [torch.Generator().manual_seed(seed) for seed in seeds]


def generate(model: Any, prompts: list[list[int]], case: dict[str, Any]) -> list[list[Generation]]:
    """Generate with the search of a case, as lists of hypotheses."""
    steps, start = model.start(prompts)
    options = {"end_id": case["end_id"], "max_length": case["max_length"]}
    if case["search"] == "beam":
        return beam_search(
            *(steps, start),
            beam_size=case["beam_size"],
            n_best=case["beam_size"],
            lookahead=case["lookahead"],
            **options,
        )
    if case["search"] == "greedy":
        return [[each] for each in greedy_search(steps, start, **options)]
    options |= {"temperature": case["temperature"], "top_k": case["top_k"], "top_p": case["top_p"]}
    found = sample(steps, start, generator=seeded(case["seeds"]), **options)
    return [[each] for each in found]


def draw_case(seed: int) -> tuple[Any, list[list[int]], dict[str, Any]]:
    """Draw a model, prompts and a search; the prompts may be one token long, or repeated."""
    draw = random.Random(seed)
    positions, dtype, prepared = MODELS[seed % len(MODELS)]
    model = build(positions, dtype=dtype, prepared=prepared)
    count = draw.choice([1, 2, 2, 3, 4, 6, 9])
    longest = draw.choice([1, 2, 5, 14])
    prompts = [[draw.randrange(V) for _ in range(draw.randint(1, longest))] for _ in range(count)]
    if draw.random() < 0.3:
        prompts[-1] = prompts[0]
    case = {
        "search": draw.choice(["greedy", "beam", "sample"]),
        "end_id": draw.choice([None, END]),
        "max_length": [draw.randint(1, 9) for _ in prompts],
        "beam_size": draw.choice([1, 2, 4]),
        "lookahead": draw.choice([None, 0, 9]),
        "temperature": draw.choice([0.7, 1.0, 3.0]),
        "top_k": draw.choice([None, 4]),
        "top_p": draw.choice([None, 0.8]),
        "seeds": [draw.randrange(10**6) for _ in prompts],
    }
    return model, prompts, case


def check_case(seed: int) -> set[int]:
    """Compare what is generated together and alone; return the tokens."""
    model, prompts, case = draw_case(seed)
    together = generate(model, prompts, case)
    assert len(together) == len(prompts)
    for row, (prompt, found) in enumerate(zip(prompts, together, strict=True)):
        own = {name: [case[name][row]] for name in ("max_length", "seeds")}
        (alone,) = generate(model, [prompt], case | own)
        assert [(each.tokens, each.finished) for each in found] == [
            (each.tokens, each.finished) for each in alone
        ], (seed, row)
        scores = [each.score for each in alone]
        assert [each.score for each in found] == pytest.approx(scores, abs=1e-3)
    return {token for found in together for token in found[0].tokens}


MANY = [pytest.param(range(n, n + 100), marks=pytest.mark.slow) for n in range(0, 1000, 100)]


@pytest.mark.parametrize("seeds", [range(20), *MANY])
def test_a_batch_generates_what_each_prompt_generates_alone(seeds: range) -> None:
    tokens = set().union(*map(check_case, seeds))
    assert len(tokens) >= V - 1  # the models do not repeat themselves


@every_model
@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@torch.no_grad()
def test_padded_prompts_give_the_logits_of_full_passes(
    positions: str, prepared: bool, dtype: torch.dtype
) -> None:
    model = build(positions, dtype=dtype, prepared=prepared)
    tokens, continuation = torch.randint(V, (4, 7)), torch.randint(V, (4, 6))
    lengths = [7, 0, 3, 1]
    steps = model.steps()
    steps.prefill(tokens, lengths=lengths)
    for place in range(6):
        if place == 2:  # the continuation may be appended in larger parts
            steps.prefill(continuation[:, 2:4])
        logits = None if place in (2, 3) else steps.step(continuation[:, place])
        for row, length in enumerate(lengths):
            alone = torch.cat((tokens[row, 7 - length :], continuation[row, : place + 1]))[None]
            if logits is not None:
                expected = model(alone)[0, -1]
                tolerance = 1e-3 if dtype == torch.float32 else 1e-11
                torch.testing.assert_close(logits[row], expected, rtol=0, atol=tolerance)


@every_model
def test_what_stands_in_the_padding_changes_no_bit(positions: str) -> None:
    model, lengths = build(positions), [4, 2, 0]
    outputs = []
    for filler in (0, 5, -1, V, 2**40):  # also ids that are not in the vocabulary
        tokens = torch.randint(V, (3, 6), generator=seeded([1])[0])
        for row, length in enumerate(lengths):
            tokens[row, : 6 - length] = filler
        steps = model.steps()
        steps.prefill(tokens, lengths=lengths)
        with torch.no_grad():
            outputs.append(steps.step(torch.tensor([1, 2, 3])))
    for output in outputs[1:]:
        assert torch.equal(output, outputs[0])


@every_model
def test_unknown_ids_of_a_prompt_are_refused(positions: str) -> None:
    steps = build(positions).steps()
    for unknown in (-1, V):
        with pytest.raises(IndexError, match=f"got id {unknown} at position 2 of sequence 1"):
            steps.prefill(torch.tensor([[1, 2, 3], [4, 5, unknown]]), lengths=[3, 2])
    assert steps.cache.length == 0
    assert steps.position == 0  # nothing remains of the padding


@every_model
def test_equal_lengths_need_no_mask_and_no_tensor_of_positions(positions: str) -> None:
    model, masks = build(positions), list[Any]()
    steps = model.steps()
    hook = model.decoder.register_forward_pre_hook(
        lambda _, args, options: masks.append(options.get("mask")), with_kwargs=True
    )
    with torch.no_grad():
        steps.prefill(torch.randint(V, (3, 5)), lengths=[4, 4, 4])
        steps.step(torch.tensor([1, 2, 3]))
        assert masks == [None, None]
        assert steps.position == 5
        steps = model.steps()
        steps.prefill(torch.randint(V, (3, 5)), lengths=[4, 2, 4])
        steps.reorder(torch.tensor([2, 0]))  # the row with padding leaves
        del masks[:]
        steps.step(torch.tensor([1, 2]))
        assert masks == [None]
    hook.remove()


@pytest.mark.parametrize("positions", ["sinusoidal", "learned"])
def test_positions_are_limited_for_each_row_alone(positions: str) -> None:
    model = build(positions)
    prompts = [[1] * 30, [2] * 3]
    (first, second) = greedy_search(*model.start(prompts), end_id=None, max_length=[5, 37])
    assert (len(first.tokens), len(second.tokens)) == (5, 37)  # in columns up to 30 + 37
    with pytest.raises(ValueError, match=r"^positions must stay below max_length, got offset=40"):
        greedy_search(*model.start(prompts), end_id=None, max_length=[5, 39])


@torch.no_grad()
def test_a_decoder_with_a_memory_also_accepts_prompts_of_unequal_length() -> None:
    decoder = build_decoder(num_layers=2, d_model=D, num_heads=H, d_ff=24).double().eval()
    memory, embedding = torch.randn(2, 4, D).double(), TokenEmbedding(V, D).double()
    positions = SinusoidalPositionalEncoding(D).double()

    def embed(tokens: Tensor, offset: int | Tensor) -> Tensor:
        return positions(embedding(tokens), offset=offset)

    for stack in (decoder, prepare(decoder)):
        steps = IncrementalDecoder(
            stack, stack.new_cache(memory), embed=embed, output=lambda hidden: hidden
        )
        steps.prefill(torch.tensor([[1, 2, 3], [9, 9, 4]]), lengths=[3, 1])
        steps.reorder(torch.tensor([1, 1, 0]))
        hidden = steps.step(torch.tensor([5, 6, 7]))
        for row, text in enumerate(([4, 5], [4, 6], [1, 2, 3, 7])):
            source = memory[[1, 1, 0][row], None]
            expected = decoder(embed(torch.tensor([text]), 0), source)[0, -1]
            torch.testing.assert_close(hidden[row], expected, rtol=0, atol=1e-11)


def test_padding_that_all_rows_share_is_left_out_and_there_may_be_no_row() -> None:
    for lengths, width in (([3, 1], 100), ([0, 0], 100), ([], 4)):
        steps = build("learned").steps()
        steps.prefill(torch.zeros(len(lengths), width, dtype=torch.int64), lengths=lengths)
        assert steps.cache.length == (max(lengths) if lengths else width)
        position = torch.as_tensor(steps.position)
        assert torch.equal(position.expand(len(lengths)), torch.tensor(lengths, dtype=torch.int64))
    for search in (greedy_search, partial(sample, generator=[])):
        assert search(*build("sinusoidal").start([]), end_id=None, max_length=5) == []


def test_left_pad_aligns_the_ends() -> None:
    tokens, lengths = left_pad([[5, 6, 7], [], [8]])
    assert tokens.tolist() == [[5, 6, 7], [0, 0, 0], [0, 0, 8]]
    assert lengths == [3, 0, 1]
    assert left_pad([[]] * 2)[0].shape == (2, 0)


def test_padding_cannot_follow_cached_tokens() -> None:
    steps, tokens = build("sinusoidal").steps(), torch.ones(2, 3, dtype=torch.int64)
    steps.prefill(tokens, lengths=torch.tensor([3, 1]))
    with pytest.raises(ValueError, match=r"^lengths must be equal where tokens are in the cache"):
        steps.prefill(tokens, lengths=[1, 3])
    steps.prefill(tokens, lengths=[2, 2])
    assert torch.equal(torch.as_tensor(steps.position), torch.tensor([5, 3]))
