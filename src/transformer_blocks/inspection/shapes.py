"""Shapes: one forward pass as a table, with names for its numbers.

Most errors of a beginner, and many of everybody else, are shapes that do not fit.
:func:`trace_shapes` runs a model once and writes down what goes into each module and what comes
out, with parameters and floating-point operations. Sizes stand there by name (B sentences, L and S
positions, d_model, ...), so that a dimension can be followed. If the call fails, the table ends
where it did, and says what clashed.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from html import escape
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop_count

from transformer_blocks._checks import check_module
from transformer_blocks.embedding import TokenEmbedding
from transformer_blocks.feed_forward import FeedForward
from transformer_blocks.inspection.eager import run_eagerly
from transformer_blocks.multi_head import MultiHeadAttention

FEATURES = ("d_model", "d_ff", "d_k", "V")
POSITIONS = ("L", "S")
STYLE = """
.trace-shapes { font: 13px/1.5 system-ui, sans-serif }
.trace-shapes details { border: 1px solid #8886; border-radius: 6px; padding: .2em .6em;
  margin: .25em 0 }
.trace-shapes summary { cursor: pointer }
.trace-shapes code { opacity: .75 }
"""


@dataclass
class Call:
    """One call of one module.

    Attributes:
        name: Of the module within the model; empty for the model itself.
        title: The part of the name that the module around it does not have.
        kind: Its class.
        depth: How many modules it lies within.
        inputs: Shapes of the tensors that went in.
        outputs: Shapes of those that came out.
        ended: Whether it came to its end.
        parameters: Numbers that the module and its parts learn.
        flops: Floating-point operations, those of its parts included: 2 for each number that is
            multiplied and added in a matrix product. Other work is not counted.
        takes: The width that a linear map takes.
    """

    name: str
    title: str
    kind: str
    depth: int
    inputs: list[tuple[int, ...]]
    outputs: list[tuple[int, ...]] = field(default_factory=list)
    ended: bool = False
    parameters: int = 0
    flops: int = 0
    takes: int | None = None


@dataclass(frozen=True)
class Trace:
    """A forward pass; print it, or show it in a notebook.

    Attributes:
        calls: In the order in which they began.
        sizes: The names of sizes, such as B or d_model.
        error: What ended it early, if anything did.
        failed: The innermost call that it ended.
    """

    calls: list[Call]
    sizes: dict[str, int]
    error: Exception | None = None
    failed: Call | None = None

    def named(self, shape: Sequence[int]) -> str:
        """Write a shape by the names of its sizes: (2, 5, 16) as (B, L, d_model)."""
        return f"({', '.join(name_sizes(shape, self.sizes))})"

    def __repr__(self) -> str:
        """Draw the table."""
        header = ("module", "kind", "in", "out", "parameters", "FLOPs")
        lines = [header, *(self._cells(call) for call in self.calls)]
        widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
        text = [", ".join(f"{name} = {size}" for name, size in self.sizes.items())]
        for line in lines:
            cells = [
                cell.ljust(width) if column < 4 else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ]
            text.append("  ".join(cells).rstrip())
        if self.error is not None:
            text.append(f"failed: {self._complaint()}")
        return "\n".join(text)

    def _cells(self, call: Call) -> tuple[str, ...]:
        return (
            "  " * call.depth + call.title,
            call.kind,
            " ".join(map(self.named, call.inputs)),
            " ".join(map(self.named, call.outputs)) if call.ended else "...",
            f"{call.parameters:,}",
            f"{call.flops:,}",
        )

    def _complaint(self) -> str:
        """Say in which module the call failed, and on what."""
        if self.failed is None:
            return str(self.error)
        where = self.failed
        given = ", ".join(f"{self.named(shape)} = {shape}" for shape in where.inputs) or "no tensor"
        name = f"{where.name} ({where.kind})" if where.name else where.kind
        wanted = "" if where.takes is None else f", and takes a width of {where.takes}"
        return f"{name} was given {given}{wanted}: {self.error}"

    def _repr_html_(self) -> str:
        """Draw the modules as boxes within boxes, with what goes in and comes out."""
        parts = [f"<style>{STYLE}</style><div class='trace-shapes'>"]
        parts.append(f"<p>{escape(', '.join(f'{n} = {s}' for n, s in self.sizes.items()))}</p>")
        depth = -1
        for call in self.calls:
            parts.append("</details>" * (depth - call.depth + 1))
            depth = call.depth
            name, kind, inputs, outputs, parameters, flops = map(escape, self._cells(call))
            opened = " open" if depth < 2 else ""
            parts.append(
                f"<details{opened}><summary><b>{name.strip()}</b> {kind} <code>{inputs} → "
                f"{outputs}</code> {parameters} parameters, {flops} FLOPs</summary>"
            )
        parts.append("</details>" * (depth + 1))
        if self.error is not None:
            parts.append(f"<p><b>failed:</b> {escape(self._complaint())}</p>")
        return "".join([*parts, "</div>"])


def trace_shapes(
    model: nn.Module,
    *inputs: object,
    keywords: Mapping[str, object] | None = None,
    sizes: Mapping[str, int] | None = None,
    depth: int | None = None,
) -> Trace:
    """Run a model once and write down the shapes that go through it.

    Args:
        model: Any module; its mode is left as it is, and nothing is learnt.
        inputs: What it is called with.
        keywords: What it is called with by name.
        sizes: Names for sizes, such as ``{"B": 2, "S": 7}``. Those of these blocks are found in the
            model: d_model, d_ff, d_k, H and V. Of the inputs, B is taken, and L and S: what reads
            the source or the keys is S long.
        depth: How many levels of modules to show; all if not given.

    Returns:
        The trace. Its ``error`` is what the call raised, if it failed.

    Example:
        >>> model = nn.Sequential(TokenEmbedding(100, 16), FeedForward(16, 64))
        >>> print(trace_shapes(model, torch.tensor([[5, 6, 7], [8, 9, 0]])))
        B = 2, L = 3, d_model = 16, d_ff = 64, V = 100
        module      kind            in               out              parameters   FLOPs
        model       Sequential      (B, L)           (B, L, d_model)       3,728  24,576
          0         TokenEmbedding  (B, L)           (B, L, d_model)       1,600       0
          1         FeedForward     (B, L, d_model)  (B, L, d_model)       2,128  24,576
            widen   Linear          (B, L, d_model)  (B, L, d_ff)          1,088  12,288
            dropout Dropout         (B, L, d_ff)     (B, L, d_ff)              0       0
            narrow  Linear          (B, L, d_ff)     (B, L, d_model)       1,040  12,288
    """
    model = getattr(model, "_orig_mod", model)  # what torch.compile has wrapped
    check_module(model=model)
    keywords = {} if keywords is None else keywords
    given = [value for value in (*inputs, *keywords.values()) if isinstance(value, Tensor)]
    known = found_sizes(model, [tuple(tensor.shape) for tensor in given])
    if sizes is not None:
        known = {**sizes, **{name: size for name, size in known.items() if name not in sizes}}
    calls: list[Call] = []
    error = None
    counter = FlopCounterMode(
        display=False,
        custom_mapping={
            torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: _attention_flops
        },
    )
    with torch.no_grad(), counter, _writing_down(model, calls, counter):
        try:
            model(*inputs, **keywords)
        except Exception as raised:  # whatever it is: the table shows it
            error = raised.with_traceback(None)  # which would keep all that the pass computed
    failed = next((call for call in reversed(calls) if not call.ended), None)
    if depth is not None:
        calls = [call for call in calls if call.depth < depth]
    return Trace(calls, known, error, failed)


def _attention_flops(
    query: Sequence[int], key: Sequence[int], value: Sequence[int], *_: object, **__: object
) -> int:
    return int(sdpa_flop_count(query, key, value))


@contextmanager
def _writing_down(model: nn.Module, calls: list[Call], counter: FlopCounterMode) -> Iterator[None]:
    """Append every call of every module while the ``with`` block lasts.

    Calls of other threads are left out: the same model may be traced in each of them.
    """
    open_calls: list[Call] = []
    thread = get_ident()

    def begin(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, kwargs: Any = None) -> None:
            if get_ident() != thread:  # where torch may even leave out the keywords
                return
            around = open_calls[-1].name if open_calls else ""
            call = Call(
                name,
                name.removeprefix(around).removeprefix(".") or "model",
                type(module).__name__,
                len(open_calls),
                inputs=_shapes((*args, *kwargs.values())),
                parameters=sum(weight.numel() for weight in module.parameters()),
                flops=-counter.get_total_flops(),
                takes=getattr(module, "in_features", None),
            )
            calls.append(call)
            open_calls.append(call)

        return hook

    def end(name: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: Any, output: Any) -> None:
            if get_ident() != thread:
                return
            while open_calls[-1].name != name:  # ended by an error that the model caught
                open_calls.pop().flops += counter.get_total_flops()
            call = open_calls.pop()
            call.outputs, call.ended = _shapes((output,)), True
            call.flops += counter.get_total_flops()

        return hook

    with ExitStack() as hooks:
        hooks.enter_context(run_eagerly())
        for name, module in model.named_modules():
            first = module.register_forward_pre_hook(begin(name), with_kwargs=True, prepend=True)
            hooks.callback(first.remove)
            hooks.callback(module.register_forward_hook(end(name)).remove)
        yield
    for call in open_calls:  # those that an error ended
        call.flops += counter.get_total_flops()


def _shapes(values: Iterable[object]) -> list[tuple[int, ...]]:
    """List the shapes of all tensors, also those within lists, tuples and dictionaries."""
    shapes = []
    for value in values:
        if isinstance(value, Tensor):
            shapes.append(tuple(value.shape))
        elif isinstance(value, Mapping):
            shapes += _shapes(value.values())
        elif isinstance(value, tuple | list):
            shapes += _shapes(value)
    return shapes


def found_sizes(model: nn.Module, inputs: Sequence[tuple[int, ...]]) -> dict[str, int]:
    """Name the sizes of the first inputs and those that the blocks of a model tell."""
    sizes: dict[str, int] = {}
    if inputs and inputs[0]:
        sizes["B"] = inputs[0][0]
    lengths = list(dict.fromkeys(shape[1] for shape in inputs if len(shape) in (2, 3)))
    # Blocks take what asks first, L, then what is looked at, S. Whole models, which embed their
    # tokens themselves, take the source first.
    from_tokens = all(len(shape) == 2 for shape in inputs)
    order = ("S", "L") if from_tokens and len(lengths) > 1 else ("L", "S")
    sizes |= dict(zip(order, lengths, strict=False))
    features: dict[str, int] = {}
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            width = module.query_projection.in_features
            features.setdefault("d_model", width)
            features.setdefault("H", module.num_heads)
            features.setdefault("d_k", width // module.num_heads)
        elif isinstance(module, FeedForward):
            features.setdefault("d_model", module.up_projection.in_features)
            features.setdefault("d_ff", module.up_projection.out_features)
        elif isinstance(module, TokenEmbedding):
            vocabulary, width = module.weight.shape
            features.setdefault("V", vocabulary)
            features.setdefault("d_model", width)
    listed = ("d_model", "H", "d_k", "d_ff", "V")
    return sizes | {name: features[name] for name in listed if name in features}


def name_sizes(shape: Sequence[int], sizes: Mapping[str, int]) -> list[str]:
    """Name each number of a shape, by what may stand at its place; unknown ones stay numbers.

    Example:
        >>> from transformer_blocks.inspection.shapes import name_sizes
        >>> name_sizes((2, 5, 16), {"B": 2, "L": 5, "d_model": 16})
        ['B', 'L', 'd_model']
    """
    own = [name for name in sizes if name not in ("B", "H", *FEATURES, *POSITIONS)]
    names = []
    for place, size in enumerate(shape):
        if place == 0:
            candidates: tuple[str, ...] = ("B",)
        elif place == len(shape) - 1 and len(shape) > 2:
            candidates = (*FEATURES, *POSITIONS)
        elif place == 1 and len(shape) == 4:
            candidates = ("H",)
        else:
            candidates = (*POSITIONS, *FEATURES)
        fitting = [name for name in (*candidates, *own) if sizes.get(name) == size]
        names.append(fitting[0] if fitting else str(size))
    return names
