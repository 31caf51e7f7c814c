"""Contexts that change a model or a setting may end in any order and in any thread."""

import itertools
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from threading import Thread
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_blocks import (
    FeedForward,
    PostNorm,
    PreNorm,
    SinusoidalPositionalEncoding,
    build_encoder,
    record_attention,
)
from transformer_blocks.inference import prepare
from transformer_blocks.inference.compiled import CompiledEncoder, uncompiled
from transformer_blocks.inference.linear import prepacking_when_compiled
from transformer_blocks.inspection import ablate, trace_shapes
from transformer_blocks.inspection.eager import run_eagerly

Context = AbstractContextManager[Any]
SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 32}
ATTENTION = "1.layers.0.self_attention"


def make_model(residual: Any = PreNorm) -> nn.Module:
    return nn.Sequential(
        SinusoidalPositionalEncoding(16), build_encoder(**SIZES, residual=residual)
    ).eval()


def state_of(model: nn.Module) -> dict[str, Any]:
    """Everything that the modules hold besides tensors, such as hooks, and the tensors' names."""
    state: dict[str, Any] = dict.fromkeys(model.state_dict())
    for name, module in model.named_modules():
        for key, value in vars(module).items():
            if not isinstance(value, Tensor):
                state[f"{name}.{key}"] = dict(value) if isinstance(value, dict) else value
    return state


def in_a_thread(work: Callable[[], object]) -> None:
    thread = Thread(target=work)
    thread.start()
    thread.join()


ABLATIONS: list[Callable[[nn.Module], Context]] = [
    lambda model: ablate(
        model, heads={ATTENTION: [0]}, residuals=["1.layers.0.self_attention_residual"]
    ),
    lambda model: ablate(model, heads={ATTENTION: [1]}, positions=True),
    lambda model: ablate(model, scale=True, modules=["1.layers.1.feed_forward"]),
    lambda model: ablate(model, scale=True, residuals=["1.layers.0.self_attention_residual"]),
]


@pytest.mark.parametrize("begin", [lambda work: work(), in_a_thread], ids=["here", "in threads"])
@pytest.mark.parametrize("residual", [PreNorm, PostNorm])
@torch.no_grad()
def test_ablations_that_end_in_any_order_last_until_their_end_and_leave_nothing(
    begin: Callable[[Callable[[], object]], None], residual: Any
) -> None:
    model, x = make_model(residual), torch.randn(2, 5, 16)
    before, numbers = state_of(model), range(len(ABLATIONS))
    expected: dict[tuple[int, ...], Tensor] = {}
    for size in range(len(ABLATIONS) + 1):
        for lasting in itertools.combinations(numbers, size):
            with ExitStack() as nested:
                for number in lasting:
                    nested.enter_context(ABLATIONS[number](model))
                expected[lasting] = model(x)
    for number in numbers:  # each has an effect, also beside the others
        others = tuple(other for other in numbers if other != number)
        assert not torch.equal(expected[number,], expected[()])
        assert not torch.equal(expected[others], expected[tuple(numbers)]) or number in (2, 3)
    for order in itertools.permutations(numbers):
        contexts = [make(model) for make in ABLATIONS]
        for context in contexts:
            begin(context.__enter__)
        lasting = tuple(numbers)
        for number in order:
            assert torch.equal(model(x), expected[lasting])
            begin(partial(contexts[number].__exit__, None, None, None))
            lasting = tuple(other for other in lasting if other != number)
        assert torch.equal(model(x), expected[()])
        assert state_of(model) == before


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@torch.no_grad()
def test_recordings_that_end_in_any_order_record_until_their_end_and_leave_nothing(
    order: tuple[int, ...],
) -> None:
    model, x = make_model(), torch.randn(2, 5, 16)
    before = state_of(model)
    contexts = [record_attention(model) for _ in order]
    maps = [context.__enter__() for context in contexts]
    calls = [0] * len(order)
    lasting = set(order)
    for number in order:
        model(x)
        calls = [count + (each in lasting) for each, count in enumerate(calls)]
        assert [len(each[ATTENTION]) for each in maps] == calls
        contexts[number].__exit__(None, None, None)
        lasting.remove(number)
    model(x)
    assert [len(each[ATTENTION]) for each in maps] == calls
    assert state_of(model) == before


def runs_compiled() -> Callable[[], bool]:
    """Make a function that tells whether what ``torch.compile`` made runs compiled."""
    runs = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        def run(*given: Tensor) -> Any:
            runs.append(given)
            return graph(*given)

        return run

    compiled = torch.compile(lambda x: x + 1, backend=backend)

    def tell() -> bool:
        runs.clear()
        compiled(torch.ones(1))
        return bool(runs)

    return tell


def steps_compiled() -> Callable[[], bool]:
    """Make a function that tells whether a stack means to compile its steps."""
    encoder = prepare(build_encoder(**SIZES))

    @torch.no_grad()
    def tell() -> bool:
        stack, x = CompiledEncoder(encoder), torch.randn(2, 2, 16)
        cache = stack.new_cache()
        for position in x.split(1, dim=1):
            stack(position, causal=True, cache=cache)
        return bool(stack._steps._runs)

    return tell


@pytest.mark.parametrize("begin", [lambda work: work(), in_a_thread], ids=["here", "in threads"])
@pytest.mark.parametrize(
    ("make_tell", "makes"),
    [
        (runs_compiled, [run_eagerly, lambda: record_attention(nn.Linear(1, 1)), run_eagerly]),
        (steps_compiled, [run_eagerly, uncompiled, lambda: ablate(nn.Linear(1, 1))]),
    ],
)
def test_what_is_compiled_runs_uncompiled_until_the_last_context_has_ended(
    begin: Callable[[Callable[[], object]], None],
    make_tell: Callable[[], Callable[[], bool]],
    makes: list[Callable[[], Context]],
) -> None:
    tell = make_tell()
    assert tell()
    for order in itertools.permutations(range(3)):
        contexts = [make() for make in makes]
        for context in contexts:
            begin(context.__enter__)
        for number in order:
            assert not tell()
            begin(partial(contexts[number].__exit__, None, None, None))
        assert tell()


def test_weights_are_sorted_in_compiled_code_until_the_last_context_has_ended() -> None:
    x = torch.randn(9, 16)
    linear = prepare(FeedForward(16, 32))

    def operators() -> set[str]:
        torch._dynamo.reset()
        program = torch.export.export(linear, (x,), strict=False)
        return {str(node.target) for node in program.graph.nodes}

    contexts = [prepacking_when_compiled(), prepacking_when_compiled()]
    for context in contexts:
        context.__enter__()
    for context in contexts:
        assert any("sort" in name for name in operators())
        context.__exit__(None, None, None)
    assert not any("sort" in name for name in operators())


def test_a_context_whose_block_fails_ends_alone() -> None:
    model, x = make_model(), torch.randn(2, 5, 16)
    before, expected = state_of(model), model(x)
    lasting = ABLATIONS[0](model)
    failing = ABLATIONS[1](model)
    failing.__enter__()
    lasting.__enter__()
    assert not failing.__exit__(KeyError, KeyError("inside"), None)
    assert not torch.equal(model(x), expected)
    lasting.__exit__(None, None, None)
    assert torch.equal(model(x), expected)
    assert state_of(model) == before


def test_contexts_of_threads_that_run_at_once_leave_nothing() -> None:
    model, x = make_model(), torch.randn(1, 3, 16)
    before, expected = state_of(model), model(x)
    errors: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for _ in range(10):
                with ABLATIONS[number](model), record_attention(model), torch.no_grad():
                    model(x)
        except BaseException as error:
            errors.append(error)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [Thread(target=work, args=(number,)) for number in range(len(ABLATIONS))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert errors == []
    assert torch.equal(model(x), expected)
    assert state_of(model) == before


def test_a_trace_shows_the_calls_of_its_own_thread_alone() -> None:
    inner = make_model()

    class Busy(nn.Module):
        """Runs the same parts in another thread, as another user of a model would."""

        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, x: Tensor) -> Tensor:
            in_a_thread(lambda: inner(x))
            return inner(x)

    x = torch.randn(2, 5, 16)
    trace, alone = trace_shapes(Busy(), x), trace_shapes(nn.Sequential(inner), x)
    assert trace.error is None
    assert len(trace.calls) == len(alone.calls)
    assert [call.flops for call in trace.calls] == [call.flops for call in alone.calls]
