"""Programs: what ``beam_search`` finds, from a step that was traced, or compiled into a file."""

import json
import math
import re
import zipfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

from transformer_blocks import (
    Decoder,
    MultiHeadAttention,
    RotaryPositionalEncoding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    beam_search,
    build_decoder,
    build_encoder,
    greedy_search,
    padding_mask,
)
from transformer_blocks.generation import IncrementalDecoder, NonFiniteLogitsError, left_pad
from transformer_blocks.inference import Program, load_program, prepare, program, save_program
from transformer_blocks.inference.step import SearchStep

VOCABULARY, MOST = 24, 20
SIZES: dict[str, Any] = {"num_layers": 1, "d_model": 16, "num_heads": 4, "d_ff": 24}


class Model(nn.Module):
    """A translator or a language model in which two tokens at a time are equally probable."""

    def __init__(self, *, has_source: bool, rotary: bool = False) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(VOCABULARY, 16)
        self.positions = SinusoidalPositionalEncoding(16, max_length=MOST)
        self.rotary = rotary
        attention = partial(MultiHeadAttention, 16, 4, transforms=[RotaryPositionalEncoding(4)])
        options: dict[str, Any] = {"attention": attention} if rotary else {}
        self.stack: Any = (
            build_decoder(**SIZES) if has_source else build_encoder(**SIZES, **options)
        )
        self.output = nn.Linear(16, VOCABULARY)
        with torch.no_grad():
            self.output.weight.mul_(4.0)  # so that the probabilities differ
            self.output.weight[1::2] = self.output.weight[::2]
            self.output.bias[1::2] = self.output.bias[::2]

    def embed(self, tokens: Tensor, offset: Any) -> Tensor:
        x = self.embedding(tokens)
        return x if self.rotary else self.positions(x, offset=offset)

    @torch.no_grad()
    def begin(self, sources: list[list[int]]) -> tuple[IncrementalDecoder, Tensor]:
        """Return a step model and the first tokens."""
        if isinstance(self.stack, Decoder):
            longest = max(map(len, sources), default=0)
            padded = [[*source, *[0] * (longest - len(source))] for source in sources]
            tokens = torch.tensor(padded, dtype=torch.int64).view(len(sources), longest)
            memory = self.embedding(tokens)
            state: Any = self.stack.new_cache(memory, memory_mask=padding_mask(tokens))
            start = torch.ones(len(sources), dtype=torch.int64)
            return IncrementalDecoder(
                self.stack, state, embed=self.embed, output=self.output
            ), start
        cache = self.stack.new_cache()
        model = IncrementalDecoder(self.stack, cache, embed=self.embed, output=self.output)
        prompts, lengths = left_pad([source[:-1] for source in sources])
        model.prefill(prompts, lengths=lengths)
        return model, torch.tensor([source[-1] for source in sources], dtype=torch.int64)


@cache
def prepared(kind: str, dtype: torch.dtype = torch.float64) -> Any:
    """Return a prepared model; in float64, rounding does not change what a search finds."""
    torch.manual_seed(3)
    model = Model(has_source=kind == "translator", rotary=kind == "rotary")
    return prepare(model.to(dtype).eval())


def traced(model: Any, beam_size: int, end_id: Any) -> Program:
    """Return a program whose step is executed in Python: to compile it takes a minute."""
    first, _ = model.begin([[5, 6, 7]])
    facts, ends = program.describe(first, beam_size, end_id)

    def run(is_masked: bool, tensors: list[Tensor]) -> list[Tensor]:
        step = SearchStep(first, ends, is_masked=is_masked)
        depth = len(first.stack.layers)
        lists = tensors[10 : 10 + depth], tensors[10 + depth :]
        with pytest.MonkeyPatch.context() as patch:  # as the compiler traces it
            patch.setattr(torch.compiler, "is_compiling", lambda: True)
            patch.setattr("transformer_blocks.fast.top_k.BLOCK_SIZE", 4)
            return list(step(*tensors[:10], *lists))

    facts["positions"] = math.inf if model.rotary else MOST
    return Program(facts, {"single": partial(run, False), "batch": partial(run, True)})


sources = st.lists(st.lists(st.integers(2, VOCABULARY - 1), min_size=1, max_size=6), max_size=6)


@pytest.mark.parametrize("kind", ["translator", "absolute", "rotary"])
@given(
    sources=sources,
    beam_size=st.integers(1, 5),
    ends=st.sampled_from([None, 9, (9, 4), tuple(range(2, VOCABULARY, 3))]),
    limits=st.lists(st.integers(1, 12), min_size=6, max_size=6),
    penalty=st.sampled_from([0.0, 0.6, 3.0, lambda length: 1.0 + length % 3]),
    lookahead=st.sampled_from([None, 0, 1, 30]),
    data=st.data(),
)
def test_a_program_finds_what_beam_search_finds(
    kind: str,
    sources: list[list[int]],
    beam_size: int,
    ends: Any,
    limits: list[int],
    penalty: Any,
    lookahead: int | None,
    data: st.DataObject,
) -> None:
    if kind != "translator" and not sources:
        return
    model, n_best = prepared(kind), data.draw(st.integers(1, beam_size))
    options: dict[str, Any] = {
        "max_length": limits[: len(sources)],
        "length_penalty": penalty,
        "lookahead": lookahead,
        "n_best": n_best,
    }
    with torch.no_grad():
        steps, start = model.begin(sources)
        expected = beam_search(steps, start, beam_size=beam_size, end_id=ends, **options)
        steps, start = model.begin(sources)
        found = traced(model, beam_size, ends).search(steps, start, **options)
    tokens = [[(each.tokens, each.finished) for each in row] for row in found]
    assert tokens == [[(each.tokens, each.finished) for each in row] for row in expected]
    for row, expected_row in zip(found, expected, strict=True):
        for one, other in zip(row, expected_row, strict=True):
            assert math.isclose(one.score, other.score, rel_tol=0.0, abs_tol=1e-9)


def test_a_program_with_one_beam_is_greedy_decoding() -> None:
    model = prepared("translator")
    sources = [[5, 6, 7], [8], [9, 10]]
    with torch.no_grad():
        greedy = greedy_search(*model.begin(sources), end_id=4, max_length=9)
        found = traced(model, 1, 4).search(*model.begin(sources), max_length=9)
    assert [row[0].tokens for row in found] == [each.tokens for each in greedy]
    assert [row[0].finished for row in found] == [each.finished for each in greedy]


@pytest.fixture(scope="module")
def untuned() -> Iterator[None]:
    """Compile without trying several products, which takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(program.OPTIONS, "max_autotune_gemm", False)
        yield


@pytest.fixture(scope="module")
def saved(untuned: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the file of a compiled program with three beams."""
    path = tmp_path_factory.mktemp("programs") / "translator.pt2"
    save_program(prepared("translator").begin([[5, 6]])[0], path, beam_size=3, end_id=9)
    return path


def check_file(path: Path, model: Any, batches: list[list[list[int]]], **options: Any) -> None:
    """Compare what the program of a file finds with what ``beam_search`` finds."""
    loaded = load_program(path)
    for sources in batches:
        with torch.no_grad():
            expected = beam_search(
                *model.begin(sources), beam_size=loaded.beam_size, max_length=10, **options
            )
            options_of_call = {name: options[name] for name in options if name != "end_id"}
            found = loaded.search(*model.begin(sources), max_length=10, **options_of_call)
        assert [[each.tokens for each in row] for row in found] == [
            [each.tokens for each in row] for row in expected
        ]


BATCHES = [[[5, 6, 7]], [[5]], [[5, 6, 7], [8, 9], [3], [11, 12, 13, 14]], [[4, 5], [6, 7]]]


@pytest.mark.slow
def test_a_compiled_program_finds_what_beam_search_finds_in_batches_of_any_size(
    saved: Path,
) -> None:
    check_file(saved, prepared("translator"), BATCHES, end_id=9, n_best=3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "beam_size", "dtype"),
    [
        ("translator", 1, torch.float32),
        ("absolute", 3, torch.float32),
        ("rotary", 1, torch.float32),
        ("rotary", 2, torch.float64),
    ],
)
def test_programs_of_all_kinds_of_models_find_what_beam_search_finds(
    kind: str, beam_size: int, dtype: torch.dtype, untuned: None, tmp_path: Path
) -> None:
    model = prepared(kind, dtype)
    save_program(model.begin([[5, 6]])[0], tmp_path / "p.pt2", beam_size=beam_size, end_id=9)
    check_file(tmp_path / "p.pt2", model, BATCHES, end_id=9)


@pytest.mark.slow
def test_a_program_of_an_int8_model_has_its_own_weights(untuned: None, tmp_path: Path) -> None:
    torch.manual_seed(3)
    model: Any = prepare(Model(has_source=True).eval(), int8=True)
    save_program(model.begin([[5, 6]])[0], tmp_path / "p.pt2", end_id=9)
    check_file(tmp_path / "p.pt2", model, BATCHES, end_id=9)
    with pytest.raises(ValueError, match="another model"):
        check_file(tmp_path / "p.pt2", prepared("translator", torch.float32), BATCHES, end_id=9)


def test_a_program_is_refused_for_another_model() -> None:
    torch.manual_seed(4)
    other: Any = prepare(Model(has_source=True).double().eval())
    with pytest.raises(ValueError, match="made for another model, or for other weights"):
        traced(prepared("translator"), 2, 9).search(*other.begin([[5]]), max_length=4)


def test_a_file_is_refused_for_another_torch_or_processor(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    facts, _ = program.describe(prepared("translator").begin([[5]])[0], 2, 9)
    with zipfile.ZipFile(tmp_path / "program.pt2", "w") as archive:
        archive.writestr("facts.json", json.dumps(facts))
    for name in ("torch", "processor"):
        with monkeypatch.context() as patch:
            patch.setattr(program, "_environment", lambda name=name: {name: "another"})
            made_for = re.escape(f"program.pt2 was made for {name} {facts[name]}; this is another")
            with pytest.raises(ValueError, match=made_for):
                load_program(tmp_path / "program.pt2")
    (tmp_path / "text.pt2").write_text("no program")
    with pytest.raises(ValueError, match=r"text.pt2 is no program that save_program wrote"):
        load_program(tmp_path / "text.pt2")
    with pytest.raises(FileNotFoundError, match=r"none.pt2"):
        load_program(tmp_path / "none.pt2")


@torch.no_grad()
def with_nan(model: Any) -> IncrementalDecoder:
    steps, _ = model.begin([[5, 6]])
    for each in steps.cache.memory:
        each._storage = torch.full_like(each._storage, math.nan)
    return steps


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_best": 4}, "n_best must not exceed beam_size, got n_best=4 and beam_size=3"),
        ({"start": torch.tensor([VOCABULARY])}, r"start must hold ids in 0\.\.23, got 24"),
        ({"start": torch.tensor([1, 1])}, "model must have 2 rows, as start, got 1"),
        ({"max_length": [3, 4]}, "one number, or one for each of the 1 sequences"),
        ({"max_length": MOST + 1}, "the model has positions for 20 tokens only"),
        ({"model": with_nan}, "logits must be finite, got NaN or infinity at step 1"),
    ],
)
def test_a_search_that_the_program_cannot_make_is_refused(
    options: dict[str, Any], message: str
) -> None:
    model = prepared("translator")
    steps, start = model.begin([[5, 6]])
    make: Callable[[Any], Any] = options.get("model", lambda _: steps)
    call = {"model": make(model), "start": start, "max_length": 4} | options
    with torch.no_grad(), pytest.raises(ValueError, match=message):
        traced(model, 3, None).search(**call | {"model": make(model)})


def test_a_model_that_no_program_can_be_made_of_is_refused(tmp_path: Path) -> None:
    model: Any = Model(has_source=True).double().eval()
    with pytest.raises(TypeError, match="embed must be a module that `prepare` returned"):
        save_program(model.begin([[5]])[0], tmp_path / "p.pt2", end_id=None)
    first, _ = prepared("translator").begin([[5]])
    for options, message in (
        ({"end_id": VOCABULARY}, "end_id must be below the vocabulary size 24, got end_id=24"),
        ({"end_id": 0, "beam_size": 25}, "beam_size must not exceed the vocabulary size"),
    ):
        with pytest.raises(ValueError, match=message):
            save_program(first, tmp_path / "p.pt2", **options)
    assert not list(tmp_path.iterdir())


class Changed(IncrementalDecoder):
    """A step model that changes the logits."""

    def step(self, tokens: Tensor) -> Tensor:
        return super().step(tokens).neg()


def test_a_step_model_that_overrides_the_step_is_refused() -> None:
    model = prepared("translator")
    steps, start = model.begin([[5, 6]])
    changed = Changed(steps.stack, steps.cache, embed=steps.embed, output=steps.output)
    with pytest.raises(TypeError, match="must not override step"):
        traced(model, 3, None).search(changed, start, max_length=4)


def test_logits_that_are_not_numbers_raise_an_error_of_their_own() -> None:
    model = prepared("translator")
    with torch.no_grad(), pytest.raises(NonFiniteLogitsError):
        traced(model, 2, None).search(with_nan(model), torch.ones(1).long(), max_length=4)


def test_without_a_compiler_a_program_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, _ = prepared("translator").begin([[5]])
    monkeypatch.setattr(torch, "_inductor", SimpleNamespace())
    with pytest.raises(RuntimeError, match=r"^the search cannot be compiled: AttributeError: "):
        save_program(first, tmp_path / "p.pt2", end_id=9)
    assert not list(tmp_path.iterdir())
