"""Private names of torch, which another version may lack: each is listed, and taken away once."""

import re
import sys
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_blocks.inference import linear
from transformer_blocks.inspection import trace_shapes
from transformer_blocks.inspection.changes import run_eagerly

OPERATORS = torch.ops.mkldnn


@pytest.fixture
def tried_anew() -> Iterator[None]:
    """Forget whether the operators work, before the test and after it."""
    linear._has_operators.cache_clear()
    yield
    linear._has_operators.cache_clear()


BROKEN: dict[str, dict[str, Any]] = {
    "no operators": {},
    "other arguments": {"_reorder_linear_weight": lambda weight: weight},
    "other result": {"_reorder_linear_weight": lambda weight, _: 2.0 * weight},
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
@pytest.mark.usefixtures("tried_anew")
def test_without_an_operator_no_weight_is_prepacked(
    broken: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    names = ("_linear_pointwise", "_reorder_linear_weight") if broken else ()
    operators = {name: getattr(OPERATORS, name) for name in names} | broken
    monkeypatch.setattr(torch.ops, "mkldnn", SimpleNamespace(**operators))
    linear_layer = nn.Linear(64, 256)
    x = torch.randn(100, 64)
    with torch.no_grad():
        expected = linear_layer(x)
        for _ in range(2):
            layer = linear.PrepackedLinear(linear_layer)
            torch.testing.assert_close(layer(x), expected)
    (record,) = caplog.records
    assert re.fullmatch(r"weights are not prepacked with torch \S+: .+", record.getMessage())


def test_without_its_name_a_compiled_model_is_a_part_of_the_trace() -> None:
    class Compiled(nn.Module):
        def __init__(self, model: nn.Module) -> None:
            super().__init__()
            self.renamed = model

        def forward(self, x: Tensor) -> Tensor:
            return self.renamed(x)

    model, x = nn.Sequential(nn.Linear(4, 6)), torch.randn(2, 4)
    compiled: Any = torch.compile(model, backend="eager")
    expected = trace_shapes(model, x)
    assert trace_shapes(compiled, x).calls == expected.calls
    trace = trace_shapes(Compiled(model), x)
    assert [call.name for call in trace.calls] == ["", "renamed", "renamed.0"]
    assert trace.calls[0].outputs == expected.calls[0].outputs


def test_without_a_compiler_nothing_has_to_be_executed_eagerly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    with run_eagerly():
        assert "torch._dynamo" not in sys.modules
