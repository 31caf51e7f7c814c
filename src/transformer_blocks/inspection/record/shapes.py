"""Shapes: one forward pass as a table of the shapes that each module receives and returns.

Shapes that do not fit are among the most common errors of beginners and experts alike.
:func:`trace_shapes` runs a model once. If the forward pass fails, the table names the module that
failed, with its error.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from transformer_blocks._contracts import check
from transformer_blocks._tables import text_table
from transformer_blocks.inspection.changes import hooked, without_fast_path
from transformer_blocks.inspection.comparison import find_tensors

Shapes = list[tuple[int, ...]]


@dataclass
class Call:
    """One call of one module.

    Attributes:
        name: Name of the module within the model; empty for the model itself.
        kind: Name of the module's class.
        inputs: Shapes of the tensors among the arguments.
        parameters: Number of parameters of the module and its submodules.
        outputs: Shapes of the tensors among the results; None if the call did not return.
    """

    name: str
    kind: str
    inputs: Shapes
    parameters: int
    outputs: Shapes | None = None


@dataclass(frozen=True)
class Trace:
    """The calls of a forward pass; print it.

    Attributes:
        calls: The calls of all modules, in the order in which they started.
        sizes: The named sizes, for example B and L.
        error: The exception that the forward pass raised; None if it completed.
    """

    calls: list[Call]
    sizes: dict[str, int]
    error: Exception | None = None

    def named(self, shape: Sequence[int]) -> str:
        """Format a shape by the names of its sizes, each used once: (2, 5, 16) as (B, L, 16)."""
        names: list[str] = []
        for size in shape:
            known = (n for n, each in self.sizes.items() if each == size and n not in names)
            names.append(next(known, str(size)))
        return f"({', '.join(names)})"

    def __repr__(self) -> str:
        """Format the table as text."""
        rows = [("module", "kind", "in", "out", "parameters")]
        for call in self.calls:
            received = " ".join(map(self.named, call.inputs))
            returned = "..." if call.outputs is None else " ".join(map(self.named, call.outputs))
            count = f"{call.parameters:>10,}"  # as wide as the title
            rows.append((call.name or "(model)", call.kind, received, returned, count))
        lines = [", ".join(f"{name} = {size}" for name, size in self.sizes.items())]
        lines += text_table(rows)
        if self.error is not None:
            failed = next(each for each in reversed(self.calls) if each.outputs is None)
            shapes = [f"{self.named(shape)} = {shape}" for shape in failed.inputs]
            name, what = f"{failed.name} ({failed.kind})".strip(), ", ".join(shapes) or "no tensor"
            lines.append(f"failed: {name} received {what}: {self.error}")
        return "\n".join(lines)


def trace_shapes(
    model: nn.Module,
    *inputs: Any,
    keywords: Mapping[str, Any] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Trace:
    """Run a model once and list the shapes of every module's inputs and outputs.

    Modules of torch.nn do not take their fast path, so that all their submodules are listed, and a
    model compiled by ``torch.compile`` is executed eagerly. Nothing else about the model is
    changed, and no gradients are computed.

    Args:
        model: The model to run, in training or evaluation mode.
        inputs: Its positional arguments.
        keywords: Its keyword arguments.
        sizes: Names of sizes, for example ``{"B": 2, "L": 5, "d_model": 16}``; by default, those
            of the first two dimensions of the first tensor, B and L.

    Returns:
        The trace. If the forward pass failed, ``error`` is its exception.

    Raises:
        TypeError: If ``model`` is not a module.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks import FeedForward, TokenEmbedding
        >>> from transformer_blocks.inspection import trace_shapes
        >>> model = nn.Sequential(TokenEmbedding(100, 16), FeedForward(16, 64))
        >>> print(trace_shapes(model, torch.tensor([[5, 6, 7], [8, 9, 0]])))
        B = 2, L = 3
        module             kind            in          out         parameters
        (model)            Sequential      (B, L)      (B, L, 16)       3,728
        0                  TokenEmbedding  (B, L)      (B, L, 16)       1,600
        1                  FeedForward     (B, L, 16)  (B, L, 16)       2,128
        1.up_projection    Linear          (B, L, 16)  (B, L, 64)       1,088
        1.dropout          Dropout         (B, L, 64)  (B, L, 64)           0
        1.down_projection  Linear          (B, L, 64)  (B, L, 16)       1,040
    """
    model = getattr(model, "_orig_mod", model)  # the module that torch.compile wrapped
    check(nn.Module, model=model)
    calls: list[Call] = []

    def start(name: str, module: nn.Module, *arguments: Any) -> None:
        count = sum(weight.numel() for weight in module.parameters())
        calls.append(Call(name, type(module).__name__, _shapes(arguments), count))

    def complete(name: str, module: nn.Module, arguments: Any, output: Any) -> None:
        own = (each for each in reversed(calls) if each.name == name and each.outputs is None)
        next(own).outputs = _shapes(output)

    shapes = _shapes((inputs, keywords or {}))
    named = dict(zip("BL", next(iter(shapes), ()), strict=False)) if sizes is None else dict(sizes)
    error = None
    with torch.no_grad(), hooked(dict(model.named_modules()), start, complete), without_fast_path:
        try:
            model(*inputs, **keywords or {})
        except Exception as raised:  # whatever the model raises: the table shows it
            error = raised.with_traceback(None)  # which would keep all activations alive
    return Trace(calls, named, error)


def _shapes(data: Any) -> Shapes:
    return [tuple(tensor.shape) for tensor in find_tensors(data)]
