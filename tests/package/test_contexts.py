"""Contexts that change a model or a setting may end in any order and in any thread."""

import itertools
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from threading import Thread
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_blocks import (
    PostNorm,
    PreNorm,
    SinusoidalPositionalEncoding,
    build_encoder,
    record_attention,
)
from transformer_blocks.inspection import ablate
from transformer_blocks.inspection.changes import run_eagerly

Context = AbstractContextManager[Any]
SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 32}
ATTENTION = "1.layers.0.self_attention"


def make_model(residual: Any = PreNorm) -> nn.Module:
    return nn.Sequential(
        SinusoidalPositionalEncoding(16), build_encoder(**SIZES, residual=residual)
    ).eval()


def state_of(model: nn.Module) -> dict[str, Any]:
    """Return the attributes of all modules, such as hooks, with the names of the tensors alone."""
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


@pytest.mark.parametrize(
    ("run", "residual"), [(lambda work: work(), PreNorm), (in_a_thread, PostNorm)]
)
@torch.no_grad()
def test_overlapping_ablations_have_effect_until_each_ends_and_then_restore_the_model(
    run: Callable[[Callable[[], object]], None], residual: Any
) -> None:
    model, x = make_model(residual), torch.randn(2, 5, 16)
    before, numbers = state_of(model), range(len(ABLATIONS))
    expected: dict[tuple[int, ...], Tensor] = {}
    for size in range(len(ABLATIONS) + 1):
        for active in itertools.combinations(numbers, size):
            with ExitStack() as nested:
                for number in active:
                    nested.enter_context(ABLATIONS[number](model))
                expected[active] = model(x)
    for number in numbers:  # each has an effect, alone and together with the others
        others = tuple(other for other in numbers if other != number)
        assert not torch.equal(expected[number,], expected[()])
        assert not torch.equal(expected[others], expected[tuple(numbers)]) or number in (2, 3)
    for order in itertools.permutations(numbers):
        contexts = [ablation(model) for ablation in ABLATIONS]
        for context in contexts:
            run(context.__enter__)
        active = tuple(numbers)
        for number in order:
            assert torch.equal(model(x), expected[active])
            run(partial(contexts[number].__exit__, None, None, None))
            active = tuple(other for other in active if other != number)
        assert torch.equal(model(x), expected[()])
        assert state_of(model) == before


@pytest.mark.parametrize("run", [lambda work: work(), in_a_thread], ids=["one thread", "threads"])
def test_compiled_models_are_executed_eagerly_until_the_last_context_has_ended(
    run: Callable[[Callable[[], object]], None],
) -> None:
    make_contexts = run_eagerly, lambda: record_attention(nn.Linear(1, 1)), run_eagerly
    compiled = torch.compile(lambda x: x + torch.compiler.is_compiling(), backend="eager")

    def is_compiled() -> bool:
        return bool(compiled(torch.zeros(1)))

    assert is_compiled()
    for order in itertools.permutations(range(3)):
        contexts = [make() for make in make_contexts]
        for context in contexts:
            run(context.__enter__)
        for number in order:
            assert not is_compiled()
            run(partial(contexts[number].__exit__, None, None, None))
        assert is_compiled()
