"""Compiled decoding steps: equal outputs, from one exported program for all lengths."""

import math
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from tests.test_prompts import POSITIONS, generate
from torch import Tensor, fx, nn
from torch.export import ExportedProgram
from torch.utils._pytree import tree_unflatten

from transformer_blocks import (
    GroupedQueryAttention,
    KeyValueCache,
    MultiHeadAttention,
    PreNorm,
    QueryKeyNorm,
    RotaryPositionalEncoding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    beam_search,
    build_decoder,
    build_encoder,
    greedy_search,
    padding_mask,
    record_attention,
    sample,
    sliding_window_mask,
)
from transformer_blocks.generation import IncrementalDecoder
from transformer_blocks.inference import compile_steps, compiled, export, prepare
from transformer_blocks.inference.compiled import CompiledDecoder, CompiledEncoder
from transformer_blocks.inference.export import StepSignature

SIZES: dict[str, Any] = {"num_layers": 1, "d_model": 16, "num_heads": 4, "d_ff": 24}
TOLERANCE: dict[str, Any] = {"rtol": 0, "atol": 1e-5}


def run_in_python(
    exported: list[ExportedProgram], program: ExportedProgram, *, prepack: bool
) -> Callable[..., list[Tensor]]:
    """Add a program to a list, and run it in Python in place of its compilation."""
    exported.append(program)
    module, input_structure = program.module(check_guards=False), program.call_spec.in_spec

    def run(tensors: list[Tensor]) -> list[Tensor]:
        inputs, _ = tree_unflatten(tensors, input_structure)
        return list(module(*inputs))

    return run


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> list[ExportedProgram]:
    """List the exported programs, which run in Python: compilation takes half a minute."""
    exported: list[ExportedProgram] = []

    monkeypatch.setattr(compiled, "compile_ahead_of_time", partial(run_in_python, exported))
    return exported


@torch.no_grad()
def test_one_program_computes_the_steps_of_all_batch_sizes_and_lengths(
    programs: list[ExportedProgram],
) -> None:
    decoder = build_decoder(**SIZES, residual=PreNorm).eval()
    prepared = prepare(decoder, compiled=True)
    assert type(prepared) is CompiledDecoder
    for batch_size, source_length in ((2, 6), (3, 16), (5, 4)):
        memory, x = torch.randn(batch_size, source_length, 16), torch.randn(batch_size, 40, 16)
        tokens = torch.arange(source_length).expand(batch_size, -1).flip(1)  # the last is padding
        mask = padding_mask(tokens)
        cache = prepared.new_cache(memory, memory_mask=mask)
        steps = [prepared(token, cache=cache) for token in x.split(1, dim=1)]
        expected = decoder(x, memory, memory_mask=mask)
        torch.testing.assert_close(torch.cat(steps, dim=1), expected, **TOLERANCE)
    assert len(programs) == 1


@torch.no_grad()
def test_a_compiled_step_applies_no_dropout(programs: list[ExportedProgram]) -> None:
    decoder = build_decoder(**SIZES, dropout=0.5).train()
    for part in decoder.modules():
        if isinstance(part, MultiHeadAttention):
            part.dropout = 0.5
    prepared = prepare(decoder, compiled=True)
    memory, x = torch.randn(2, 6, 16), torch.randn(2, 5, 16)
    assert not [name for name, part in prepared.named_modules() if part.training]
    runs = []
    for _ in range(3):
        cache = prepared.new_cache(memory)
        runs.append(torch.cat([prepared(token, cache=cache) for token in x.split(1, dim=1)], dim=1))
    assert len(programs) == 1
    assert torch.equal(runs[1], runs[2])
    torch.testing.assert_close(runs[2], decoder.eval()(x, memory), **TOLERANCE)


@torch.no_grad()
@pytest.mark.parametrize(
    ("batch_size", "beam_size", "rows"),
    [(1, 1, "a single row"), (1, 2, "2 to 8 rows"), (2, 1, "2 to 8 rows"), (3, 3, "more than 8")],
)
def test_a_compilation_is_logged_before_it_begins(
    batch_size: int,
    beam_size: int,
    rows: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    messages_at_compilation = []

    def compile_nothing(program: object, *, prepack: bool) -> Callable[..., list[Tensor]]:
        messages_at_compilation.append(list(caplog.messages))
        return lambda tensors: [tensors[0]]

    monkeypatch.setattr(compiled, "export_step", lambda *_: None)
    monkeypatch.setattr(compiled, "compile_ahead_of_time", compile_nothing)
    prepared = prepare(build_decoder(**SIZES).eval(), compiled=True)
    with caplog.at_level("INFO"):
        cache = prepared.new_cache(torch.randn(batch_size, 5, 16))
        cache.reorder(torch.arange(batch_size).repeat_interleave(beam_size))
        for _ in range(4):  # eager: the first step of the cache, and the first of the signature
            prepared(torch.randn(batch_size * beam_size, 1, 16), cache=cache)
    assert messages_at_compilation == [caplog.messages]
    assert caplog.messages[0].startswith(f"compiling the decoding steps for {rows}")


@torch.no_grad()
@pytest.mark.parametrize("build", [build_decoder, build_encoder])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_steps_that_are_compiled_beforehand_are_not_compiled_in_a_search(
    build: Callable[..., nn.Module], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    compilations: list[tuple[str, bool]] = []

    def note(signature: StepSignature, *, prepack: bool) -> Callable[..., list[Tensor]]:
        assert prepack == signature.is_prepacked
        compilations.append((str(signature), signature.is_masked))
        return lambda tensors: [tensors[0]]

    monkeypatch.setattr(compiled, "export_step", lambda _, signature: signature)
    monkeypatch.setattr(compiled, "compile_ahead_of_time", note)
    prepared: Any = prepare(nn.Sequential(build(**SIZES)).to(dtype), compiled=True)
    compile_steps(prepared, batch_size=5, beam_size=3)
    rows = ["2 to 8 rows", "2 to 8 rows", "more than 8 rows"]
    rows = rows[1:] if build is build_encoder else rows
    assert compilations == [(name, is_masked) for name in rows for is_masked in (False, True)]
    before, (stack,) = len(compilations), prepared
    for batch_size, source_length in ((5, 4), (2, 9), (1, 6)):
        memory = torch.randn(batch_size, source_length, 16, dtype=dtype)
        mask = padding_mask(torch.arange(source_length).expand(batch_size, -1).flip(1))
        for options in ({}, {"memory_mask": mask}):
            if build is build_encoder:
                cache = stack.new_cache()
                stack(memory, causal=True, cache=cache)
            else:
                cache = stack.new_cache(memory, **options)
            cache.reorder(torch.arange(batch_size).repeat_interleave(3))
            for _ in range(4):
                stack(torch.randn(3 * batch_size, 1, 16, dtype=dtype), causal=True, cache=cache)
    assert len(compilations) == before


def test_a_model_without_compiled_steps_is_not_compiled_beforehand() -> None:
    prepared = prepare(build_decoder(**SIZES))
    with pytest.raises(
        ValueError, match="model must be prepared with compiled=True, got no encoder"
    ):
        compile_steps(prepared)
    prepared = prepare(build_decoder(**SIZES), compiled=True)
    with pytest.raises(ValueError, match="batch_size must be"):
        compile_steps(prepared, batch_size=0)
    with pytest.raises(TypeError, match="beam_size must be"):
        compile_steps(prepared, beam_size=1.5)  # type: ignore[arg-type]


@pytest.mark.slow
@torch.no_grad()
def test_the_steps_of_a_causal_encoder_are_compiled_too(programs: list[ExportedProgram]) -> None:
    encoder = build_encoder(
        **SIZES,
        attention=lambda: GroupedQueryAttention(
            16, 4, 2, transforms=[QueryKeyNorm(4), RotaryPositionalEncoding(4)]
        ),
    ).eval()
    prepared, x = prepare(encoder, compiled=True), torch.randn(3, 40, 16)
    assert type(prepared) is CompiledEncoder
    cache = prepared.new_cache()
    prefill = prepared(x[:, :5], causal=True, cache=cache)
    steps = [prepared(token, causal=True, cache=cache) for token in x[:, 5:].split(1, dim=1)]
    expected = encoder(x, causal=True)
    torch.testing.assert_close(torch.cat([prefill, *steps], dim=1), expected, **TOLERANCE)
    assert len(programs) == 1


@torch.no_grad()
def test_the_steps_of_padded_prompts_are_compiled_too(programs: list[ExportedProgram]) -> None:
    encoder = build_encoder(**SIZES).eval()
    models = prepare(encoder), prepare(encoder, compiled=True)
    for rows, length in ((2, 3), (5, 4)):
        caches = [model.new_cache() for model in models]
        padding = torch.arange(rows)[:, None] % 3
        for start, end in [(0, length), *((n, n + 1) for n in range(length, length + 30))]:
            x = torch.randn(rows, end - start, 16)
            mask = (torch.arange(end) < padding)[:, None, None]
            expected, output = (
                model(x, mask=mask, causal=True, cache=cache)
                for model, cache in zip(models, caches, strict=True)
            )
            torch.testing.assert_close(output, expected, **TOLERANCE)
    assert len(programs) == 1


@torch.no_grad()
def test_a_mask_that_is_not_of_padding_is_obeyed_eagerly(programs: list[ExportedProgram]) -> None:
    encoder = build_encoder(**SIZES).eval()
    models = prepare(encoder), prepare(encoder, compiled=True)
    caches = [model.new_cache() for model in models]
    for step in range(1, 7):
        x = torch.randn(3, 1, 16)
        window = sliding_window_mask(1, step, window=2)
        mask = (window, window[None, None], window.expand(3, 4, 1, step))[step % 3]
        expected, output = (
            model(x, mask=mask, causal=True, cache=cache)
            for model, cache in zip(models, caches, strict=True)
        )
        torch.testing.assert_close(output, expected, **TOLERANCE)
    with pytest.raises(ValueError, match=r"^mask must have shape"):
        models[1](x, mask=torch.zeros(3, 1, 1, 6, dtype=torch.bool), causal=True, cache=caches[1])
    for wrong in (torch.zeros(3, 1, 1, 7), [[False] * 7] * 3):
        with pytest.raises(TypeError, match=r"^mask must be"):
            models[1](x, mask=wrong, causal=True, cache=caches[1])
    assert not programs


@pytest.mark.parametrize(
    ("positions", "searches"),
    [
        pytest.param("learned", ["greedy"], marks=pytest.mark.slow),
        pytest.param("learned", ["beam", "sample"], marks=pytest.mark.slow),
        pytest.param("rotary", ["greedy", "beam", "sample"], marks=pytest.mark.slow),
        pytest.param("ALiBi", ["greedy", "beam", "sample"], marks=pytest.mark.slow),
        pytest.param("relative bias", ["greedy", "beam"], marks=pytest.mark.slow),
    ],
)
def test_a_batch_of_prompts_generates_with_compiled_steps_what_each_generates_alone(
    positions: str, searches: list[str], programs: list[ExportedProgram]
) -> None:
    model: Any = POSITIONS[positions]().eval()
    compiled = prepare(model, compiled=True)
    prompts = [[1, 2, 3, 4], [5], [6, 7], [5]]
    options = {"end_id": 3, "temperature": 3.0, "top_k": None, "top_p": None, "lookahead": None}
    for search in searches:
        case = options | {"search": search, "beam_size": 2}
        own = {"max_length": [8, 11, 6, 9], "seeds": [1, 2, 3, 4]}
        together = generate(compiled, prompts, case | own)
        for row, found in enumerate(together):
            alone = case | {name: [values[row]] for name, values in own.items()}
            for other in (model, compiled):
                (expected,) = generate(other, [prompts[row]], alone)
                assert [each.tokens for each in found] == [each.tokens for each in expected]
    masked = ["mask" in str(program.graph_signature) for program in programs]
    assert {True, False} <= set(masked)


@torch.no_grad()
def test_an_attention_function_receives_the_causal_flag_in_compiled_steps(
    programs: list[ExportedProgram],
) -> None:
    def attention_function(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        return value[:, :, -query.shape[2] :] * (2.0 if options["causal"] else 1.0)

    encoder = build_encoder(
        **SIZES,
        attention=lambda: MultiHeadAttention(16, 4, attention_function=attention_function),
    ).eval()
    prepared, x = prepare(encoder, compiled=True), torch.randn(2, 4, 16)
    for causal in (True, False):
        cache = prepared.new_cache()
        steps = [prepared(token, causal=causal, cache=cache) for token in x.split(1, dim=1)]
        torch.testing.assert_close(torch.cat(steps, dim=1), encoder(x, causal=causal), **TOLERANCE)
    assert len(programs) == 2


@pytest.mark.slow
@torch.no_grad()
def test_rows_may_be_removed_and_repeated_between_compiled_steps(
    programs: list[ExportedProgram],
) -> None:
    decoder = build_decoder(**SIZES).eval()
    models = prepare(decoder), prepare(decoder, compiled=True)
    memory = torch.randn(4, 6, 16)
    caches = [model.new_cache(memory) for model in models]
    for rows in ([0, 1, 2, 3], [0, 0, 1, 1, 2, 2, 3, 3], [1, 0, 4, 5, 7, 6], [5, 2]):
        x = torch.randn(len(rows), 4, 16)
        for cache in caches:
            cache.reorder(torch.tensor(rows))
        for token in x.split(1, dim=1):
            expected, output = (
                model(token, cache=cache) for model, cache in zip(models, caches, strict=True)
            )
            torch.testing.assert_close(output, expected, **TOLERANCE)
    assert programs


@torch.no_grad()
def test_a_smaller_batch_needs_no_program_of_its_own(programs: list[ExportedProgram]) -> None:
    decoder = build_decoder(**SIZES).eval()
    prepared = prepare(decoder, compiled=True)
    memory, x = torch.randn(5, 6, 16), torch.randn(5, 4, 16)
    cache = prepared.new_cache(memory)
    rows = torch.arange(5)
    expected = decoder(x, memory)
    for position, chosen in enumerate(([0, 1, 2, 3, 4], [0, 1, 2, 3], [3, 1, 2], [2, 0])):
        if position:
            cache.reorder(torch.tensor(chosen))
            rows = rows[chosen]
        output = prepared(x[rows, position : position + 1], cache=cache)
        torch.testing.assert_close(output, expected[rows, position : position + 1], **TOLERANCE)
    assert len(programs) == 1


@pytest.mark.slow
@torch.no_grad()
def test_each_model_is_compiled_with_its_own_weights(programs: list[ExportedProgram]) -> None:
    decoders = [build_decoder(**SIZES).eval() for _ in range(2)]
    rows = [1, 8, 9]
    memories, targets = torch.randn(18, 6, 16), torch.randn(18, 5, 16)
    for decoder in decoders:
        for parameter in decoder.parameters():
            parameter.normal_(std=0.3)
        prepared = prepare(decoder, compiled=True)
        for memory, x in zip(memories.split(rows), targets.split(rows), strict=True):
            cache = prepared.new_cache(memory)
            steps = [prepared(token, cache=cache) for token in x.split(1, dim=1)]
            torch.testing.assert_close(torch.cat(steps, dim=1), decoder(x, memory), **TOLERANCE)
    is_prepacked = ["_linear_pointwise" in str(program.graph) for program in programs]
    assert is_prepacked == [False, False, True] * 2  # for each model: one row, 8 rows, 9 rows


@torch.no_grad()
def test_the_attention_weights_of_compiled_steps_are_recorded(
    programs: list[ExportedProgram],
) -> None:
    decoder = build_decoder(**SIZES).eval()
    prepared = prepare(decoder, compiled=True)
    memory, x = torch.randn(3, 5, 16), torch.randn(3, 6, 16)
    cache = prepared.new_cache(memory)
    for token in x[:, :4].split(1, dim=1):
        prepared(token, cache=cache)
    assert len(programs) == 1
    with record_attention(prepared) as steps:
        prepared(x[:, 4:5], cache=cache)
    with record_attention(decoder) as whole:
        decoder(x[:, :5], memory)
    assert steps.keys() == whole.keys()
    for name, (weights,) in whole.items():
        torch.testing.assert_close(steps[name][0][:, :, 0], weights[:, :, -1], **TOLERANCE)


@torch.no_grad()
@pytest.mark.parametrize("batch_size", [1, 2, pytest.param(9, marks=pytest.mark.slow)])
def test_beams_share_a_masked_memory(programs: list[ExportedProgram], batch_size: int) -> None:
    decoder = build_decoder(**SIZES).eval()
    models = prepare(decoder), prepare(decoder, compiled=True)
    tokens = torch.ones(batch_size, 5, dtype=torch.int64)
    tokens[-1, 3:] = 0  # padding
    memory, mask = torch.randn(batch_size, 5, 16), padding_mask(tokens)
    caches = [model.new_cache(memory, memory_mask=mask) for model in models]
    for step in range(6):
        if step == 1:
            for cache in caches:
                cache.reorder(torch.arange(batch_size).repeat_interleave(3))
        token = torch.randn(caches[0].rows, 1, 16)
        expected, output = (
            model(token, cache=cache) for model, cache in zip(models, caches, strict=True)
        )
        torch.testing.assert_close(output, expected, **TOLERANCE)
    assert len(programs) == 1


@torch.no_grad()
def test_a_signature_that_occurs_once_is_not_compiled(programs: list[ExportedProgram]) -> None:
    prepared = prepare(build_decoder(**SIZES).eval(), compiled=True)
    cache, token = prepared.new_cache(torch.randn(2, 6, 16)), torch.randn(2, 1, 16)
    for _ in range(2):  # the first step of the cache, and the first of its signature
        prepared(token, cache=cache)
    assert not programs
    prepared(token, cache=cache)
    assert len(programs) == 1


@pytest.mark.slow
@torch.no_grad()
@pytest.mark.parametrize("wrong", ["heads", "d_model", "length", "rows", "dtype"])
def test_sizes_that_a_compiled_program_does_not_check_are_checked_before(
    programs: list[ExportedProgram], wrong: str
) -> None:
    prepared, token = prepare(build_decoder(**SIZES).eval(), compiled=True), torch.randn(3, 1, 16)
    cache = prepared.new_cache(torch.randn(3, 6, 16))
    for _ in range(3):
        prepared(token, cache=cache)
    if wrong == "d_model":
        token = torch.randn(3, 1, 12)
    elif wrong == "rows":
        token = torch.randn(2, 1, 16)
    else:
        heads, length, dtype = 4, 3, torch.float32
        if wrong == "heads":
            heads = 2
        elif wrong == "length":
            length = 5  # the memory has 6
        else:
            dtype = torch.float64
        other = KeyValueCache()
        keys = torch.randn(3, heads, length, 16 // heads, dtype=dtype)
        other.append(keys, keys)
        (cache.layers if wrong != "length" else cache.memory)[0] = other
        if wrong == "length":  # the mask is for another memory
            cache.memory_mask = torch.zeros(3, 1, 1, 6, dtype=torch.bool)
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        prepared(token, cache=cache)
    assert len(programs) == 1


@torch.no_grad()
def test_calls_that_are_not_decoding_steps_are_executed_eagerly(
    programs: list[ExportedProgram],
) -> None:
    decoder = build_decoder(**SIZES).eval()
    prepared = prepare(decoder, compiled=True)
    memory, x = torch.randn(2, 6, 16), torch.randn(2, 8, 16)
    torch.testing.assert_close(prepared(x, memory), decoder(x, memory), **TOLERANCE)
    cache = prepared.new_cache(memory)
    chunks = [prepared(chunk, cache=cache) for chunk in x.split([4, 2, 2], dim=1)]
    torch.testing.assert_close(torch.cat(chunks, dim=1), decoder(x, memory), **TOLERANCE)
    token = x[:, :1]
    with pytest.raises(ValueError, match="x must have the cache's batch size 2"):
        prepared(token[:1], cache=cache)
    deeper = build_decoder(**SIZES | {"num_layers": 2}).eval()
    deeper(x, cache=(other := deeper.new_cache(memory)))
    with pytest.raises(ValueError, match="cache must be of this stack with 1 layers"):
        prepared(token, cache=other)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cache = prepared.new_cache(memory)
        steps = [prepared(token, cache=cache) for token in x.split(1, dim=1)]
    torch.testing.assert_close(torch.cat(steps, dim=1), decoder(x, memory), rtol=0, atol=0.1)
    assert not programs


@torch.no_grad()
def test_a_step_is_not_compiled_while_gradients_are_recorded(
    programs: list[ExportedProgram],
) -> None:
    decoder, encoder = build_decoder(**SIZES).eval(), build_encoder(**SIZES).eval()
    models: list[Any] = [prepare(stack, compiled=True) for stack in (decoder, encoder)]
    caches = [models[0].new_cache(torch.randn(2, 6, 16)), models[1].new_cache()]
    token = torch.randn(2, 1, 16)
    for is_compiled in (False, True):
        for model, cache in zip(models, caches, strict=True):
            with torch.enable_grad():
                for _ in range(3):
                    with pytest.raises(RuntimeError, match="gradients"):
                        model(token, cache=cache)
            assert len(programs) == 2 * is_compiled
            assert cache.length == 3 * is_compiled
        for model, cache in zip(models, caches, strict=True):
            for _ in range(3 * (not is_compiled)):
                model(token, cache=cache)
    assert len(programs) == 2


@torch.no_grad()
@pytest.mark.parametrize("chosen", ["self_attention", "cross_attention"])
def test_one_attention_alone_of_a_compiled_step_is_recorded(
    programs: list[ExportedProgram], chosen: str
) -> None:
    prepared, token = prepare(build_decoder(**SIZES).eval(), compiled=True), torch.randn(3, 1, 16)
    cache = prepared.new_cache(torch.randn(3, 5, 16))
    for _ in range(3):
        prepared(token, cache=cache)
    assert len(programs) == 1
    with record_attention(prepared, only=lambda name: name.endswith(chosen)) as maps:
        prepared(token, cache=cache)
    assert [len(weights) for weights in maps.values()] == [1]


def test_torch_compile_of_a_prepared_model_still_gives_gradients() -> None:
    graphs: list[fx.GraphModule] = []

    def backend(graph: fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    encoder, x = build_encoder(**SIZES).eval(), torch.randn(4, 9, 16)
    compiled: Any = torch.compile(prepare(encoder), backend=backend)
    gradients = []
    for model in (encoder, compiled):
        inputs = x.clone().requires_grad_()
        model(inputs).pow(2).sum().backward()
        gradients.append(inputs.grad)
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-4)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), encoder(x), **TOLERANCE)
    assert graphs
    assert not any("_linear_pointwise" in graph.code for graph in graphs)  # needs constant weights


def test_stacks_anywhere_in_a_model_are_compiled_unless_they_have_hooks() -> None:
    model = nn.ModuleDict(
        {
            "encoder": build_encoder(**SIZES),
            "nested": nn.Sequential(build_decoder(**SIZES)),
            "hooked": build_encoder(**SIZES),
        }
    )
    model["hooked"].register_forward_hook(lambda *_: None)
    prepared = prepare(model, compiled=True)
    assert type(prepared["encoder"]) is CompiledEncoder
    assert type(prepared.get_submodule("nested.0")) is CompiledDecoder
    assert not isinstance(prepared["hooked"], CompiledEncoder)


class SmallTranslator(nn.Module):
    """An encoder-decoder model whose embedding and output layer are parts of the compiled step."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(30, 16)
        self.positions = SinusoidalPositionalEncoding(16, max_length=12)
        self.encoder, self.decoder = build_encoder(**SIZES), build_decoder(**SIZES)
        self.output = nn.Linear(16, 30, bias=False)
        nn.init.normal_(self.output.weight, std=0.6)

    def embed(self, tokens: Tensor, offset: int) -> Tensor:
        return self.positions(self.embedding(tokens), offset=offset)

    def logits(self, hidden: Tensor) -> Tensor:
        return self.output(hidden)

    def begin(self, source: Tensor, **changes: Any) -> IncrementalDecoder:
        mask = padding_mask(source)
        memory = self.encoder(self.embed(source, 0), mask=mask)
        cache: Any = self.decoder.new_cache(memory, memory_mask=mask)
        layers: dict[str, Any] = {"embed": self.embed, "output": self.logits} | changes
        return IncrementalDecoder(self.decoder, cache, **layers)


SOURCE, START = torch.tensor([[5, 6, 7]] * 3), torch.tensor([1, 2, 0])
SEARCHES: dict[str, Callable[..., Any]] = {
    "greedy": greedy_search,
    "beam": partial(beam_search, beam_size=3, n_best=3, lookahead=5),
    "sample": lambda *inputs, **options: sample(
        *inputs, **options, generator=torch.Generator().manual_seed(0)
    ),
}


def translate(model: Any, search: str, rows: int, **changes: Any) -> tuple[list[Any], list[float]]:
    """Return the tokens that a search finds, and their scores."""
    source = torch.arange(6 * rows).view(rows, 6) % 29 + 1
    source[-1, 4:] = 0  # padding
    with torch.inference_mode():
        found = SEARCHES[search](
            model.begin(source, **changes), torch.ones(rows).long(), end_id=3, max_length=12
        )
    flat = [each for row in found for each in (row if isinstance(row, list) else [row])]
    return [(each.tokens, each.finished) for each in flat], [each.score for each in flat]


def ids_of(programs: list[ExportedProgram]) -> list[bool]:
    """Return of each program whether its input is token ids, not their embeddings."""
    return ["embedding" in str(program.graph) for program in programs]


@pytest.fixture(scope="module")
def compiled_translator() -> tuple[Any, list[ExportedProgram]]:
    """Return a model with a program for the greedy steps of several sentences, without padding."""
    exported: list[ExportedProgram] = []
    with pytest.MonkeyPatch.context() as patch, torch.inference_mode():
        patch.setattr(compiled, "compile_ahead_of_time", partial(run_in_python, exported))
        prepared: Any = prepare(SmallTranslator().eval(), compiled=True)
        steps = prepared.begin(SOURCE)
        for _ in range(3):
            steps.step(START)
    return prepared, exported


@pytest.fixture
def translator(
    compiled_translator: tuple[Any, list[ExportedProgram]], monkeypatch: pytest.MonkeyPatch
) -> tuple[Any, list[ExportedProgram]]:
    """Add to the same list what a test exports."""
    run = partial(run_in_python, compiled_translator[1])
    monkeypatch.setattr(compiled, "compile_ahead_of_time", run)
    return compiled_translator


@torch.no_grad()
@pytest.mark.parametrize("is_masked", [pytest.param(False, marks=pytest.mark.slow), True])
def test_the_first_step_of_a_later_search_uses_the_compiled_program(
    programs: list[ExportedProgram], is_masked: bool
) -> None:
    model = SmallTranslator().eval()
    prepared: Any = prepare(model, compiled=True)
    source = SOURCE.clone()
    if is_masked:
        source[1, 2] = 0
    for _ in range(2):
        steps = prepared.begin(source)
        for _ in range(3):
            steps.step(START)
    assert len(programs) == 1
    (program,) = filter(None, prepared.decoder._steps._programs.values())
    assert program.is_right_when_empty
    lengths, run = [], program.run

    def note_length(tensors: list[Tensor]) -> list[Tensor]:
        lengths.append(len(tensors[1]) - 1)
        return run(tensors)

    program.run = note_length
    expected, steps = model.begin(source), prepared.begin(source)
    for length in range(4):
        torch.testing.assert_close(steps.step(START), expected.step(START), **TOLERANCE)
        assert steps.cache.length == length + 1
    assert lengths == [0, 1, 2, 3]


@torch.no_grad()
@pytest.mark.parametrize(
    "error",
    [lambda _: 1.1, lambda _: math.nan, lambda buffer: float(buffer[..., 1:, :].isnan().any())],
    ids=["wrong", "nan", "reads positions that are not written"],
)
def test_a_program_that_is_wrong_for_an_empty_cache_is_not_used_for_it(
    programs: list[ExportedProgram], error: Callable[[Tensor], float]
) -> None:
    model = SmallTranslator().eval()
    prepared: Any = prepare(model, compiled=True)
    for search in range(3):
        steps, expected = prepared.begin(SOURCE), model.begin(SOURCE)
        for length in range(3):
            torch.testing.assert_close(steps.step(START), expected.step(START), **TOLERANCE)
            assert steps.cache.length == length + 1
        if search == 0:  # from now on its logits are wrong, but only in the first step
            (program,) = filter(None, prepared.decoder._steps._programs.values())

            def run(tensors: list[Tensor], run: Any = program.run) -> list[Tensor]:
                logits, *others = run(tensors)
                return [logits + (error(tensors[2]) if len(tensors[1]) == 1 else 0.0), *others]

            program.run = run
    assert program.is_right_when_empty is False


def test_a_first_step_alone_compiles_nothing(programs: list[ExportedProgram]) -> None:
    prepared: Any = prepare(SmallTranslator().eval(), compiled=True)
    with torch.no_grad():
        for _ in range(4):
            prepared.begin(SOURCE).step(START)
        assert not programs
        steps = prepared.begin(SOURCE)
        for _ in range(3):
            steps.step(START)
        for _ in range(4):
            prepared.begin(SOURCE[:1]).step(START[:1])
    assert len(programs) == 1


@pytest.mark.parametrize(
    ("search", "sizes"),
    [
        ("beam", (4, 3)),
        pytest.param("beam", (1, 2), marks=pytest.mark.slow),
        pytest.param("greedy", (4, 1, 3), marks=pytest.mark.slow),
        pytest.param("sample", (4, 3), marks=pytest.mark.slow),
    ],
)
def test_a_search_finds_in_whole_compiled_steps_what_it_finds_eagerly(
    search: str, sizes: Sequence[int], programs: list[ExportedProgram]
) -> None:
    model = SmallTranslator().eval()
    prepared = prepare(model, compiled=True)
    for rows in sizes:
        tokens, scores = translate(model, search, rows)
        for _ in range(2):
            compiled_tokens, compiled_scores = translate(prepared, search, rows)
            assert compiled_tokens == tokens
            assert compiled_scores == pytest.approx(scores, rel=0, abs=1e-4)
    assert programs
    assert all(ids_of(programs))
    # Inductor cannot prepack weights that a program holds as constants, such as those of methods.
    assert not any(each.graph_signature.lifted_tensor_constants for each in programs)


@pytest.mark.slow
def test_functions_that_are_made_anew_for_each_batch_cause_no_compilation_of_whole_steps(
    programs: list[ExportedProgram],
) -> None:
    model = SmallTranslator().eval()
    prepared: Any = prepare(model, compiled=True)
    for number in range(3):
        changes: dict[str, Any] = {
            "embed": lambda tokens, offset: prepared.embed(tokens, offset),
            "output": nn.Linear(16, 30 + number).requires_grad_(False),
        }
        for name, change in changes.items():
            expected = translate(model, "greedy", 4, **{name: change})[0]
            assert translate(prepared, "greedy", 4, **{name: change})[0] == expected
    assert ids_of(programs) == [False]


def test_layers_that_cannot_be_traced_are_executed_eagerly(
    programs: list[ExportedProgram], caplog: pytest.LogCaptureFixture
) -> None:
    class Untraceable(SmallTranslator):
        def embed(self, tokens: Tensor, offset: int) -> Tensor:
            numbers = [[int(token) for token in row] for row in tokens]
            return super().embed(torch.tensor(numbers), offset)

    model = Untraceable().eval()
    prepared = prepare(model, compiled=True)
    with caplog.at_level("INFO", "transformer_blocks"):
        for _ in range(2):
            assert translate(prepared, "beam", 2)[0] == translate(model, "beam", 2)[0]
    assert ids_of(programs) == [False]
    assert sum(text.startswith("only the stack is compiled") for text in caplog.messages) <= 2


@torch.inference_mode()
def test_token_ids_and_positions_beyond_the_limits_raise_the_errors_of_eager_steps(
    translator: tuple[Any, list[ExportedProgram]],
) -> None:
    prepared, _ = translator
    steps = prepared.begin(SOURCE)
    for _ in range(4):
        steps.step(START)
    for wrong in (30, -1):
        with pytest.raises(IndexError, match=f"got id {wrong}"):
            steps.step(torch.tensor([1, wrong, 2]))
    with pytest.raises(TypeError, match="tokens must be int32 or int64"):
        steps.step(START.float())
    assert steps.cache.length == 4
    for _ in range(12 - 4):
        steps.step(START)
    with pytest.raises(ValueError, match="positions must stay below max_length"):
        steps.step(START)


@torch.inference_mode()
def test_hooks_and_recordings_of_the_outer_layers_see_every_step(
    translator: tuple[Any, list[ExportedProgram]],
) -> None:
    prepared, programs = translator
    before, steps = len(programs), prepared.begin(SOURCE)
    steps.step(START)
    calls: list[int] = []
    for name in ("embedding", "positions", "output", "decoder"):
        hook = getattr(prepared, name).register_forward_hook(lambda *_: calls.append(1))
        steps.step(START)
        hook.remove()
        steps.step(START)
    assert len(calls) == 4
    with record_attention(prepared) as maps:
        steps.step(START)
    assert [len(weights) for name, weights in maps.items() if "decoder" in name] == [1, 1]
    assert not any(ids_of(programs[before:]))


@torch.inference_mode()
def test_logits_that_are_not_numbers_are_refused_in_compiled_steps(
    translator: tuple[Any, list[ExportedProgram]],
) -> None:
    prepared, programs = translator
    before, steps = len(programs), prepared.begin(SOURCE)
    steps.step(START)
    steps.cache.layers[0].buffer[1, 1] = math.nan
    with pytest.raises(ValueError, match="got NaN or infinity at step 1"):
        greedy_search(steps, START, end_id=None, max_length=9)
    steps = prepared.begin(SOURCE)
    steps.step(START)
    with pytest.raises(ValueError, match="end_id must be below the vocabulary size 30"):
        greedy_search(steps, START, end_id=30, max_length=9)
    assert len(programs) == before


@torch.inference_mode()
def test_logits_that_a_subclass_changes_are_those_that_a_search_sees(
    translator: tuple[Any, list[ExportedProgram]],
) -> None:
    class OnlySeven(IncrementalDecoder):
        def step(self, tokens: Tensor) -> Tensor:
            return super().step(tokens).index_fill_(1, torch.tensor([7]), 1e3)

    prepared, programs = translator
    before, plain = len(programs), prepared.begin(SOURCE)
    steps = OnlySeven(plain.stack, plain.cache, embed=plain.embed, output=plain.output)
    found = greedy_search(steps, START, end_id=None, max_length=9)
    assert [each.tokens for each in found] == [[7] * 9] * 3
    assert len(programs) == before  # its logits are those of compiled steps


@pytest.mark.parametrize("build", [build_decoder, build_encoder])
@torch.inference_mode()
def test_whole_steps_that_are_compiled_beforehand_are_not_compiled_in_a_search(
    build: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    compilations: list[StepSignature] = []

    def note(signature: StepSignature, *, prepack: bool) -> Callable[..., list[Tensor]]:
        compilations.append(signature)

        def run(tensors: list[Tensor]) -> list[Tensor]:
            best = torch.zeros(len(tensors[-1]), signature.num_extensions)
            return [torch.zeros(len(tensors[0]), 30), best, best.long()]

        return run

    monkeypatch.setattr(compiled, "export_step", lambda _, signature: signature)
    monkeypatch.setattr(compiled, "maximum_length", lambda _: 12)
    monkeypatch.setattr(compiled, "compile_ahead_of_time", note)
    model = SmallTranslator().eval()
    model.decoder = build(**SIZES).eval()
    prepared: Any = prepare(model, compiled=True)
    layers = {"embed": prepared.embed, "output": prepared.output}
    for beam_size in (1, 3):
        compile_steps(prepared.decoder, batch_size=4, beam_size=beam_size, **layers)
    kinds = {(each.is_prepacked, each.is_masked, each.num_extensions) for each in compilations}
    assert kinds == {(rows, masked, n) for rows in (False, True) for masked in (False, True)
                     for n in (1, 6)} - {(True, masked, 1) for masked in (False, True)}  # fmt: skip
    before = len(compilations)
    for beam_size in (1, 3):
        for rows in (4, 3, 1):
            if build is build_encoder:
                cache = prepared.decoder.new_cache()
            else:
                cache = prepared.decoder.new_cache(torch.randn(rows, 5, 16))
            steps = IncrementalDecoder(prepared.decoder, cache, **layers)
            start = torch.ones(rows, dtype=torch.int64)
            beam_search(steps, start, beam_size=beam_size, end_id=None, max_length=7)
    found = compilations[before:]
    assert all(each.num_extensions == 1 for each in found)  # the first steps of the searches
    with pytest.raises(ValueError, match="embed and output must be given together"):
        compile_steps(prepared.decoder, embed=prepared.embed)


@pytest.mark.slow
@torch.no_grad()
def test_compiled_programs_compute_the_same_steps(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(export, "TemporaryDirectory", partial(TemporaryDirectory, dir=tmp_path))
    decoder = build_decoder(**SIZES, residual=PreNorm).eval()
    models = prepare(decoder), prepare(decoder, compiled=True)
    for batch_size, beam_size in ((1, 1), (9, 1), (1, 4), (5, 2)):  # few rows, and many
        tokens = torch.ones(batch_size, 6, dtype=torch.int64)
        tokens[-1, 4:] = 0  # padding
        mask = padding_mask(tokens)
        memory = torch.randn(batch_size, 6, 16)
        caches = [model.new_cache(memory, memory_mask=mask) for model in models]
        for cache in caches:
            cache.reorder(torch.arange(batch_size).repeat_interleave(beam_size))
        for _ in range(40):
            token = torch.randn(batch_size * beam_size, 1, 16)
            expected, output = (
                model(token, cache=cache) for model, cache in zip(models, caches, strict=True)
            )
            torch.testing.assert_close(output, expected, **TOLERANCE)
    encoder = build_encoder(**SIZES, residual=PreNorm).eval()
    stacks = prepare(encoder), prepare(encoder, compiled=True)
    for rows in (1, 4, 9):
        layer_caches = [stack.new_cache() for stack in stacks]
        for length in range(1, 40):
            token = torch.randn(rows, 1, 16)
            is_padding = torch.arange(length) < torch.arange(rows)[:, None]
            expected, output = (
                stack(token, mask=is_padding[:, None, None], causal=True, cache=cache)
                for stack, cache in zip(stacks, layer_caches, strict=True)
            )
            torch.testing.assert_close(output, expected, **TOLERANCE)
    assert not list(tmp_path.iterdir())  # no files of a program remain on disk


@pytest.mark.slow
@torch.inference_mode()
def test_compiled_programs_compute_the_same_whole_steps(caplog: pytest.LogCaptureFixture) -> None:
    model = SmallTranslator().eval()
    model.output.weight[7] = model.output.weight[9]  # equal logits
    prepared: Any = prepare(model, compiled=True)
    for search, rows in (("greedy", 3), ("beam", 1), ("beam", 4)):
        expected, scores = translate(model, search, rows)
        for _ in range(2):
            tokens, found = translate(prepared, search, rows)
            assert tokens == expected
            assert found == pytest.approx(scores, rel=0, abs=1e-4)
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    steps, zeros = prepared.begin(SOURCE), torch.zeros(3, 1, dtype=torch.float64)
    for _ in range(3):
        steps.step(START)
    for fault in (math.nan, math.inf):
        steps.cache.layers[0].buffer[1, 1] = fault
        best = steps.step_top_k(START, zeros, 1)[0][:, 0]
        assert best.isnan().tolist() == [False, True, False]
