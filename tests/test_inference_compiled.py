"""Compiled steps: the same numbers, from one graph for all lengths."""

import copy
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.utils._pytree import tree_unflatten

from transformer_blocks import (
    KeyValueCache,
    MultiHeadAttention,
    PreNorm,
    RotaryPositionalEncoding,
    build_decoder,
    build_encoder,
    padding_mask,
    record_attention,
)
from transformer_blocks.inference import compile_steps, compiled, export, prepare
from transformer_blocks.inference.compiled import CompiledDecoder, CompiledEncoder

SIZES: dict[str, Any] = {"num_layers": 1, "d_model": 16, "num_heads": 4, "d_ff": 24}
TOLERANCE: dict[str, Any] = {"rtol": 0, "atol": 1e-5}


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[ExportedProgram]:
    """List what is exported, and run it as Python: machine code takes half a minute."""
    exported: list[ExportedProgram] = []

    def run_as_python(program: ExportedProgram, *, many: bool) -> Callable[..., list[Tensor]]:
        exported.append(program)
        module, layout = program.module(), program.call_spec.in_spec

        def run(tensors: list[Tensor]) -> list[Tensor]:
            inputs, _ = tree_unflatten(tensors, layout)
            return [module(*inputs)]

        return run

    monkeypatch.setattr(compiled, "compile_ahead_of_time", run_as_python)
    return exported


@torch.no_grad()
def test_one_graph_steps_through_a_text(programs: list[ExportedProgram]) -> None:
    decoder = build_decoder(**SIZES, residual=PreNorm).eval()
    prepared = prepare(decoder, compiled=True)
    assert type(prepared) is CompiledDecoder
    for sentences, source in ((2, 6), (3, 16), (5, 4)):
        memory, x = torch.randn(sentences, source, 16), torch.randn(sentences, 40, 16)
        tokens = torch.arange(source).expand(sentences, source).flip(1) + 0  # the last is padding
        mask = padding_mask(tokens)
        cache = prepared.new_cache(memory, memory_mask=mask)
        steps = [prepared(word, cache=cache) for word in x.split(1, dim=1)]
        expected = decoder(x, memory, memory_mask=mask)
        torch.testing.assert_close(torch.cat(steps, dim=1), expected, **TOLERANCE)
    assert len(programs) == 1


@torch.no_grad()
def test_a_compiled_step_drops_nothing(programs: list[ExportedProgram]) -> None:
    decoder = build_decoder(**SIZES, dropout=0.5).train()
    for part in decoder.modules():
        if isinstance(part, MultiHeadAttention):
            part.dropout = 0.5
    prepared, memory, x = (
        prepare(decoder, compiled=True),
        torch.randn(2, 6, 16),
        torch.randn(2, 5, 16),
    )
    assert not [name for name, part in prepared.named_modules() if part.training]
    runs = []
    for _ in range(3):
        cache = prepared.new_cache(memory)
        runs.append(torch.cat([prepared(word, cache=cache) for word in x.split(1, dim=1)], dim=1))
    assert len(programs) == 1
    assert torch.equal(runs[1], runs[2])
    torch.testing.assert_close(runs[2], decoder.eval()(x, memory), **TOLERANCE)


@torch.no_grad()
@pytest.mark.parametrize(
    ("sentences", "beams", "rows"),
    [(1, 1, "a single row"), (1, 2, "2 to 8 rows"), (2, 1, "2 to 8 rows"), (3, 3, "more than 8")],
)
def test_the_log_tells_before_it_is_compiled(
    sentences: int,
    beams: int,
    rows: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    told = []

    def note(program: object, *, many: bool) -> Callable[..., list[Tensor]]:
        told.append(list(caplog.messages))
        return lambda tensors: [tensors[0]]

    monkeypatch.setattr(compiled, "export_step", lambda *_: None)
    monkeypatch.setattr(compiled, "compile_ahead_of_time", note)
    prepared = prepare(build_decoder(**SIZES).eval(), compiled=True)
    with caplog.at_level("INFO"):
        cache = prepared.new_cache(torch.randn(sentences, 5, 16))
        cache.reorder(torch.arange(sentences).repeat_interleave(beams))
        for _ in range(4):  # the first is no plain step, the next goes the usual way
            prepared(torch.randn(sentences * beams, 1, 16), cache=cache)
    assert told == [caplog.messages]
    assert caplog.messages[0].startswith(f"compiling the steps of {rows}")


@torch.no_grad()
@pytest.mark.parametrize("build", [build_decoder, build_encoder])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_steps_that_are_compiled_ahead_are_not_compiled_in_a_search(
    build: Callable[..., nn.Module], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled: list[str] = []

    def note(program: str, *, many: bool) -> Callable[..., list[Tensor]]:
        compiled.append(program)
        return lambda tensors: [tensors[0]]

    monkeypatch.setattr(compiled, "export_step", lambda _, kind: str(kind))
    monkeypatch.setattr(compiled, "compile_ahead_of_time", note)
    prepared: Any = prepare(nn.Sequential(build(**SIZES)).to(dtype), compiled=True)
    compile_steps(prepared, sentences=5, beams=3)
    names = ["2 to 8 rows", "2 to 8 rows", "more than 8 rows"]
    if build is build_encoder:
        assert compiled == names[1:]
    else:
        assert compiled == [name for name in names for _ in ("unmasked", "masked")]
    before, (stack,) = len(compiled), prepared
    for sentences, source in ((5, 4), (2, 9), (1, 6)):
        memory = torch.randn(sentences, source, 16, dtype=dtype)
        mask = padding_mask(torch.arange(source).expand(sentences, source).flip(1))
        for options in ({}, {"memory_mask": mask}):
            if build is build_encoder:
                cache = stack.new_cache()
                stack(memory, causal=True, cache=cache)
            else:
                cache = stack.new_cache(memory, **options)
            cache.reorder(torch.arange(sentences).repeat_interleave(3))
            for _ in range(4):
                stack(torch.randn(3 * sentences, 1, 16, dtype=dtype), causal=True, cache=cache)
    assert len(compiled) == before


def test_what_has_no_compiled_steps_is_not_compiled_ahead() -> None:
    prepared = prepare(build_decoder(**SIZES))
    with pytest.raises(
        ValueError, match="model must be prepared with compiled=True, got no encoder"
    ):
        compile_steps(prepared)
    prepared = prepare(build_decoder(**SIZES), compiled=True)
    with pytest.raises(ValueError, match="sentences must be"):
        compile_steps(prepared, sentences=0)
    with pytest.raises(TypeError, match="beams must be"):
        compile_steps(prepared, beams=1.5)  # type: ignore[arg-type]


@torch.no_grad()
def test_an_encoder_that_writes_steps_too(programs: list[ExportedProgram]) -> None:
    encoder = build_encoder(**SIZES, attention_function=RotaryPositionalEncoding(4)).eval()
    prepared, x = prepare(encoder, compiled=True), torch.randn(3, 40, 16)
    assert type(prepared) is CompiledEncoder
    cache = prepared.new_cache()
    begun = prepared(x[:, :5], causal=True, cache=cache)
    steps = [prepared(word, causal=True, cache=cache) for word in x[:, 5:].split(1, dim=1)]
    expected = encoder(x, causal=True)
    torch.testing.assert_close(torch.cat([begun, *steps], dim=1), expected, **TOLERANCE)
    assert len(programs) == 1


@torch.no_grad()
def test_a_kernel_still_hears_what_is_causal(programs: list[ExportedProgram]) -> None:
    def attention_function(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        return value[:, :, -query.shape[2] :] * (2.0 if options["causal"] else 1.0)

    encoder = build_encoder(**SIZES, attention_function=attention_function).eval()
    prepared, x = prepare(encoder, compiled=True), torch.randn(2, 4, 16)
    for causal in (True, False):
        cache = prepared.new_cache()
        steps = [prepared(word, causal=causal, cache=cache) for word in x.split(1, dim=1)]
        torch.testing.assert_close(torch.cat(steps, dim=1), encoder(x, causal=causal), **TOLERANCE)
    assert len(programs) == 2


@torch.no_grad()
def test_rows_leave_and_double_while_steps_are_taken(programs: list[ExportedProgram]) -> None:
    decoder = build_decoder(**SIZES).eval()
    plain, prepared = prepare(decoder), prepare(decoder, compiled=True)
    memory = torch.randn(4, 6, 16)
    caches = [each.new_cache(memory) for each in (plain, prepared)]
    for rows in ([0, 1, 2, 3], [0, 0, 1, 1, 2, 2, 3, 3], [1, 0, 4, 5, 7, 6], [5, 2]):
        word = torch.randn(len(rows), 4, 16)
        for cache in caches:
            cache.reorder(torch.tensor(rows))
        for part in word.split(1, dim=1):
            expected, found = (
                each(part, cache=cache)
                for each, cache in zip((plain, prepared), caches, strict=True)
            )
            torch.testing.assert_close(found, expected, **TOLERANCE)
    assert programs


@torch.no_grad()
def test_rows_that_leave_need_no_code_of_their_own(programs: list[ExportedProgram]) -> None:
    decoder = build_decoder(**SIZES).eval()
    prepared, memory, x = (
        prepare(decoder, compiled=True),
        torch.randn(5, 6, 16),
        torch.randn(5, 4, 16),
    )
    cache = prepared.new_cache(memory)
    rows = torch.arange(5)
    expected = decoder(x, memory)
    for place, chosen in enumerate(([0, 1, 2, 3, 4], [0, 1, 2, 3], [3, 1, 2], [2, 0])):
        if place:
            cache.reorder(torch.tensor(chosen))
            rows = rows[chosen]
        found = prepared(x[rows, place : place + 1], cache=cache)
        torch.testing.assert_close(found, expected[rows, place : place + 1], **TOLERANCE)
    assert len(programs) == 1


@torch.no_grad()
def test_each_model_steps_with_its_own_weights(programs: list[ExportedProgram]) -> None:
    decoders = [build_decoder(**SIZES).eval() for _ in range(2)]
    rows = [1, 8, 9]
    memories, texts = torch.randn(18, 6, 16), torch.randn(18, 5, 16)
    for decoder in decoders:
        for parameter in decoder.parameters():
            parameter.normal_(std=0.3)
        prepared = prepare(decoder, compiled=True)
        for memory, x in zip(memories.split(rows), texts.split(rows), strict=True):
            cache = prepared.new_cache(memory)
            steps = [prepared(word, cache=cache) for word in x.split(1, dim=1)]
            torch.testing.assert_close(torch.cat(steps, dim=1), decoder(x, memory), **TOLERANCE)
    in_blocks = ["_linear_pointwise" in str(program.graph) for program in programs]
    assert in_blocks == [False, False, True] * 2  # for each model: a row, a few, many


@torch.no_grad()
def test_a_compiled_step_shows_its_attention(programs: list[ExportedProgram]) -> None:
    decoder = build_decoder(**SIZES).eval()
    prepared = prepare(decoder, compiled=True)
    memory, x = torch.randn(3, 5, 16), torch.randn(3, 6, 16)
    cache = prepared.new_cache(memory)
    for word in x[:, :4].split(1, dim=1):
        prepared(word, cache=cache)
    assert len(programs) == 1
    with record_attention(prepared) as steps:
        prepared(x[:, 4:5], cache=cache)
    with record_attention(decoder) as whole:
        decoder(x[:, :5], memory)
    assert steps.keys() == whole.keys()
    for name, (table,) in whole.items():
        torch.testing.assert_close(steps[name][0][:, :, 0], table[:, :, -1], **TOLERANCE)


@torch.no_grad()
@pytest.mark.parametrize("sentences", [1, 2, 9])
def test_beams_share_a_masked_memory(programs: list[ExportedProgram], sentences: int) -> None:
    decoder = build_decoder(**SIZES).eval()
    plain, prepared = prepare(decoder), prepare(decoder, compiled=True)
    tokens = torch.ones(sentences, 5, dtype=torch.int64)
    tokens[-1, 3:] = 0  # padding
    memory = torch.randn(sentences, 5, 16)
    caches = [
        each.new_cache(memory, memory_mask=padding_mask(tokens)) for each in (plain, prepared)
    ]
    for step in range(6):
        if step == 1:
            for cache in caches:
                cache.reorder(torch.arange(sentences).repeat_interleave(3))
        word = torch.randn(caches[0].rows, 1, 16)
        expected, found = (
            each(word, cache=cache) for each, cache in zip((plain, prepared), caches, strict=True)
        )
        torch.testing.assert_close(found, expected, **TOLERANCE)
    assert len(programs) == 1


@torch.no_grad()
def test_a_kind_that_is_met_once_is_not_compiled(programs: list[ExportedProgram]) -> None:
    prepared = prepare(build_decoder(**SIZES).eval(), compiled=True)
    cache, word = prepared.new_cache(torch.randn(2, 6, 16)), torch.randn(2, 1, 16)
    for _ in range(2):  # the first step of a text, and the first of its kind
        prepared(word, cache=cache)
    assert not programs
    prepared(word, cache=cache)
    assert len(programs) == 1


@torch.no_grad()
@pytest.mark.parametrize("wrong", ["heads", "width", "length", "rows", "dtype"])
def test_what_machine_code_would_not_notice_is_noticed_before(
    programs: list[ExportedProgram], wrong: str
) -> None:
    prepared, word = prepare(build_decoder(**SIZES).eval(), compiled=True), torch.randn(3, 1, 16)
    cache = prepared.new_cache(torch.randn(3, 6, 16))
    for _ in range(3):
        prepared(word, cache=cache)
    if wrong == "width":
        word = torch.randn(3, 1, 12)
    elif wrong == "rows":
        word = torch.randn(2, 1, 16)
    else:
        heads, length, dtype = 4, 3, torch.float32
        if wrong == "heads":
            heads = 2
        elif wrong == "length":
            length = 5  # than the source
        else:
            dtype = torch.float64
        other = KeyValueCache()
        keys = torch.randn(3, heads, length, 16 // heads, dtype=dtype)
        other.add(keys, keys)
        (cache.layers if wrong != "length" else cache.memory)[0] = other
        if wrong == "length":  # a mask of another source
            cache.memory_mask = torch.zeros(3, 1, 1, 6, dtype=torch.bool)
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        prepared(word, cache=cache)
    assert len(programs) == 1


@torch.no_grad()
def test_what_is_no_step_takes_the_usual_way(programs: list[ExportedProgram]) -> None:
    decoder = build_decoder(**SIZES).eval()
    prepared = prepare(decoder, compiled=True)
    memory, x = torch.randn(2, 6, 16), torch.randn(2, 8, 16)
    torch.testing.assert_close(prepared(x, memory), decoder(x, memory), **TOLERANCE)
    cache = prepared.new_cache(memory)
    pieces = [prepared(piece, cache=cache) for piece in x.split([4, 2, 2], dim=1)]
    torch.testing.assert_close(torch.cat(pieces, dim=1), decoder(x, memory), **TOLERANCE)
    word = x[:, :1]
    with pytest.raises(ValueError, match="x must have the cache's 2 rows"):
        prepared(word[:1], cache=cache)
    deeper = build_decoder(**SIZES | {"num_layers": 2}).eval()
    deeper(x, cache=(other := deeper.new_cache(memory)))
    with pytest.raises(ValueError, match="cache must be of this decoder with 1 layers"):
        prepared(word, cache=other)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cache = prepared.new_cache(memory)
        steps = [prepared(word, cache=cache) for word in x.split(1, dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), decoder(x, memory), rtol=0, atol=0.1)
    assert not programs


@torch.no_grad()
def test_a_step_is_not_compiled_while_gradients_are_recorded(
    programs: list[ExportedProgram],
) -> None:
    decoder, encoder = build_decoder(**SIZES).eval(), build_encoder(**SIZES).eval()
    prepared, word = prepare(decoder, compiled=True), torch.randn(2, 1, 16)
    writes = prepare(encoder, compiled=True)
    caches: list[Any] = [prepared.new_cache(torch.randn(2, 6, 16)), writes.new_cache()]
    for known in (False, True):
        for model, cache in zip((prepared, writes), caches, strict=True):
            with torch.enable_grad():
                for _ in range(3):
                    with pytest.raises(RuntimeError, match="a cache stores no gradients"):
                        model(word, cache=cache)
            assert len(programs) == 2 * known
            assert cache.length == 3 * known
        for model, cache in zip((prepared, writes), caches, strict=True):
            for _ in range(3 * (not known)):
                model(word, cache=cache)
    assert len(programs) == 2


@torch.no_grad()
@pytest.mark.parametrize("chosen", ["self_attention", "cross_attention"])
def test_a_compiled_step_shows_one_kind_of_attention_alone(
    programs: list[ExportedProgram], chosen: str
) -> None:
    prepared, word = prepare(build_decoder(**SIZES).eval(), compiled=True), torch.randn(3, 1, 16)
    cache = prepared.new_cache(torch.randn(3, 5, 16))
    for _ in range(3):
        prepared(word, cache=cache)
    assert len(programs) == 1
    with record_attention(prepared, only=lambda name: name.endswith(chosen)) as maps:
        prepared(word, cache=cache)
    assert [len(weights) for weights in maps.values()] == [1]


@torch.no_grad()
def test_pasts_of_different_lengths_are_no_plain_step(programs: list[ExportedProgram]) -> None:
    decoder = build_decoder(**SIZES | {"num_layers": 2}).eval()
    plain, prepared = prepare(decoder), prepare(decoder, compiled=True)
    memory, words = torch.randn(3, 6, 16), torch.randn(4, 3, 1, 16)
    other = KeyValueCache()
    other.add(*torch.randn(2, 3, 4, 2, 4))
    answers = []
    for model in (plain, prepared):
        cache = model.new_cache(memory)
        for word in words:
            model(word, cache=cache)
        cache.layers[1] = copy.deepcopy(other)
        answers.append(model(words[0], cache=cache))
    torch.testing.assert_close(*answers, **TOLERANCE)
    assert len(programs) == 1


def test_a_packed_model_that_others_compile_still_gives_gradients() -> None:
    graphs: list[fx.GraphModule] = []

    def note(graph: fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    encoder, x = build_encoder(**SIZES).eval(), torch.randn(4, 9, 16)
    compiled: Any = torch.compile(prepare(encoder), backend=note)
    gradients = []
    for model in (encoder, compiled):
        leaf = x.clone().requires_grad_()
        model(leaf).pow(2).sum().backward()
        gradients.append(leaf.grad)
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), encoder(x), **TOLERANCE)
    assert graphs
    assert not any("_linear_pointwise" in graph.code for graph in graphs)  # needs frozen weights


def test_stacks_are_found_wherever_they_stand_unless_they_carry_hooks() -> None:
    model = nn.ModuleDict(
        {
            "reads": build_encoder(**SIZES),
            "deep": nn.Sequential(build_decoder(**SIZES)),
            "watched": build_encoder(**SIZES),
        }
    )
    model["watched"].register_forward_hook(lambda *_: None)
    prepared = prepare(model, compiled=True)
    assert type(prepared["reads"]) is CompiledEncoder
    assert type(prepared.get_submodule("deep.0")) is CompiledDecoder
    assert not isinstance(prepared["watched"], CompiledEncoder)


@pytest.mark.slow
@torch.no_grad()
def test_machine_code_computes_the_same(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(export, "TemporaryDirectory", partial(TemporaryDirectory, dir=tmp_path))
    decoder = build_decoder(**SIZES, residual=PreNorm).eval()
    plain, prepared = prepare(decoder), prepare(decoder, compiled=True)
    for sentences, beams in ((1, 1), (9, 1), (1, 4), (5, 2)):  # few rows, and many
        tokens = torch.ones(sentences, 6, dtype=torch.int64)
        tokens[-1, 4:] = 0  # padding
        mask = padding_mask(tokens)
        memory = torch.randn(sentences, 6, 16)
        caches = [each.new_cache(memory, memory_mask=mask) for each in (plain, prepared)]
        for cache in caches:
            cache.reorder(torch.arange(sentences).repeat_interleave(beams))
        for _ in range(40):
            word = torch.randn(sentences * beams, 1, 16)
            expected, found = (
                each(word, cache=cache)
                for each, cache in zip((plain, prepared), caches, strict=True)
            )
            torch.testing.assert_close(found, expected, **TOLERANCE)
    assert not list(tmp_path.iterdir())  # what was compiled is in memory alone
