"""Private names of torch, which another version may lack: each is listed, and taken away once."""

import ast
import re
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_blocks import (
    SlidingWindowAttention,
    document_mask,
    fused_attention,
    packed_mask,
)
from transformer_blocks.fast import intervals
from transformer_blocks.fast.intervals import IntervalMask
from transformer_blocks.inference import linear
from transformer_blocks.inspection import trace_shapes
from transformer_blocks.inspection.changes import run_eagerly

TESTS = Path(__file__).parents[1]
OPERATORS = torch.ops.mkldnn
FALLBACKS = {  # a test, and the private names that it takes away
    "test_without_subclasses_of_tensors_masks_hold_all_elements": (
        *("_make_wrapper_subclass", "_schema", "torch._C", "_disabled_torch_function_impl"),
    ),
    "test_without_its_name_a_compiled_model_is_a_part_of_the_trace": ("_orig_mod",),
    "test_without_a_compiler_nothing_has_to_be_executed_eagerly": ("torch._dynamo",),
    "test_without_a_compiler_a_program_is_refused": (
        *("torch._inductor", "torch._inductor.aoti_compile_and_package"),
        *("torch._inductor.aoti_load_package", "torch.ops.aten._assert_scalar.default"),
    ),
    "test_the_fallback_multiplies_the_same_integers": ("torch._int_mm",),
    "test_without_an_operator_no_weight_is_prepacked": (
        *("torch.ops.mkldnn._linear_pointwise", "torch.ops.mkldnn._reorder_linear_weight"),
    ),
}
OF_MODULES = {"_buffers", "_forward_hooks", "_forward_pre_hooks", "_modules", "_parameters"}
OF_OTHERS = {  # Python, Hugging Face
    *("_asdict", "_attn_implementation", "_getframe", "_is_protocol", "_replace"),
    "_tied_weights_keys",
}


def private_names() -> Iterator[str]:
    """Yield the private names that the library uses and does not define itself.

    They are attributes, imports, names that ``getattr`` is called with, and texts that name a
    module of torch.
    """
    own, names = set(), []
    for file in (TESTS.parent / "src").rglob("*.py"):
        nodes = list(ast.walk(ast.parse(file.read_text(encoding="utf-8"))))
        inner = {id(node.value) for node in nodes if isinstance(node, ast.Attribute)}
        for node in nodes:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                own.add(node.name)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
                own.add(node.attr)
            elif isinstance(node, ast.Attribute):
                path = ast.unparse(node)
                if re.fullmatch(r"torch\.[\w.]+", path) is None:
                    names.append(node.attr)
                elif id(node) not in inner:
                    names.append(path)
            elif isinstance(node, ast.ImportFrom):
                names += [f"{node.module}.{each.name}" for each in node.names]
            elif isinstance(node, ast.Import):
                names += [each.name for each in node.names]
            elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr":
                names += [str(each.value) for each in node.args if isinstance(each, ast.Constant)]
            elif isinstance(node, ast.Constant) and str(node.value).startswith("torch._"):
                names.append(str(node.value))
    for name in names:
        is_private = re.search(r"(^|\.)_(?!_)", name) is not None
        if is_private and name not in own and not name.startswith("transformer_blocks."):
            yield name


def test_every_private_name_is_listed_with_the_test_that_takes_it_away() -> None:
    listed = {*chain.from_iterable(FALLBACKS.values()), *OF_MODULES, *OF_OTHERS}
    assert {*private_names()} == listed
    tests = "".join(file.read_text(encoding="utf-8") for file in TESTS.rglob("test_*.py"))
    assert all(f"\ndef {test}(" in tests for test in FALLBACKS)


@pytest.fixture
def tried_anew() -> Iterator[None]:
    """Forget whether the operators work, before the test and after it."""
    linear._has_operators.cache_clear()
    yield
    linear._has_operators.cache_clear()


BROKEN: dict[str, dict[str, Any]] = {
    "no operators": {},
    "no product": {"_linear_pointwise": None},
    "no reordering": {"_reorder_linear_weight": None},
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


@pytest.mark.parametrize("missing", ["_make_wrapper_subclass", "_disabled", "_schema"])
def test_without_subclasses_of_tensors_masks_hold_all_elements(
    missing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    documents, x = torch.tensor([[1, 1, 2, 2, 2]]), torch.randn(1, 2, 5, 4)
    expected = fused_attention(x, x, x, mask=packed_mask(documents), causal=True)
    window = SlidingWindowAttention(2)
    of_window = window(x, x, x)
    if missing == "_make_wrapper_subclass":
        monkeypatch.setattr(torch.Tensor, missing, None, raising=False)
    elif missing == "_disabled":
        monkeypatch.setattr(IntervalMask, "__torch_function__", None)
    else:
        monkeypatch.setattr(IntervalMask, "__torch_dispatch__", classmethod(lack_a_schema))
    intervals._can_subclass_tensors.cache_clear()
    try:
        for _ in range(2):
            mask = packed_mask(documents)
            assert type(mask) is Tensor
            assert torch.equal(mask, document_mask(documents))
            output = fused_attention(x, x, x, mask=mask, causal=True)
            torch.testing.assert_close(output, expected)
            torch.testing.assert_close(window(x, x, x), of_window)
    finally:
        intervals._can_subclass_tensors.cache_clear()
    (record,) = caplog.records
    assert record.getMessage().startswith("interval masks store all elements with torch")


def lack_a_schema(*_: object) -> None:
    raise AttributeError("'OpOverload' object has no attribute '_schema'")


def test_without_a_compiler_nothing_has_to_be_executed_eagerly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delitem(sys.modules, "torch._dynamo", raising=False)
    with run_eagerly():
        assert "torch._dynamo" not in sys.modules
