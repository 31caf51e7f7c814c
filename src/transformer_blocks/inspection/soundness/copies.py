"""Properties of copies: a model in another dtype, on another device, or with loaded parameters.

The model itself is never converted: each check converts a copy. A function, or a module that holds
a function over its own parameters, cannot be copied in this way; these checks are not tried.
"""

import copy
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from transformer_blocks.inspection.changes import without_fast_path
from transformer_blocks.inspection.comparison import (
    NotTriedError,
    bytes_of,
    describe,
    epsilon,
    find_tensors,
    is_valid,
    perturb,
)
from transformer_blocks.inspection.soundness.tested import TestedModel, first_line

NEAR = {torch.float64: 1e-3, torch.float16: 0.25, torch.bfloat16: 0.5}  # standard deviations
UNSUPPORTED = re.compile(
    "not implemented for|not supported|unsupported|to be float32, bfloat16|strides should be",
    re.IGNORECASE,
)  # by a kernel of this device
MISPLACED = re.compile(
    "same device|different device|devices|device.*cpu|cpu.*device", re.IGNORECASE
)


def copy_model(tested: TestedModel) -> nn.Module:
    """Copy the module; raise if the copy still uses the parameters of the original."""
    model = tested.module
    try:
        copied = copy.deepcopy(model)
    except Exception as error:
        raise NotTriedError(f"the model cannot be copied: {first_line(error)}") from None
    own = [each for each in model.parameters() if each.is_floating_point()]
    values = [each.data for each in own]
    try:
        for each in own:
            each.data = torch.full_like(each, torch.nan)
        outputs = replace(tested, model=copied).outputs(tested.inputs)
    finally:
        for each, value in zip(own, values, strict=True):
            each.data = value
    if not all(bool(is_valid(each).all()) for each in outputs):
        raise NotTriedError("a copy of the model still computes with its own parameters")
    return copied


def convert(value: Any, **target: Any) -> Any:
    """Convert the tensors in tuples, lists and mappings; ids and masks keep their dtype."""
    if isinstance(value, Tensor):
        dtype = target.get("dtype") if value.is_floating_point() else None
        return value.to(**{**target, "dtype": dtype or value.dtype})
    if isinstance(value, dict):
        return {name: convert(each, **target) for name, each in value.items()}
    if type(value) in (tuple, list):
        return type(value)(convert(each, **target) for each in value)
    return value


def convert_tested(tested: TestedModel, model: nn.Module, **target: Any) -> TestedModel:
    """Convert a copy of the model, and the inputs."""
    values = (convert(argument.value, **target) for argument in tested.inputs.arguments)
    inputs = tested.inputs.replaced(dict(enumerate(values)))
    return replace(tested, model=model.to(**target).eval(), inputs=inputs)


def check_dtype(tested: TestedModel) -> list[str]:
    """Check that float64 gives the same outputs, and half precision close and finite ones."""
    expected = tested.outputs(tested.inputs)
    model = copy_model(tested)
    dtypes = {each.dtype for each in model.parameters() if each.is_floating_point()}
    if len(dtypes) > 1:
        raise NotTriedError("the parameters of the model have several dtypes")
    before = next(iter(dtypes), torch.float32)
    problems, tried = [], 0
    for dtype, near in NEAR.items():
        if dtype == before:
            continue
        converted = convert_tested(tested, copy.deepcopy(model), dtype=dtype)
        converted.tolerance = max(near, NEAR.get(before, 0.0))
        name = str(dtype).removeprefix("torch.")
        try:
            outputs = converted.outputs(converted.inputs)
        except NotTriedError:
            raise
        except Exception as error:
            message = first_line(error)
            if not UNSUPPORTED.search(message):
                problems.append(f"in {name}: {type(error).__name__}: {message}")
                tried += 1
            continue
        tried += 1
        # What the coarser dtype rounds is no difference, nor is the smallest number of a dtype.
        pair = sorted((expected, outputs), key=lambda each: -epsilon(each[0]))
        smallest = max(torch.finfo(each[0].dtype).min for each in pair)
        coarse, fine = ([output.clamp(min=smallest) for output in each] for each in pair)
        problems += [
            f"in {name}, the output{tested.at(position)} of row {row} differs, {describe(size)}"
            for row, position, size in converted.find_changes(coarse, fine)
        ]
    if not tried:
        raise NotTriedError("this device computes the model in no other dtype")
    return problems


class _Values(TorchFunctionMode):
    """Record the numbers that a model reads from tensors, and return them in a second run.

    Tensors on the meta device have no values. A model that tests whether a mask masks anything
    takes the same branch there as on the CPU.
    """

    READING = frozenset(
        {Tensor.item, Tensor.tolist, Tensor.__bool__, Tensor.__int__, Tensor.__float__}
        | {Tensor.__index__, Tensor.is_nonzero, torch.is_nonzero, torch.equal, Tensor.equal}
    )

    # Functions that accept CPU and meta tensors together, but not CPU and CUDA tensors.
    LENIENT = frozenset(
        {F.embedding, F.embedding_bag, F.linear, torch.gather, Tensor.gather}
        | {torch.index_select, Tensor.index_select}
    )

    def __init__(self) -> None:
        super().__init__()
        self.values: list[Any] = []
        self.used = 0
        self.replays = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.replays and func in self.LENIENT:
            found = {each.device.type for each in find_tensors((args, kwargs or {}))}
            if {"cpu", "meta"} <= found:
                raise RuntimeError(f"the tensors of {func.__name__} are not on the same device")
        if func not in self.READING:
            return func(*args, **(kwargs or {}))
        if self.replays and self.used < len(self.values):
            self.used += 1
            return self.values[self.used - 1]
        value = func(*args, **(kwargs or {}))
        self.values.append(value)
        return value


def check_device(tested: TestedModel) -> list[str]:
    """Check that every tensor moves with the model, to the meta device."""
    model, values = copy_model(tested), _Values()
    with values:
        tested(tested.inputs)
    values.replays = True
    converted = convert_tested(tested, model, device="meta")
    try:
        with without_fast_path, values:
            output = converted(converted.inputs)
    except NotTriedError:
        raise
    except Exception as error:
        message = first_line(error)
        if MISPLACED.search(message):
            return [f"on meta: {message}{_name_plain_tensors(model)}"]
        raise NotTriedError(
            f"on meta, the model raised {type(error).__name__}: {message}"
        ) from None
    return [] if output.is_meta else [f"on meta, the output is on {output.device}"]


def _name_plain_tensors(model: nn.Module) -> str:
    """Name attributes that are tensors but neither parameters nor buffers, which do not move."""
    names = [
        f"{path}.{name}".lstrip(".")
        for path, module in model.named_modules()
        for name, value in vars(module).items()
        if isinstance(value, Tensor)
    ]
    return f"; {', '.join(names)} must be a buffer or a parameter" if names else ""


def check_initialisation(tested: TestedModel) -> list[str]:
    """Check that no two matrices with random values are equal, as those of copied layers are."""
    first_names: dict[object, str] = {}
    problems = []
    for name, parameter in tested.module.named_parameters():
        if parameter.requires_grad and is_random(parameter):
            content = parameter.shape, hash(bytes_of(parameter))
            first = first_names.setdefault(content, name)
            if first != name:
                problems.append(f"{name} holds the same random values as {first}")
    problems += [] if tested.recursive else find_repeated_layers(tested.module)
    if not first_names:
        raise NotTriedError("the model has no trainable matrix with random values")
    return problems


def find_repeated_layers(model: nn.Module) -> list[str]:
    """Find layers of a list that are one module, unless the model says which weights it ties."""
    shared = find_shared(model.named_modules(remove_duplicate=False))
    if getattr(model, "_tied_weights_keys", None):
        return []
    return [
        f"layers {' and '.join(name.rpartition('.')[2] for name in names)} of "
        f"{path or 'the model'} are one module; pass recursive=True if that is meant"
        for names in shared
        for path in {name.rpartition(".")[0] for name in names}
        if isinstance(model.get_submodule(path), nn.ModuleList | nn.Sequential)
        if all(name.rpartition(".")[0] == path for name in names)
        if any(True for _ in model.get_submodule(names[0]).parameters())
    ]


def is_random(parameter: Tensor) -> bool:
    """Return whether a matrix holds random numbers: most of them differ."""
    if parameter.is_meta or sum(size > 1 for size in parameter.shape) < 2:
        return False
    matrix = parameter.detach().float().flatten(1)
    sample = matrix.flatten()[:: 1 + matrix.numel() // 2**16]
    return len(sample.unique()) > 0.5 * len(sample)


def check_loading(tested: TestedModel) -> list[str]:
    """Check that a changed copy that loads the state dict has the same outputs and tied weights."""
    model = copy_model(tested)
    original = tested.module
    if not original.state_dict():
        raise NotTriedError("the model has no parameters")
    state = {name: value.clone() for name, value in original.state_dict().items()}
    for value in (*model.parameters(), *model.state_dict().values()):
        if isinstance(value, Tensor) and value.is_floating_point():
            value.copy_(perturb(value, value, seed=1))
    model.load_state_dict(state)
    model.eval()
    before, after = (
        find_shared(each.named_parameters(remove_duplicate=False)) for each in (original, model)
    )
    problems = [
        f"{', '.join(tied)} are one parameter, and two after loading"
        for tied in before
        if not any({*tied} <= {*other} for other in after)
    ]
    outputs = tested.outputs(tested.inputs)
    loaded = replace(tested, model=model).outputs(tested.inputs)
    return problems + tested.compare(outputs, loaded, "after loading")


def find_shared(named: Iterable[tuple[str, object]]) -> list[list[str]]:
    """Find the objects that have several names."""
    names: dict[int, list[str]] = defaultdict(list)
    for name, each in named:
        names[id(each)].append(name)
    return [each for each in names.values() if len(each) > 1]
