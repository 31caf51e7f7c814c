"""Programs: what ``beam_search`` finds, from traced functions, or from a compiled file."""

import copy
import errno
import math
import re
import zipfile
from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.generation.prefix_model import assert_same
from tests.inference.programs import trace
from torch import nn

from transformer_blocks import (
    LanguageModel,
    MultiHeadAttention,
    RotaryPositionalEncoding,
    Seq2Seq,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    beam_search,
    build_decoder,
    build_encoder,
    greedy_search,
)
from transformer_blocks.generation import NonFiniteLogitsError
from transformer_blocks.inference import Program, load_program, prepare, program, save_program

VOCABULARY, MOST = 24, 20
SIZES: dict[str, Any] = {"num_layers": 1, "d_model": 16, "num_heads": 4, "d_ff": 24}


class TiedPairs(nn.Linear):
    """An output layer with which two tokens at a time are equally probable."""

    def __init__(self) -> None:
        super().__init__(16, VOCABULARY)
        with torch.no_grad():
            self.weight.mul_(4.0)  # so that the probabilities differ
            self.weight[1::2] = self.weight[::2]
            self.bias[1::2] = self.bias[::2]


@cache
def model_of(kind: str, dtype: torch.dtype = torch.float64, seed: int = 3) -> Any:
    """Return a model; in float64, rounding does not change what a search finds."""
    torch.manual_seed(seed)
    embedding, output = TokenEmbedding(VOCABULARY, 16), TiedPairs()
    positions = SinusoidalPositionalEncoding(16, max_length=MOST)
    model: nn.Module
    if kind == "translator":
        stacks = build_encoder(**SIZES), build_decoder(**SIZES)
        parts = embedding, TokenEmbedding(VOCABULARY, 16), *stacks
        model = Seq2Seq(*parts, positions=positions, output=output)
    elif kind == "absolute":
        model = LanguageModel(embedding, build_encoder(**SIZES), positions=positions, output=output)
    else:
        attention = partial(MultiHeadAttention, 16, 4, transforms=[RotaryPositionalEncoding(4)])
        model = LanguageModel(embedding, build_encoder(**SIZES, attention=attention), output=output)
    return model.to(dtype).eval()


@cache
def prepared(kind: str) -> Any:
    return prepare(model_of(kind))


@cache
def traced(kind: str, beam_size: int, end_id: Any) -> Program:
    """Return a program whose functions are executed in Python."""
    positions = None if kind == "rotary" else MOST
    return trace(model_of(kind), beam_size=beam_size, end_id=end_id, positions=positions)


@pytest.mark.parametrize("kind", ["translator", "absolute", "rotary"])
@given(
    beam_size=st.integers(1, 5),
    ends=st.sampled_from([None, 9, (9, 4), tuple(range(2, VOCABULARY, 3))]),
    limits=st.lists(st.integers(1, 12), min_size=6, max_size=6),
    penalty=st.sampled_from([0.0, 0.6, 3.0]),
    lookahead=st.sampled_from([None, 0, 1, 30]),
    data=st.data(),
)
def test_a_program_finds_what_beam_search_finds(
    kind: str,
    beam_size: int,
    ends: Any,
    limits: list[int],
    penalty: float,
    lookahead: int | None,
    data: st.DataObject,
) -> None:
    # A source may be empty, and may have padding within it.
    prompt = st.lists(st.integers(0, VOCABULARY - 1), min_size=kind != "translator", max_size=6)
    sources = data.draw(st.lists(prompt, max_size=6))
    options: dict[str, Any] = {
        "max_length": limits[: len(sources)],
        "length_penalty": penalty,
        "lookahead": lookahead,
        "n_best": data.draw(st.integers(1, beam_size)),
    }
    search: Any = partial(beam_search, beam_size=beam_size, end_id=ends)
    expected = prepared(kind).generate(sources, search, **options)
    found = traced(kind, beam_size, ends).generate(sources, **options)
    for row, expected_row in zip(found, expected, strict=True):
        assert_same(row, expected_row)


@pytest.mark.parametrize("prompt", [[5], [5, 6], [5, 6, 7]])
def test_a_text_may_have_as_many_tokens_as_there_are_positions(prompt: list[int]) -> None:
    decode = traced("absolute", 2, None).generate
    most = MOST - len(prompt) + 1  # the last token is not embedded
    ((found,),) = decode([prompt], max_length=most)
    assert len(found.tokens) == most
    with pytest.raises(ValueError, match="positions for 20 tokens only"):
        decode([prompt], max_length=most + 1)


@pytest.fixture(scope="module")
def untuned() -> Iterator[None]:
    """Compile without trying several products, which takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(program.OPTIONS, "max_autotune_gemm", False)
        yield


BATCHES = [[[5, 6, 7]], [[5]], [[5, 6, 7], [8, 9], [3], [11, 12, 13, 14]], [[4, 5], [6, 7]]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "beam_size", "dtype"),
    [
        ("translator", 3, torch.float64),
        ("translator", 1, torch.float32),
        ("absolute", 3, torch.float32),
        ("rotary", 1, torch.float32),
        ("rotary", 2, torch.float64),
    ],
)
def test_a_compiled_program_finds_what_beam_search_finds_in_batches_of_any_size(
    kind: str, beam_size: int, dtype: torch.dtype, untuned: None, tmp_path: Path
) -> None:
    model, file = model_of(kind, dtype), tmp_path / "p.pt2"
    save_program(model, file, beam_size=beam_size, end_id=9)
    loaded = load_program(file)
    options: dict[str, Any] = {"max_length": 10, "n_best": beam_size}
    for prompts in BATCHES:
        search: Any = partial(beam_search, beam_size=beam_size, end_id=9)
        expected = prepare(model).generate(prompts, search, **options)
        assert [[each.tokens for each in row] for row in loaded.generate(prompts, **options)] == [
            [each.tokens for each in row] for row in expected
        ]
    if kind != "rotary":
        with pytest.raises(ValueError, match="positions for 20 tokens only"):
            loaded.generate([[5] * (MOST + 2)], max_length=1)


@pytest.mark.slow
def test_a_compiled_int8_program_finds_what_the_int8_model_finds(
    untuned: None, tmp_path: Path
) -> None:
    model = model_of("translator", torch.float32)
    save_program(model, tmp_path / "p.pt2", end_id=9, int8=True)
    loaded = load_program(tmp_path / "p.pt2")
    int8: Any = prepare(model, int8=True)
    for prompts in BATCHES:
        expected = int8.generate(prompts, greedy_search, end_id=9, max_length=10)
        found = loaded.generate(prompts, max_length=10)
        assert [row[0].tokens for row in found] == [each.tokens for each in expected]


def write_program(file: Path, facts: dict[str, Any]) -> None:
    """Write a program whose functions hold no code."""
    with TemporaryDirectory() as folder:
        for name in program.FILES - {"facts.json"}:
            zipfile.ZipFile(Path(folder, name), "w").close()
        program.write_program(file, facts, Path(folder))


@pytest.fixture
def loader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load functions that hold no code."""
    loaded = SimpleNamespace(loader=SimpleNamespace(run=None))
    monkeypatch.setattr("torch._inductor.aoti_load_package", lambda _: loaded)


def test_a_file_is_refused_for_another_torch_or_processor(
    monkeypatch: pytest.MonkeyPatch, loader: None, tmp_path: Path
) -> None:
    model, file = model_of("translator"), tmp_path / "program.pt2"
    facts = program.describe(model, 2, 9)
    write_program(file, facts)
    assert load_program(file).beam_size == 2
    for name in ("torch", "processor"):
        with monkeypatch.context() as patch:
            patch.setattr(program, "_environment", lambda name=name: {name: "another"})
            made_for = re.escape(f"program.pt2 was made for {name} {facts[name]}; this is another")
            with pytest.raises(ValueError, match=made_for):
                load_program(file)
    with pytest.raises(FileNotFoundError, match=r"none.pt2"):
        load_program(tmp_path / "none.pt2")


def add_a_file(file: Path) -> None:
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("other", b"")


DAMAGES: dict[str, tuple[Callable[[Path], object], str]] = {
    "text": (lambda file: file.write_text("no program"), "not a zip file"),
    "truncated": (lambda file: file.write_bytes(file.read_bytes()[:-9]), ""),
    "one file more": (add_a_file, "it must hold facts.json, "),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_program_is_refused(damage: str, loader: None, tmp_path: Path) -> None:
    file, (change, message) = tmp_path / "program.pt2", DAMAGES[damage]
    write_program(file, program.describe(model_of("translator"), 2, 9))
    load_program(file)
    change(file)
    match = f"program.pt2 is no program that save_program wrote: .*{message}"
    with pytest.raises(ValueError, match=match):
        load_program(file)


def test_a_program_without_code_is_refused(tmp_path: Path) -> None:
    write_program(tmp_path / "p.pt2", program.describe(model_of("translator"), 2, 9))
    with pytest.raises(ValueError, match=r"p.pt2 holds no code that can be loaded"):
        load_program(tmp_path / "p.pt2")


def test_a_program_is_made_without_hooks_and_replaced_methods() -> None:
    model = copy.deepcopy(model_of("translator"))
    model.encoder.layers[0].register_forward_hook(lambda *_: None)
    with pytest.raises(ValueError, match=r"encoder.layers.0 must have neither hooks nor"):
        program.describe(model, 2, 9)


def test_each_token_of_a_program_has_an_embedding() -> None:
    changes: dict[str, Callable[[Any], object]] = {
        "begin_id": lambda model: setattr(model, "begin_id", VOCABULARY),
        "padding_id": lambda model: setattr(model, "padding_id", VOCABULARY),
        "output": lambda model: setattr(model, "output", nn.Linear(16, VOCABULARY + 1).double()),
    }
    for name, change in changes.items():
        model = copy.deepcopy(model_of("translator"))
        change(model)
        message = f"{name} must stay below the {VOCABULARY} tokens of its embedding, got id 24"
        with pytest.raises(ValueError, match=message):
            program.describe(model, 2, 9)


@pytest.mark.parametrize("place", ["none/p.pt2", "link", "."])
def test_a_place_that_cannot_be_written_is_refused_before_the_model_is_compiled(
    monkeypatch: pytest.MonkeyPatch, place: str, tmp_path: Path
) -> None:
    monkeypatch.setattr(program, "prepare", None)
    (tmp_path / "p.pt2").write_text("an earlier program")
    (tmp_path / "link").symlink_to(tmp_path / "p.pt2")
    with pytest.raises(OSError, match=r"does not exist|symbolic link|is a folder"):
        save_program(model_of("translator"), tmp_path / place, end_id=9)


def test_an_earlier_program_remains_where_the_disk_is_full(
    monkeypatch: pytest.MonkeyPatch, loader: None, tmp_path: Path
) -> None:
    facts = program.describe(model_of("translator"), 2, 9)
    write_program(tmp_path / "p.pt2", facts)

    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "write", fail)
    with pytest.raises(OSError, match=r"No space left on device: .*p.pt2"):
        write_program(tmp_path / "p.pt2", facts | {"beam_size": 3})
    assert load_program(tmp_path / "p.pt2").beam_size == 2
    assert [file.name for file in tmp_path.iterdir()] == ["p.pt2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_best": 4}, "n_best must not exceed beam_size, got n_best=4 and beam_size=3"),
        ({"prompts": [[VOCABULARY]]}, r"prompts must hold ids in 0\.\.23, got 24"),
        ({"prompts": [[-1]]}, r"prompts must hold ids in 0\.\.23, got -1"),
        ({"prompts": [[5], []]}, "prompts must have at least one token each, got an empty one"),
        ({"max_length": [3, 4]}, "one number, or one for each of the 1 sequences"),
        ({"max_length": MOST + 1}, "the model has positions for 20 tokens only"),
        ({"prompts": [[5] * (MOST + 2)]}, "the model has positions for 20 tokens only"),
    ],
)
def test_a_search_that_the_program_cannot_make_is_refused(
    options: dict[str, Any], message: str
) -> None:
    call: dict[str, Any] = {"prompts": [[5, 6]], "max_length": 4} | options
    with pytest.raises(ValueError, match=message):
        traced("absolute", 3, None).generate(**call)


def test_a_model_that_no_program_can_be_made_of_is_refused(tmp_path: Path) -> None:
    model, file = model_of("translator"), tmp_path / "p.pt2"
    stack: Any = model.encoder
    with pytest.raises(TypeError, match="model must be"):
        save_program(stack, file, end_id=None)
    with pytest.raises(ValueError, match="prepared already"):
        save_program(prepare(model), file, end_id=None)
    for options, message in (
        ({"end_id": VOCABULARY}, "end_id must be below the vocabulary size 24, got end_id=24"),
        ({"end_id": 0, "beam_size": 25}, "beam_size must not exceed the vocabulary size"),
    ):
        given: dict[str, Any] = options
        with pytest.raises(ValueError, match=message):
            save_program(model, file, **given)
    assert not list(tmp_path.iterdir())


def test_logits_that_are_not_numbers_raise_an_error_of_their_own() -> None:
    broken = trace(model_of("translator"), beam_size=2, end_id=None)
    prefill = broken._functions["prefill_single"]
    broken._functions["prefill_single"] = lambda inputs: [
        torch.full_like(each, math.nan) for each in prefill(inputs)
    ]
    with pytest.raises(NonFiniteLogitsError, match="got NaN or infinity at step 1"):
        broken.generate([[5, 6]], max_length=4)


def test_without_a_compiler_a_program_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(torch, "_inductor", SimpleNamespace())
    with pytest.raises(RuntimeError, match=r"^the model cannot be compiled: AttributeError: "):
        save_program(model_of("translator"), tmp_path / "p.pt2", end_id=9)
    assert not list(tmp_path.iterdir())
