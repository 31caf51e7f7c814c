"""Weights: read the parameters of a model from published safetensors files.

The tensors of a published model have other names than our parameters, and sometimes another layout:
an :class:`Origin` describes for each parameter which tensor it is read from, and how. Each class of
models is a :class:`PublishedModel`: its table of names gives the origins. A large model is
published in several files, with an index that names the file of each tensor.

Nothing is half loaded: names are compared first, then shapes, and only then are tensors read. A
file is refused if a tensor is missing, unknown, of another shape, or contains NaN.

Weights are read from safetensors only. The older ``pytorch_model.bin`` is a pickle, which can run
code when it is opened; ``convert.py`` converts it to safetensors without running any.

Next: ``tokenizer.py``, from text to token ids.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from transformer_blocks.pretrained.loading import (
    Config,
    LoadError,
    check_content,
    read_json,
    shown,
)

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
FILES = (WEIGHTS, INDEX, "model-*.safetensors")
"""Patterns of the names of all files that can hold weights."""

PICKLE = "pytorch_model.bin"
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
Model = TypeVar("Model", bound=nn.Module)


@dataclass(frozen=True)
class Origin:
    """The tensor of a published model that a parameter is read from.

    Attributes:
        names: Names that the tensor may have. A tied tensor may be saved under several of them;
            then all must be equal.
        transposed: Whether the published tensor is the transpose of ours.
        part: Index of the part that is our parameter, if the tensor holds several along dim 0.
        parts: Number of such parts.
        skipped: Number of rows of the tensor before those of our parameter.
        convert: Function from the tensor of the shape of our parameter to the parameter, in the
            dtype of the model; the identity if ``None``.
    """

    names: tuple[str, ...]
    transposed: bool = False
    part: int = 0
    parts: int = 1
    skipped: int = 0
    convert: Callable[[Tensor], Tensor] | None = None

    def shape(self, ours: torch.Size) -> tuple[int, ...]:
        """Return the shape of the published tensor for the shape of our parameter."""
        shape = (ours[0] * self.parts + self.skipped, *ours[1:])
        return shape[::-1] if self.transposed else shape

    def read(self, tensor: Tensor) -> Tensor:
        """Return our parameter, made from the published tensor."""
        tensor = tensor.t() if self.transposed else tensor
        tensor = tensor[self.skipped :].chunk(self.parts)[self.part]
        return tensor if self.convert is None else self.convert(tensor)


@dataclass(frozen=True)
class Published:
    """The tensors of a published model, none of which is read yet.

    Attributes:
        path: The only file of weights, or the index; errors about the whole model name it.
        files: The open file and its path, for the name of each tensor.
    """

    path: Path
    files: dict[str, tuple[Any, Path]]

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        return tuple(self.files[name][0].get_slice(name).get_shape())

    def read(self, name: str, dtype: torch.dtype) -> Tensor:
        """Read a tensor and convert it to a dtype.

        Raises:
            LoadError: If it is not floating-point, or then holds NaN or infinity.
        """
        file, path = self.files[name]
        tensor: Tensor = file.get_tensor(name)
        if tensor.dtype not in FLOATS:
            raise LoadError(f"{path}: tensor {name!r} must be floating-point, got {tensor.dtype}")
        tensor = tensor.to(dtype)
        if not tensor.isfinite().all():
            raise LoadError(f"{path}: tensor {name!r} holds NaN or infinity")
        return tensor


def load_model(
    make: Callable[[], Model],
    folder: Path,
    find_origin: Callable[[Model, str], Origin],
    *,
    left_out: str = "",
    dtype: torch.dtype,
) -> Model:
    """Build a model with the weights of a folder.

    A ``config.json`` with larger layers than the files costs neither time nor memory: names and
    shapes are compared before a tensor is read.

    Args:
        make: Builds the model. It is called on torch's device "meta", where tensors have a shape
            and occupy no memory.
        folder: Folder that holds :data:`WEIGHTS`, or several files and their :data:`INDEX`.
        find_origin: Function from the model and the name of a parameter to the tensor that the
            parameter is read from.
        left_out: Regular expression of the names of tensors that the model does not need.
        dtype: Data type of the parameters, in which the model computes.

    Returns:
        The model, in evaluation mode.

    Raises:
        LoadError: If a file cannot be read, or a tensor in it is missing, unknown, of another
            shape, or NaN or infinite.
    """
    with _open_weights(folder) as published:
        with torch.device("meta"):
            model = make().to(dtype)
        found: dict[str, tuple[Origin, list[str]]] = {}
        for ours in model.state_dict():
            origin = find_origin(model, ours)
            names = [name for name in origin.names if name in published.files]
            if not names:
                raise LoadError(f"{published.path} lacks tensor {origin.names[0]!r}")
            found[ours] = origin, names
        used = {name for _, names in found.values() for name in names}
        for name in sorted(published.files.keys() - used):
            if not re.fullmatch(left_out, name):
                raise LoadError(
                    f"{published.files[name][1]} holds tensor {shown(name)}, which the model does "
                    "not use"
                )
        for ours, target in model.state_dict().items():
            origin, names = found[ours]
            for name in names:
                _check_shape(published, name, origin, target)
        _allocate(model)
        with torch.no_grad():
            for ours, target in model.state_dict().items():
                origin, names = found[ours]
                first = published.read(names[0], dtype)
                for name in names[1:]:
                    if not torch.equal(first, published.read(name, dtype)):
                        raise LoadError(
                            f"{published.path}: {names[0]!r} and {name!r} must be equal, but differ"
                        )
                target.copy_(origin.read(first))
    return model.eval()


class PublishedModel(nn.Module):
    """A model whose settings and parameters are published under other names.

    Attributes:
        model_type: The ``model_type`` in its ``config.json``.
        expected: Settings that have no other value here; a file may leave them out.
        names: Published names of parts of our parameters' names.
        prefixes: What may precede a published name.
        left_out: Regular expression of the names of tensors that the model does not need.
    """

    model_type: ClassVar[str]
    expected: ClassVar[dict[str, Any]] = {}
    names: ClassVar[dict[str, str]]
    prefixes: ClassVar[tuple[str, ...]] = ("",)
    left_out: ClassVar[str] = ""

    @classmethod
    def read(cls, folder: Path, config: Config) -> dict[str, Any]:
        """Read the arguments of the class from a folder and its ``config.json``.

        Raises:
            LoadError: If a setting is missing, invalid or not implemented.
        """
        raise NotImplementedError

    def origin(self, name: str) -> Origin:
        """Return the tensor that a parameter is read from."""
        published = rename(name, self.names)
        return Origin(tuple(f"{prefix}{published}" for prefix in self.prefixes))

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype = torch.float32) -> Self:
        """Load a published model.

        Args:
            folder: Folder that holds ``config.json`` and the weights.
            dtype: Data type of the parameters, in which the model computes.

        Returns:
            The model, in evaluation mode.

        Raises:
            LoadError: If a file is missing or damaged, or belongs to another model.
        """
        config = Config(folder / "config.json", cls.model_type)
        config.expect(**cls.expected)
        make = partial(cls, **cls.read(folder, config))
        return load_model(make, folder, cls.origin, left_out=cls.left_out, dtype=dtype)


def rename(name: str, names: Mapping[str, str]) -> str:
    """Replace those parts of a dotted name that a table has; of two that overlap, the longer.

    Example:
        >>> rename("layers.2.norm.weight", {"layers": "h", "norm": "ln", "layers.2": "last"})
        'last.ln.weight'
    """
    known = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.sub(rf"(?<![^.])({known})(?![^.])", lambda found: names[found[0]], name)


def read_names(folder: Path) -> frozenset[str]:
    """Return the names of all tensors of a model.

    Raises:
        LoadError: If a file of weights cannot be read.
    """
    with _open_weights(folder) as published:
        return frozenset(published.files)


def _allocate(model: nn.Module) -> None:
    """Move a model from the device "meta" to the CPU, with memory that is not initialised.

    Torch's ``to_empty`` gives tied parameters memory of their own; they are tied again.
    """
    places: dict[nn.Parameter, list[tuple[nn.Module, str]]] = {}
    for module in model.modules():
        for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
            places.setdefault(parameter, []).append((module, name))
    model.to_empty(device="cpu")
    for (module, name), *others in places.values():
        for other, alias in others:
            setattr(other, alias, getattr(module, name))


def _check_shape(published: Published, name: str, origin: Origin, target: Tensor) -> None:
    wanted, found = origin.shape(target.shape), published.shape(name)
    if found != wanted:
        raise LoadError(
            f"{published.files[name][1]}: tensor {name!r} must have shape {wanted} by config.json, "
            f"got {found}"
        )


@contextmanager
def _open_weights(folder: Path) -> Iterator[Published]:
    """Open the files of a model."""
    path, index = folder / WEIGHTS, folder / INDEX
    if not path.is_file() and not index.is_file():
        reason = "--revision may name a revision on the hub that has one"
        if (folder / PICKLE).exists():
            reason = f"the folder's {PICKLE} is a pickle, which could run code when it is opened"
        raise LoadError(
            f"{path} is missing; {reason}; examples/pretrained/convert.py converts {PICKLE} "
            "without running code"
        )
    with ExitStack() as stack:
        if path.is_file():
            yield Published(path, _open(path, stack))
        else:
            yield Published(index, _open_shards(index, stack))


def _open(path: Path, stack: ExitStack) -> dict[str, tuple[Any, Path]]:
    """Open a file, and return it with its path for the name of each of its tensors."""
    check_content(path)
    try:
        file = stack.enter_context(safe_open(path, framework="pt"))
    except (SafetensorError, OSError) as error:
        raise LoadError(
            f"{path} cannot be read as safetensors ({error}); download it again"
        ) from error
    return dict.fromkeys(file.keys(), (file, path))


def _open_shards(index: Path, stack: ExitStack) -> dict[str, tuple[Any, Path]]:
    """Open the files that an index names, each of which must hold what it says, and nothing else.

    Raises:
        LoadError: If the index is damaged, a file is missing, or a tensor is in another file.
    """
    wanted = read_json(index).get("weight_map")
    if not isinstance(wanted, dict) or not all(isinstance(each, str) for each in wanted.values()):
        raise LoadError(
            f"{index}: weight_map must be an object with the file of each tensor, "
            f"got {shown(wanted)}"
        )
    names = sorted(set(wanted.values()))
    for name in names:
        if Path(name).name != name or "\\" in name or not name.endswith(".safetensors"):
            raise LoadError(
                f"{index}: weight_map must name safetensors files beside it, got {shown(name)}"
            )
    found: dict[str, tuple[Any, Path]] = {}
    for name in names:
        path = index.parent / name
        if not path.exists():
            raise LoadError(f"{path} is missing, which {index.name} names; download it again")
        for tensor, place in _open(path, stack).items():
            if wanted.get(tensor) != name:
                raise LoadError(
                    f"{path} holds tensor {shown(tensor)}, which is not there by {index.name}"
                )
            found[tensor] = place
    for tensor, name in wanted.items():
        if tensor not in found:
            raise LoadError(f"{index.parent / name} lacks tensor {shown(tensor)}")
    return found
