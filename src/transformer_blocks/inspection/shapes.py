"""Shapes: one forward pass as a table, with names for the sizes.

Shapes that do not fit are among the most common errors of beginners and experts alike.
:func:`trace_shapes` runs a model once and lists the shapes of each module's inputs and outputs,
with its parameters. Sizes are shown by name (batch size B, lengths L and S, d_model, ...), so that
a dimension can be followed through the model. If the forward pass fails, the table ends at the
module that failed, with its error.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks._contracts import check
from transformer_blocks.embedding import TokenEmbedding
from transformer_blocks.feed_forward import FeedForward
from transformer_blocks.inspection.changes import hooked, without_fast_path
from transformer_blocks.inspection.comparison import find_tensors
from transformer_blocks.multi_head import MultiHeadAttention

BLOCK_SIZES = ("d_model", "H", "d_k", "d_ff", "V")
FEATURES = ("d_model", "d_ff", "d_k", "V")
POSITIONS = ("L", "S")


@dataclass
class Call:
    """One call of one module.

    Attributes:
        name: Name of the module within the model; empty for the model itself.
        title: Name of the module relative to the module that called it.
        kind: Name of the module's class.
        depth: Number of modules that enclose it.
        inputs: Shapes of the tensors among the arguments.
        outputs: Shapes of the tensors among the results.
        completed: Whether the call returned.
        parameters: Number of parameters of the module and its submodules.
        in_features: Input size of a linear layer; None for other modules.
    """

    name: str
    title: str
    kind: str
    depth: int
    inputs: list[tuple[int, ...]]
    outputs: list[tuple[int, ...]] = field(default_factory=list)
    completed: bool = False
    parameters: int = 0
    in_features: int | None = None


@dataclass(frozen=True)
class Trace:
    """The calls of a forward pass; print it.

    Attributes:
        calls: The calls of all modules, in the order in which they started.
        sizes: The named sizes, for example B and d_model.
        error: The exception that the forward pass raised; None if it completed.
        failed: The innermost call that raised the exception; None if all completed.
    """

    calls: list[Call]
    sizes: dict[str, int]
    error: Exception | None = None
    failed: Call | None = None

    def named(self, shape: Sequence[int]) -> str:
        """Format a shape by the names of its sizes, for example (2, 5, 16) as (B, L, d_model)."""
        return f"({', '.join(name_sizes(shape, self.sizes))})"

    def __repr__(self) -> str:
        """Format the table as text."""
        header = ("module", "kind", "in", "out", "parameters")
        lines = [header, *(self._cells(call) for call in self.calls)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        formats = "  ".join(
            f"{{:{side}{width}}}" for side, width in zip("<<<<>", widths, strict=True)
        )
        sizes = ", ".join(f"{name} = {size}" for name, size in self.sizes.items())
        text = [sizes, *(formats.format(*line).rstrip() for line in lines)]
        if self.error is not None:
            text.append(f"failed: {self._describe_failure()}")
        return "\n".join(text)

    def _cells(self, call: Call) -> tuple[str, ...]:
        return (
            "  " * call.depth + call.title,
            call.kind,
            " ".join(map(self.named, call.inputs)),
            " ".join(map(self.named, call.outputs)) if call.completed else "...",
            f"{call.parameters:,}",
        )

    def _describe_failure(self) -> str:
        """Name the module that failed, its inputs and the error."""
        call = self.failed
        if call is None:
            return str(self.error)
        inputs = ", ".join(f"{self.named(shape)} = {shape}" for shape in call.inputs) or "no tensor"
        name = f"{call.name} ({call.kind})" if call.name else call.kind
        expected = "" if call.in_features is None else f" and expects size {call.in_features}"
        return f"{name} received {inputs}{expected}: {self.error}"


def trace_shapes(
    model: nn.Module,
    *inputs: object,
    keywords: Mapping[str, object] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Trace:
    """Run a model once and list the shapes of every module's inputs and outputs.

    Args:
        model: Any module. Its mode is not changed, and no gradients are computed.
        inputs: Positional arguments of the call.
        keywords: Keyword arguments of the call.
        sizes: Names for sizes, for example ``{"B": 2, "S": 7}``, which take precedence. By default,
            the sizes of the blocks (d_model, d_ff, d_k, H and V) are read from the model, and those
            of the inputs (B, and the lengths L of queries or targets and S of keys or sources) from
            their shapes.

    Returns:
        The trace. If the forward pass failed, ``error`` is its exception.

    Example:
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks import FeedForward, TokenEmbedding
        >>> from transformer_blocks.inspection import trace_shapes
        >>> model = nn.Sequential(TokenEmbedding(100, 16), FeedForward(16, 64))
        >>> print(trace_shapes(model, torch.tensor([[5, 6, 7], [8, 9, 0]])))
        B = 2, L = 3, d_model = 16, d_ff = 64, V = 100
        module               kind            in               out              parameters
        model                Sequential      (B, L)           (B, L, d_model)       3,728
          0                  TokenEmbedding  (B, L)           (B, L, d_model)       1,600
          1                  FeedForward     (B, L, d_model)  (B, L, d_model)       2,128
            up_projection    Linear          (B, L, d_model)  (B, L, d_ff)          1,088
            dropout          Dropout         (B, L, d_ff)     (B, L, d_ff)              0
            down_projection  Linear          (B, L, d_ff)     (B, L, d_model)       1,040
    """
    model = getattr(model, "_orig_mod", model)  # the module that torch.compile wrapped
    check(nn.Module, model=model)
    keywords = {} if keywords is None else keywords
    tensors = [value for value in (*inputs, *keywords.values()) if isinstance(value, Tensor)]
    known = find_sizes(model, [tuple(tensor.shape) for tensor in tensors])
    known = {**(sizes or {}), **known, **(sizes or {})}  # the names that are given first
    calls: list[Call] = []
    error = None
    with torch.no_grad(), _record_calls(model, calls):
        try:
            model(*inputs, **keywords)
        except Exception as raised:  # whatever the model raises: the table shows it
            error = raised.with_traceback(None)  # which would keep all activations alive
    failed = next((call for call in reversed(calls) if not call.completed), None)
    return Trace(calls, known, error, failed)


@contextmanager
def _record_calls(model: nn.Module, calls: list[Call]) -> Iterator[None]:
    """Append every call of every module inside the ``with`` block."""
    active_calls: list[Call] = []

    def start(name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        caller = active_calls[-1].name if active_calls else ""
        call = Call(
            name,
            name.removeprefix(caller).removeprefix(".") or "model",
            type(module).__name__,
            len(active_calls),
            inputs=[tuple(each.shape) for each in find_tensors((args, kwargs))],
            parameters=sum(weight.numel() for weight in module.parameters()),
            in_features=getattr(module, "in_features", None),
        )
        calls.append(call)
        active_calls.append(call)

    def complete(name: str, module: nn.Module, args: Any, output: Any) -> None:
        while active_calls[-1].name != name:  # ended by an exception that the model caught
            active_calls.pop()
        call = active_calls.pop()
        call.outputs = [tuple(each.shape) for each in find_tensors(output)]
        call.completed = True

    with hooked(dict(model.named_modules()), start, complete), without_fast_path:
        yield


def find_sizes(model: nn.Module, inputs: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """Name the sizes of the inputs' shapes and of the blocks of a model."""
    sizes: dict[str, int] = {}
    if inputs and inputs[0]:
        sizes["B"] = inputs[0][0]
    lengths = list(dict.fromkeys(shape[1] for shape in inputs if len(shape) in (2, 3)))
    # Blocks take queries (L) before keys (S). Whole models, whose inputs are token ids, take the
    # source (S) before the target (L).
    are_ids = all(len(shape) == 2 for shape in inputs)
    order = ("S", "L") if are_ids and len(lengths) > 1 else ("L", "S")
    sizes |= dict(zip(order, lengths, strict=False))
    features: dict[str, int] = {}
    for module in model.modules():
        features = _read_sizes(module) | features
    return sizes | {name: features[name] for name in BLOCK_SIZES if name in features}


def _read_sizes(module: nn.Module) -> dict[str, int]:
    """Read the sizes of a block from its attributes; none of other modules."""
    match module:
        case nn.MultiheadAttention(embed_dim=d_model, num_heads=heads, head_dim=d_k):
            return {"d_model": d_model, "H": heads, "d_k": d_k}
        case MultiHeadAttention(query_projection=projection, num_heads=heads, d_k=d_k):
            return {"d_model": projection.in_features, "H": heads, "d_k": d_k}
        case nn.TransformerEncoderLayer(linear1=up) | nn.TransformerDecoderLayer(linear1=up):
            return {"d_ff": up.out_features}
        case FeedForward(up_projection=up):
            return {"d_model": up.in_features, "d_ff": up.out_features}
        case TokenEmbedding(weight=weight):
            return dict(zip(("V", "d_model"), weight.shape, strict=True))
    return {}


def name_sizes(shape: Sequence[int], sizes: Mapping[str, int]) -> list[str]:
    """Name each size of a shape, among the names that its dimension may have, or use the number.

    Example:
        >>> from transformer_blocks.inspection.shapes import name_sizes
        >>> name_sizes((2, 5, 16), {"B": 2, "L": 5, "d_model": 16})
        ['B', 'L', 'd_model']
    """
    custom = [name for name in sizes if name not in ("B", "H", *FEATURES, *POSITIONS)]
    candidates = [[*POSITIONS, *FEATURES] for _ in shape]
    candidates[:1] = [["B"] for _ in shape[:1]]
    if len(shape) > 2:
        candidates[-1] = [*FEATURES, *POSITIONS]
    if len(shape) == 4:
        candidates[1] = ["H"]
    return [
        next((name for name in (*names, *custom) if sizes.get(name) == size), str(size))
        for size, names in zip(shape, candidates, strict=True)
    ]
