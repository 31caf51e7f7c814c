"""Values: the tensors that the modules of a model receive and return in one forward pass."""

import copy
import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import mul
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from transformer_blocks.inspection.changes import hooked, without_fast_path
from transformer_blocks.inspection.comparison import epsilon, find_output, find_tensors

Place = tuple[str, str, int]
"""A module's name, "input" or "output", and the number of the tensor in all calls of the module."""
OUTPUT: Place = ("", "output", 0)
"""The main output of the model. The others have names, for example ``("", "output loss", 0)``."""


@dataclass(eq=False)
class Value:
    """A tensor of a forward pass: a copy, and where it was seen, in order.

    Only the outputs of the model may be no floating-point tensors, or single numbers.
    """

    tensor: Tensor
    places: list[Place] = field(default_factory=list)


Run = dict[Place, Value]
"""The values of a forward pass, in the order in which they were seen. Equal ones are one value."""


@dataclass(frozen=True)
class ForwardPass:
    """A model and its inputs.

    Attributes:
        model: A module, or a function, of which only the inputs and the output are seen.
        inputs: A tensor, a tuple, or a mapping of keyword arguments.
        doubled: Whether the model and its inputs were converted to float64.
    """

    model: Callable[..., Any]
    inputs: Any
    doubled: bool = False

    @property
    def parts(self) -> dict[str, nn.Module]:
        """The modules by name; none if compiled code calls them."""
        has_hooks = isinstance(self.model, nn.Module) and not hasattr(self.model, "_orig_mod")
        return dict(self.model.named_modules()) if has_hooks else {}  # type: ignore[attr-defined]

    def run(
        self, given: Mapping[Place, Tensor] | None = None, only: Collection[Place] | None = None
    ) -> Run:
        """Run the model.

        Args:
            given: Tensors that replace those of some places.
            only: The places that are recorded; None records all.

        Raises:
            ValueError: If it returns no floating-point tensor.
        """
        run: Run = {}
        values: dict[tuple[torch.dtype, int, int], Value] = {}
        counts: Counter[tuple[str, str]] = Counter()

        def see(name: str, what: str, data: Any) -> None:
            for tensor in find_tensors(data):
                place = name, what, counts[name, what]
                counts[name, what] += 1
                if given and place in given:
                    tensor.copy_(next(layouts(given[place], tensor.shape)))
                is_output = is_model_output(place)
                if only is not None and place not in only and not is_output:
                    continue
                if is_output or (tensor.is_floating_point() and tensor.numel() > 1):
                    content = tensor.detach().cpu().contiguous().flatten().view(torch.uint8)
                    key = tensor.dtype, tensor.numel(), hash(content.numpy().tobytes())
                    value = values.setdefault(key, Value(tensor.detach().clone()))
                    if is_output and value.tensor.shape != tensor.shape:
                        value = Value(tensor.detach().clone())  # its shape counts
                    value.places.append(place)
                    run[place] = value

        inputs = copy.deepcopy(self.inputs)
        options = inputs if isinstance(inputs, Mapping) else {}
        args = inputs if isinstance(inputs, tuple) else () if options else (inputs,)
        cuda = range(torch.cuda.device_count())
        with torch.no_grad(), torch.random.fork_rng(devices=cuda), ExitStack() as stack:
            torch.manual_seed(0)
            if self.doubled:
                stack.enter_context(Float64Mode())
            if self.parts:
                inner = {name: part for name, part in self.parts.items() if name}
                stack.enter_context(without_fast_path)
                stack.enter_context(
                    hooked(
                        inner,
                        lambda name, _, *inputs: see(name, "input", inputs),
                        lambda name, _, inputs, output: see(name, "output", output),
                    )
                )
            see("", "input", (args, options))
            result = self.model(*args, **options)
            see("", "output", find_output(result))
            for name, output in _name_outputs(result) if not isinstance(result, Tensor) else ():
                see("", f"output {name}", output)
        if OUTPUT not in run:
            raise ValueError(
                "a model must return a floating-point tensor of at least one dimension"
            )
        return run


def layouts(x: Tensor, shape: Sequence[int]) -> Iterator[Tensor]:
    """Yield a tensor in a shape, in each way in which models store the same numbers.

    Two neighbouring dimensions before the last may be exchanged, such as batch and sequence, or
    sequence and heads; and neighbouring ones joined or divided. A reshape that does both at once
    makes a wrong (L, B, d_model) of (B, L, d_model): it is none of these ways.
    """
    exchanged = [] if x.shape == shape else range(x.dim() - 2)
    for each in (x, *(x.transpose(n, n + 1) for n in exchanged)):
        sizes = [{*accumulate(dims, mul)} - {1} for dims in (each.shape, shape)]
        if sizes[0] <= sizes[1] or sizes[1] <= sizes[0]:
            yield each.reshape(shape)


def in_float64(subjects: Sequence[ForwardPass]) -> list[ForwardPass]:
    """Copy models and inputs, in float64, with numbers as coarse as those of any of the models."""
    copies = [copy.deepcopy(each) for each in subjects]
    modules = [each.model for each in copies if isinstance(each.model, nn.Module)]
    kinds = (
        [x for each in modules for x in each.parameters()],
        [x for each in modules for x in each.buffers()],
        [x for each in copies for x in find_tensors(each.inputs)],
    )
    for kind in kinds:
        tensors = [x for x in kind if x.is_floating_point()]
        coarsest = max(tensors, key=epsilon, default=torch.empty(0)).dtype
        for tensor in tensors:
            tensor.data = tensor.data.to(coarsest).double()
    return [replace(each, doubled=True) for each in copies]


class Float64Mode(TorchFunctionMode):
    """Compute all of a model in float64, also what is always float32, in this thread only.

    Each conversion to float32 becomes one to float64. What torch makes of no floating-point tensor,
    such as ``torch.ones(3)`` or ``torch.arange(3) / 2``, is float32 by default, and made again.
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.float:
            return args[0].double()
        args = [torch.float64 if each is torch.float32 else each for each in args]
        options = {
            key: torch.float64 if value is torch.float32 else value
            for key, value in (kwargs or {}).items()
        }
        result = func(*args, **options)
        if not isinstance(result, Tensor) or result.dtype != torch.float32:
            return result
        given = [*find_tensors((args, options))]
        if any(x.is_floating_point() or x.is_complex() for x in given):
            return result
        try:
            if given:
                return func(*map(_widen, args), **{k: _widen(v) for k, v in options.items()})
            return func(*args, **options | {"dtype": torch.float64})
        except (TypeError, RuntimeError):  # it takes neither: torch.where of two numbers
            return result.double()


def _widen(x: Any) -> Any:
    """Convert a tensor of integers to float64, so that what is computed from it is float64 too."""
    return x.double() if isinstance(x, Tensor) and x.dtype != torch.bool else x


def is_model_output(place: Place) -> bool:
    """Return whether a place is an output of the model itself."""
    return not place[0] and place[1] != "input"


def _name_outputs(result: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Yield all tensors and numbers in what a model returns, by key or number."""
    if isinstance(result, Tensor):
        yield name, result
    elif isinstance(result, int | float):
        yield name, torch.tensor(result)
    elif dataclasses.is_dataclass(result) and not isinstance(result, Mapping):
        yield from _name_outputs(vars(result), name)
    elif isinstance(result, Mapping | tuple | list):
        pairs = result.items() if isinstance(result, Mapping) else enumerate(result)
        for key, value in pairs:
            yield from _name_outputs(value, f"{name}.{key}" if name else str(key))
