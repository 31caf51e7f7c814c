"""Values: the tensors that the modules of a model receive and return in a forward pass."""

import copy
import dataclasses
import json
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate, islice, permutations
from operator import mul
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from transformer_blocks._contracts import Function, checked
from transformer_blocks.files import write_atomically
from transformer_blocks.inspection.changes import hooked, without_fast_path
from transformer_blocks.inspection.comparison import bytes_of, epsilon, find_output, find_tensors
from transformer_blocks.inspection.record.patching import patched
from transformer_blocks.inspection.record.recording import Record

Place = tuple[str, str, int]
"""A module's name, "input" or "output", and the number of the tensor in all calls of the module."""
OUTPUT: Place = ("", "output", 0)
"""The main output of the model. The others have names, for example ``("", "output loss", 0)``."""


@dataclass(eq=False)
class Value:
    """A tensor of a forward pass: a copy, and where it was seen, in order.

    Only inputs and outputs of the model may be no floating-point tensors, or single numbers.
    """

    tensor: Tensor
    places: list[Place] = field(default_factory=list)


@checked
@contextmanager
def record_values(
    model: nn.Module,
    *,
    only: Function[Callable[[str], bool]] = lambda name: True,
    heads: Mapping[str, Collection[int]] | None = None,
    device: torch.device | str | None = None,
) -> Iterator[dict[str, list[Any]]]:
    """Record the outputs of all modules inside the ``with`` block, for example to patch them.

    Recording changes no output, but rounding where heads of ``torch.nn.MultiheadAttention`` are
    recorded. Inside, a model compiled by ``torch.compile`` is executed eagerly, and modules of
    torch.nn do not take their fast path.

    Args:
        model: Any module.
        only: Function of a module's name that returns whether to record its outputs; those of all
            modules by default.
        heads: A dictionary from names of attention layers to the indices, from 0, of heads that are
            recorded instead of the output of the layer.
        device: Device that stores the values; by default the one on which they are computed.

    Raises:
        TypeError: If ``model`` is not a module, or ``only`` is not callable.
        ValueError: If heads cannot be told apart.
        IndexError: Where the model is called, if a head does not exist.

    Yields:
        A dictionary from module names to lists of the outputs of each call, copied and without
        gradients, as :func:`patched` takes them. Of an output that is a tuple, the first tensor is
        recorded; of heads, a dictionary from their indices to outputs of shape (B, L, d_k).

    Example:
        >>> import torch
        >>> from transformer_blocks import build_encoder
        >>> from transformer_blocks.inspection import record_values
        >>> encoder = build_encoder(num_layers=1, d_model=16, num_heads=4, d_ff=32)
        >>> with record_values(encoder, only=lambda name: name.endswith("attention")) as values:
        ...     _ = encoder(torch.randn(1, 5, 16))
        >>> values
        layers.0.self_attention: (1, 5, 16)
        >>> only_heads = {"layers.0.self_attention": [1, 3]}
        >>> with record_values(encoder, only=lambda name: False, heads=only_heads) as values:
        ...     _ = encoder(torch.randn(1, 5, 16))
        >>> values
        layers.0.self_attention: heads 1, 3 of (1, 5, 4)
    """
    recorded, of_heads = Record(), heads or {}

    def record(name: str, module: nn.Module, inputs: object, output: object) -> None:
        for x in islice(find_tensors(output), 1):
            value = x.detach().clone().to(device=device)
            recorded.setdefault(name, []).append(value)

    def record_head(name: str, head: int, x: Tensor) -> Tensor:
        calls = recorded.setdefault(name, [])
        if not calls or head in calls[-1]:
            calls.append({})
        calls[-1][head] = x.detach().clone().to(device=device)
        return x

    unchanged = {
        name: {head: partial(record_head, name, head) for head in indices}
        for name, indices in of_heads.items()
    }
    parts = {n: part for n, part in model.named_modules() if only(n) and n not in of_heads}
    with hooked(parts, after=record), without_fast_path, patched(model, unchanged):
        yield recorded


class Run(dict[Place, Value]):
    """The values of a forward pass, in the order in which they were seen.

    Equal values are one, unless only some are recorded.

    Args:
        patches: Tensors that replace those of some places.
        only: The places that are recorded, beside the outputs of the model; None records all.
    """

    def __init__(
        self, patches: Mapping[Place, Tensor] | None = None, only: Collection[Place] | None = None
    ) -> None:
        self.patches, self.only = patches or {}, only
        self._equal: dict[Any, Value] = {}
        self._counts: Counter[tuple[str, str]] = Counter()

    def see(self, name: str, what: str, data: Any) -> None:
        """Patch and record the tensors of one input or output."""
        with torch._C.DisableTorchFunction():  # no mode counts, or changes, what is done here
            for tensor in find_tensors(data):
                self._see(tensor, (name, what, self._counts[name, what]))
                self._counts[name, what] += 1

    def _see(self, tensor: Tensor, place: Place) -> None:
        if place in self.patches:
            tensor.copy_(next(layouts(self.patches[place], tensor.shape)))
        is_output = is_model_output(place)
        if self.only is not None and place not in self.only and not is_output:
            return
        if is_output or not place[0] or (tensor.is_floating_point() and tensor.numel() > 1):
            value = new = Value(tensor.detach().clone())
            if self.only is None:
                value = self._equal.setdefault(_content(tensor), value)
            if is_output and value.tensor.shape != tensor.shape:
                value = new  # its shape counts
            value.places.append(place)
            self[place] = value


def _content(x: Tensor) -> tuple[Any, ...]:
    """Return what equal values have in common."""
    return x.dtype, x.numel(), hash(bytes_of(x))


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

    def run(self, run: Run | None = None) -> Run:
        """Run the model, and fill a run, by default a new one.

        Raises:
            ValueError: If the model returns no floating-point tensor.
        """
        run = Run() if run is None else run
        inputs = copy.deepcopy(self.inputs)
        options = inputs if isinstance(inputs, Mapping) else {}
        args = inputs if isinstance(inputs, tuple) else () if options else (inputs,)
        with self._watched(run):
            run.see("", "input", (args, options))
            result = self.model(*args, **options)
            run.see("", "output", find_output(result))
            for name, output in _name_outputs(result) if not isinstance(result, Tensor) else ():
                run.see("", f"output {name}", output)
        if OUTPUT not in run:
            raise ValueError(
                "a model must return a floating-point tensor of at least one dimension"
            )
        return run

    @contextmanager
    def _watched(self, run: Run) -> Iterator[None]:
        """Let a run see what modules receive and return, with the same random numbers each time."""
        places = None if run.only is None else {name for name, *_ in (*run.only, *run.patches)}
        inner = {n: m for n, m in self.parts.items() if n and (places is None or n in places)}
        cuda = range(torch.cuda.device_count())
        with torch.no_grad(), torch.random.fork_rng(devices=cuda), ExitStack() as stack:
            # torch.manual_seed formats the call stack for each device that is not initialised.
            (torch.manual_seed if cuda else torch.default_generator.manual_seed)(0)
            if self.doubled:
                stack.enter_context(Float64Mode())
            if self.parts:
                stack.enter_context(without_fast_path)
                before, after = partial(_see, run, "input"), partial(_see, run, "output")
                stack.enter_context(hooked(inner, before, after))
            yield


def _see(run: Run, what: str, name: str, module: nn.Module, *data: Any) -> None:
    """See the arguments of a module in a pre-hook, or its result, which a hook receives last."""
    run.see(name, what, data if what == "input" else data[-1])


@checked
def save_values(
    model: Function[Callable[..., Any]], inputs: Any, path: str | PathLike[str]
) -> None:
    """Save the tensors that the modules of a model receive and return, as a reference.

    :func:`first_difference` compares another model with the file: in another process, with another
    version of a library, or beside a port of the model. The model is run once, without gradients,
    in its current mode and dtype. It needs the package safetensors.

    Args:
        model: The model: a module, or a function, of which only inputs and outputs are saved.
        inputs: A tensor (``model(x)``), a tuple (``model(*args)``) or a mapping
            (``model(**kwargs)``).
        path: The file, of safetensors. A tensor is named after a module and what it is of it, such
            as ``layers.0.norm output``, or ``model output`` of the model itself. Equal tensors are
            saved once, and the metadata hold the order and all names.

    Raises:
        TypeError: If ``model`` is not callable.
        ValueError: If the model returns no floating-point tensor.
        OSError: If the file cannot be written.

    Example:
        >>> import tempfile, torch
        >>> from pathlib import Path
        >>> from transformer_blocks import FeedForward
        >>> from transformer_blocks.inspection import first_difference, save_values
        >>> path = Path(tempfile.mkdtemp()) / "golden.safetensors"
        >>> model, x = FeedForward(16, 32).eval(), torch.randn(2, 5, 16)
        >>> save_values(model, x, path)
        >>> bool(first_difference(path, model, x))
        False
    """
    from safetensors.torch import save

    values = [*dict.fromkeys(ForwardPass(model, inputs).run().values())]
    tensors = {name_place(each.places[0]): each.tensor.contiguous().cpu() for each in values}
    places = json.dumps([each.places for each in values])
    write_atomically(path, save(tensors, {"places": places}))


def load_values(path: str | PathLike[str]) -> Run:
    """Load the tensors of a file of safetensors: of :func:`save_values`, or any other.

    Those of another file are outputs of modules with their names, in the order of these names, in
    which 10 follows 9. One that is called output or logits is the output of the model.

    Raises:
        ValueError: If it is no such file, or holds no tensor of floating-point numbers.
        OSError: If it cannot be read.
    """
    from safetensors import SafetensorError, safe_open

    run = Run()
    Path(path).open("rb").close()  # the error for a folder names it; that of safetensors does not
    try:
        with safe_open(path, "pt") as file:
            names = sorted(file.keys(), key=_natural)
            places = {name: [_find_place(name)] for name in names}
            for each in json.loads((file.metadata() or {}).get("places", "[]")):
                saved = [(name, what, number) for name, what, number in each]
                places[name_place(saved[0])] = places.pop(name_place(saved[0])) and saved
            for name, found in places.items():
                value = Value(file.get_tensor(name), found)
                run.update(dict.fromkeys(found, value))
    except (SafetensorError, KeyError) as error:
        raise ValueError(f"{path} must be a file of safetensors, got {error}") from error
    if not any(each.tensor.is_floating_point() for each in run.values()):
        raise ValueError(f"{path} must hold tensors of floating-point numbers, got {names}")
    return run


def name_place(place: Place) -> str:
    """Name a place, such as ``layers.0.norm output``, or ``model output 1``."""
    name, what, number = place
    return f"{name or 'model'} {what}" + (f" {number}" if number else "")


def _find_place(name: str) -> Place:
    """Return the place that a tensor of any file has, by its name."""
    is_output = name.lower() in ("output", "outputs", "logits", "model output")
    return OUTPUT if is_output else (name, "output", 0)


def _natural(name: str) -> list[tuple[int, str]]:
    """Return a key that sorts numbers within names as numbers, and outputs of the model last."""
    parts = re.split("([0-9]+)", name)
    is_last = int(_find_place(name) == OUTPUT)
    return [(is_last, ""), *((int(each) if each.isdigit() else 0, each) for each in parts)]


def layouts(x: Tensor, shape: Sequence[int], *, any_order: bool = False) -> Iterator[Tensor]:
    """Yield a tensor in a shape, in each way in which models store the same numbers.

    Two neighbouring dimensions before the last may be exchanged, such as batch and sequence, or
    sequence and heads; and neighbouring ones joined or divided. A reshape that does both at once
    makes a wrong (L, B, d_model) of (B, L, d_model): it is none of these ways. In files of other
    frameworks, dimensions may be in any order.
    """
    exchanged = [] if x.shape == shape else range(x.dim() - 2)
    ways = [x, *(x.transpose(n, n + 1) for n in exchanged)]
    if any_order and x.shape != shape:
        ways = [x.permute(order) for order in permutations(range(x.dim()))]
    for each in ways:
        sizes = [{*accumulate(dims, mul)} - {1} for dims in (each.shape, shape)]
        if sizes[0] <= sizes[1] or sizes[1] <= sizes[0]:
            yield each.reshape(shape)


def in_float64(passes: Sequence[ForwardPass]) -> list[ForwardPass]:
    """Copy models and inputs, in float64, with numbers as coarse as those of any of the models."""
    copies = [copy.deepcopy(each) for each in passes]
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


def rounded(doubled: ForwardPass, dtype: torch.dtype) -> ForwardPass:
    """Copy a model and inputs in another dtype, to measure how it rounds."""
    copied = replace(copy.deepcopy(doubled), doubled=False)
    module = copied.model if isinstance(copied.model, nn.Module) else nn.Module()
    for tensor in (*module.parameters(), *module.buffers(), *find_tensors(copied.inputs)):
        if tensor.is_floating_point():
            tensor.data = tensor.data.to(dtype)
    return copied


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
        inputs = [*find_tensors((args, options))]
        if any(x.is_floating_point() or x.is_complex() for x in inputs):
            return result
        try:
            if inputs:
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
