"""Weights: read the parameters of a model from published files.

The tensors of a published model have other names than our parameters, and sometimes another layout:
an :class:`Origin` describes for each parameter which tensor it is read from, and how. A large model
is published in several files, with an index that names the file of each tensor.

Nothing is half loaded: names are compared first, then shapes, and only then are tensors read. A
file is refused if a tensor is missing, unknown, of another shape, or contains NaN.

Weights are read from safetensors. Older models are published as ``pytorch_model.bin`` alone, a
pickle, which can run code when it is opened: of a folder without safetensors, torch reads it with
``weights_only=True``, which makes tensors, dictionaries and numbers only.

Next: ``tokenizer.py``, from text to token ids.
"""

import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks.pretrained.config import LoadError, read_json, shown

WEIGHTS, INDEX, PICKLE = "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin"
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def unchanged(tensor: Tensor) -> Tensor:
    """Return a tensor as it is."""
    return tensor


@dataclass(frozen=True)
class Origin:
    """The tensor of a published model that a parameter is read from.

    Attributes:
        names: Names that the tensor may have. A tied tensor may be saved under several of them;
            then all must be equal.
        convert: Function from the tensor to the parameter.
    """

    names: tuple[str, ...]
    convert: Callable[[Tensor], Tensor] = unchanged

    def then(self, convert: Callable[[Tensor], Tensor]) -> "Origin":
        """Return the origin whose tensor is also converted by another function, afterwards."""
        return Origin(self.names, lambda tensor: convert(self.convert(tensor)))


class Tensors:
    """The tensors of a published model; of a safetensors file, none is read yet.

    Attributes:
        path: The only file of weights, or the index; errors about the whole model name it.
        files: The path of its file, and the open file, for the name of each tensor.
    """

    def __init__(self, path: Path, files: Mapping[str, tuple[Path, Any]]) -> None:
        self.path, self.files = path, files

    def error(self, name: str, rule: str) -> LoadError:
        """Make the error that a tensor does not follow a rule."""
        return LoadError(f"{self.files[name][0]}: tensor {name!r} {rule}")

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor."""
        file = self.files[name][1]
        shape = file[name].shape if isinstance(file, dict) else file.get_slice(name).get_shape()
        return tuple(shape)

    def read(self, name: str, dtype: torch.dtype) -> Tensor:
        """Read a tensor and convert it to a dtype.

        Raises:
            LoadError: If it is not floating-point, or then holds NaN or infinity.
        """
        file = self.files[name][1]
        tensor: Tensor = file[name] if isinstance(file, dict) else file.get_tensor(name)
        if tensor.dtype not in FLOATS:
            raise self.error(name, f"must be floating-point, got {tensor.dtype}")
        tensor = tensor.to(dtype)
        if not tensor.isfinite().all():
            raise self.error(name, "holds NaN or infinity")
        return tensor


def load_parameters(
    make: Callable[[], nn.Module],
    tensors: Tensors,
    find_origin: Callable[[str], Origin],
    *,
    left_out: str = "",
    dtype: torch.dtype,
) -> nn.Module:
    """Build a model with published weights.

    A ``config.json`` with larger layers than the files costs neither time nor memory: names and
    shapes are compared before a tensor is read.

    Args:
        make: Builds the model. It is called on torch's device "meta", where tensors have a shape
            and occupy no memory.
        tensors: The published weights.
        find_origin: Function from the name of a parameter to the tensor that it is read from.
        left_out: Regular expression of the names of tensors that the model does not need.
        dtype: Data type of the parameters, in which the model computes.

    Returns:
        The model, in evaluation mode.

    Raises:
        LoadError: If a tensor is missing, unknown, of another shape, or NaN or infinite.
    """
    with torch.device("meta"):
        model = make().to(dtype)
    found: dict[str, tuple[list[str], Origin]] = {}
    for ours in model.state_dict():
        origin = find_origin(ours)
        names = [name for name in origin.names if name in tensors.files]
        if not names:
            raise LoadError(f"{tensors.path} lacks tensor {origin.names[0]!r}")
        found[ours] = names, origin
    used = {name for names, _ in found.values() for name in names}
    for name in sorted(tensors.files.keys() - used):
        if not re.fullmatch(left_out, name):
            raise LoadError(
                f"{tensors.files[name][0]} holds tensor {shown(name)}, which the model does not use"
            )
    for ours, target in model.state_dict().items():
        names, origin = found[ours]
        for name in names:
            _check_shape(tensors, name, origin, target.shape)
    model.to_empty(device="cpu")
    with torch.no_grad():
        targets = sorted(model.state_dict().items(), key=lambda item: found[item[0]][0])
        last, first = None, torch.empty(0)
        for ours, target in targets:  # those of one tensor follow each other
            names, origin = found[ours]
            if names != last:
                last, first = names, tensors.read(names[0], dtype)
                for name in names[1:]:
                    if not torch.equal(first, tensors.read(name, dtype)):
                        rule = "must be equal, but differ"
                        raise LoadError(f"{tensors.path}: {names[0]!r} and {name!r} {rule}")
            target.copy_(origin.convert(first))
    return model.eval()


def _check_shape(tensors: Tensors, name: str, origin: Origin, wanted: torch.Size) -> None:
    """Check that a tensor becomes a parameter of the wanted shape."""
    shape = tensors.shape(name)
    try:
        fits = origin.convert(torch.empty(shape, device="meta")).shape == wanted
    except (RuntimeError, IndexError):  # it has no such parts
        fits = False
    if not fits:
        raise tensors.error(name, f"must fit shape {tuple(wanted)} by config.json, got {shape}")


def rename(name: str, names: Mapping[str, str]) -> str:
    """Replace those parts of a dotted name that a table has; of two that overlap, the longer.

    Example:
        >>> from transformer_blocks.pretrained.weights import rename
        >>> rename("layers.2.norm.weight", {"layers": "h", "norm": "ln", "layers.2": "last"})
        'last.ln.weight'
    """
    known = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    return re.sub(rf"(?<![^.])({known})(?![^.])", lambda found: names[found[0]], name)


@contextmanager
def open_weights(folder: Path) -> Iterator[Tensors]:
    """Open the files of weights of a folder.

    Raises:
        LoadError: If there is none, or one cannot be read.
    """
    path, index = folder / WEIGHTS, folder / INDEX
    with ExitStack() as stack:
        if path.exists():
            yield Tensors(path, _open(path, stack))
        elif index.exists():
            yield Tensors(index, _open_shards(index, stack))
        elif (folder / PICKLE).exists():
            yield Tensors(folder / PICKLE, _read_pickle(folder / PICKLE))
        else:
            raise LoadError(f"{path} is missing, and so are {INDEX} and {PICKLE}")


def _open(path: Path, stack: ExitStack) -> dict[str, tuple[Path, Any]]:
    """Open a file, and return it with its path for the name of each of its tensors."""
    from safetensors import SafetensorError, safe_open  # only now: it is in the extra "pretrained"

    try:
        file = stack.enter_context(safe_open(path, framework="pt"))
    except (SafetensorError, OSError) as error:
        raise LoadError(
            f"{path} cannot be read as safetensors ({error}); download it again"
        ) from error
    return dict.fromkeys(file.keys(), (path, file))


def _read_pickle(path: Path) -> dict[str, tuple[Path, Any]]:
    """Read the tensors of a pickle, without calling any function that does not make tensors."""
    try:
        with warnings.catch_warnings(action="ignore"):  # old files hold deprecated storages
            # weights_only is the default, but an environment variable can change the default.
            content = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # damaged instructions fail in dozens of ways
        raise LoadError(f"{path} holds more than tensors, or is damaged: refused") from error
    table = content if isinstance(content, dict) else {None: None}
    if not all(isinstance(name, str) and _is_dense(each) for name, each in table.items()):
        raise LoadError(f"{path} must hold named, dense tensors, got {shown(content)}")
    return dict.fromkeys(content, (path, content))


def _is_dense(tensor: Any) -> bool:
    """Return whether an object is a tensor with a number for each element."""
    is_dense: bool = type(tensor) is Tensor and tensor.layout == torch.strided
    return is_dense and not tensor.is_meta


def _open_shards(index: Path, stack: ExitStack) -> dict[str, tuple[Path, Any]]:
    """Open the files that an index names, each of which must hold what it says, and nothing else.

    Raises:
        LoadError: If the index is damaged, a file is missing, or a tensor is in another file.
    """
    wanted: Any = read_json(index).get("weight_map")
    names = wanted.values() if isinstance(wanted, dict) else [None]
    for name in names:
        if not isinstance(name, str) or not re.fullmatch(r"[\w.-]+\.safetensors", name):
            raise LoadError(
                f"{index}: weight_map must name a safetensors file beside it for each tensor, "
                f"got {shown(name)}"
            )
    found: dict[str, tuple[Path, Any]] = {}
    for name in sorted(set(names)):
        for tensor, place in _open(index.parent / name, stack).items():
            if wanted.get(tensor) != name:
                raise LoadError(
                    f"{place[0]} holds tensor {shown(tensor)}, which is not there by {index.name}"
                )
            found[tensor] = place
    for tensor, name in wanted.items():
        if tensor not in found:
            raise LoadError(f"{index.parent / name} lacks tensor {shown(tensor)}")
    return found
