"""Programs whose functions are executed in Python: to compile them takes minutes."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_blocks.inference import Program, prepare, program
from transformer_blocks.inference.step import Prefill, SearchStep


def trace(
    model: Any,
    *,
    beam_size: int = 1,
    end_id: Any,
    int8: bool = False,
    positions: float | None = None,
) -> Program:
    """Return the program that ``save_program`` would write; export would find ``positions``."""
    facts, prepared = program.describe(model, beam_size, end_id), prepare(model, int8=int8)
    if positions is not None:
        facts["positions"] = dict.fromkeys(facts["positions"], positions)
    functions: dict[str, Any] = {}
    for name, batch in program.BATCHES.items():
        step = SearchStep(prepared, facts["ends"], is_masked=batch > 1)
        functions[f"step_{name}"] = partial(_run, step, facts["depth"])
        prefill = Prefill(prepared, is_masked=batch > 1)
        functions[f"prefill_{name}"] = partial(_run, prefill, None)
    return Program(facts, functions)


def _run(function: nn.Module, depth: int | None, inputs: list[Any]) -> list[Tensor]:
    """Call a function as a compiled one is called, and compute as the compiler traces it."""
    if depth is not None:
        inputs = [*inputs[:10], inputs[10 : 10 + depth], inputs[10 + depth :]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.compiler, "is_compiling", lambda: True)
        patch.setattr("transformer_blocks.fast.top_k.BLOCK_SIZE", 4)
        return list(function(*inputs))
