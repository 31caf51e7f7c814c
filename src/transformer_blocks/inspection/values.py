"""Values: the tensors that the modules of a model receive and return in one forward pass."""

import copy
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from transformer_blocks.inspection.changes import changed_setting, hooked, without_fast_path
from transformer_blocks.inspection.comparison import epsilon, find_tensors
from transformer_blocks.inspection.soundness.subject import find_output

Place = tuple[str, str, int]
"""A module's name, "input" or "output", and the number of the tensor in all calls of the module."""
OUTPUT: Place = ("", "output", 0)


@dataclass(eq=False)
class Value:
    """A floating-point tensor of a forward pass: a copy, and where it was seen, in order."""

    tensor: Tensor
    places: list[Place] = field(default_factory=list)


Run = dict[Place, Value]
"""The values of a forward pass, in the order in which they were seen. Equal ones are one value."""


@dataclass(frozen=True)
class Subject:
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
        values: dict[tuple[int, int], Value] = {}
        counts: Counter[tuple[str, str]] = Counter()

        def see(name: str, what: str, data: Any) -> None:
            for tensor in find_tensors(data):
                place = name, what, counts[name, what]
                counts[name, what] += 1
                if given and place in given:
                    tensor.copy_(arrange(given[place], tensor.shape))
                if only is not None and place not in only and place != OUTPUT:
                    continue
                if tensor.is_floating_point() and (tensor.numel() > 1 or place == OUTPUT):
                    content = tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
                    key = tensor.numel(), hash(content)
                    if key not in values:
                        values[key] = Value(tensor.detach().clone())
                    values[key].places.append(place)
                    run[place] = values[key]

        inputs = copy.deepcopy(self.inputs)
        options = inputs if isinstance(inputs, Mapping) else {}
        args = inputs if isinstance(inputs, tuple) else () if options else (inputs,)
        cuda = range(torch.cuda.device_count())
        with torch.no_grad(), torch.random.fork_rng(devices=cuda), ExitStack() as stack:
            torch.manual_seed(0)
            if self.doubled:
                stack.enter_context(computing_in_float64())
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
            see("", "output", find_output(self.model(*args, **options)))
        if OUTPUT not in run:
            raise ValueError(
                "a model must return a floating-point tensor of at least one dimension"
            )
        return run


def arrange(x: Tensor, shape: Sequence[int]) -> Tensor:
    """Give a tensor a shape; two neighbouring dimensions may be exchanged, and others joined."""
    layouts = [x, *(x.transpose(n, n + 1) for n in range(x.dim() - 1))]
    return next((each for each in layouts if each.shape == shape), x).reshape(shape)


def in_float64(subjects: Sequence[Subject]) -> list[Subject]:
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


class _InFloat64(TorchFunctionMode):
    """Make each conversion to float32 one to float64: some parts of models always compute in it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is Tensor.float:
            return args[0].double()
        args = [torch.float64 if each is torch.float32 else each for each in args]
        options = (kwargs or {}).items()
        return func(*args, **{k: torch.float64 if v is torch.float32 else v for k, v in options})


@contextmanager
def computing_in_float64() -> Iterator[None]:
    """Compute all of a model in float64 inside the ``with`` block, also what is always float32."""
    default = torch.get_default_dtype, torch.set_default_dtype, torch.float64
    with changed_setting(*default), _InFloat64():
        yield
