"""Loading: from the folder that a model is published as to the parameters of a module.

The sizes stand in ``config.json``, the weights in ``model.safetensors``. Both were written by
somebody else for other code, so nothing is taken on trust: a setting that changes the computation
and is not known here is refused, and so is a file with a tensor too few, too many, of another
shape, or with NaN in it. Nothing is made before all of it is known to fit.

Weights come as safetensors only. The older ``pytorch_model.bin`` is a pickle, and a pickle is a
program that runs when it is opened.

Next: ``bert.py``, an encoder.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from translation.errors import UserError

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "swish": F.silu,
}
"""What the bends are called in a config.json."""

WEIGHTS = "model.safetensors"
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
Model = TypeVar("Model", bound=nn.Module)


def find_folder(name: str, files: Sequence[str], *, revision: str | None = None) -> Path:
    """Find a model: a folder of this machine, or a name on the Hugging Face hub, which is fetched.

    Args:
        name: A path, or "owner/model".
        files: Names of the files that are wanted, some of which may not exist.
        revision: The branch, tag or commit on the hub; the main branch if not given.

    Returns:
        The folder.

    Raises:
        UserError: If there is no such folder and it cannot be fetched.
    """
    if Path(name).is_dir():
        return Path(name)
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or name.startswith(".") or Path(name).exists():
        raise UserError(f"{name} is neither a folder nor the name of a model, such as owner/model")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise UserError(
            f"there is no folder {name}; to fetch a model of that name, install huggingface_hub: "
            'pip install -e ".[pretrained]"'
        ) from None
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))
    except Exception as error:  # of the network, of the hub, of the disk: there are dozens
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise UserError(
            f"there is no folder {name}, and no model of that name could be fetched: {reason}"
        ) from error


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object.

    Raises:
        UserError: If the file is missing, or holds something else.
    """
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # neither JSON nor UTF-8
        raise UserError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} must hold a JSON object, got a {type(content).__name__}")
    return content


class Config:
    """The settings of a published model; to read one is to check it.

    Args:
        path: A ``config.json``.
        kind: The ``model_type`` that it must name.

    Raises:
        UserError: If the file cannot be read, or is of another kind of model.
    """

    def __init__(self, path: Path, kind: str) -> None:
        self.path = path
        self.values = read_json(path)
        self.expect(model_type=kind)

    def expect(self, **settings: object) -> None:
        """Raise unless every setting that is there has the value that this program implements.

        Raises:
            UserError: If one has another.
        """
        for name, wanted in settings.items():
            if (found := self.values.get(name, wanted)) != wanted:
                raise UserError(
                    f"{self.path}: {name} must be {wanted!r} for this program, got {found!r}"
                )

    def size(self, name: str, default: int | None = None, *, least: int = 1) -> int:
        """Read a whole number of at least ``least``."""
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise UserError(
                f"{self.path}: {name} must be a whole number from {least} up, got {value!r}"
            )
        return value

    def number(self, name: str, default: float, *, zero: bool = False) -> float:
        """Read a number above 0; or 0 itself, if ``zero`` allows that."""
        value = self.values.get(name)
        value = default if value is None else value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value < 1e9 or (value == 0 and not zero):
            rule = "a number from 0 up" if zero else "a number above 0"
            raise UserError(f"{self.path}: {name} must be {rule}, got {value!r}")
        return float(value)

    def heads(self, name: str, width: int) -> int:
        """Read a number of heads, which must divide the width."""
        heads = self.size(name)
        if width % heads:
            raise UserError(f"{self.path}: {name} must divide the width {width}, got {heads}")
        return heads

    def activation(self, name: str) -> Callable[[Tensor], Tensor]:
        """Read the name of a bend."""
        value = self.values.get(name)
        if not isinstance(value, str) or value not in ACTIVATIONS:
            raise UserError(
                f"{self.path}: {name} must be one of {', '.join(ACTIVATIONS)}, got {value!r}"
            )
        return ACTIVATIONS[value]


@dataclass(frozen=True)
class Origin:
    """Where a parameter comes from.

    Attributes:
        names: Of the tensor in the file. A tensor that was tied may be there under several names,
            of which one will do; if there are more, they must agree.
        transposed: Whether its rows are our columns.
        part: Which part of it to take, from 0, ...
        parts: ... of how many; a part is a stretch of our rows.
    """

    names: tuple[str, ...]
    transposed: bool = False
    part: int = 0
    parts: int = 1

    def shape(self, ours: torch.Size) -> tuple[int, ...]:
        """Tell the shape in the file of what has our shape here."""
        shape = (ours[0] * self.parts, *ours[1:])
        return shape[::-1] if self.transposed else shape

    def read(self, tensor: Tensor) -> Tensor:
        """Make our parameter of the file's tensor."""
        tensor = tensor.t() if self.transposed else tensor
        return tensor.chunk(self.parts)[self.part]


def load_model(
    make: Callable[[], Model],
    path: Path,
    origins: Mapping[str, Origin],
    *,
    left_out: str,
    dtype: torch.dtype,
) -> Model:
    """Make a model and give it the weights of a file, once they are known to fit.

    Args:
        make: Makes the model. It is called twice: first on torch's device "meta", where tensors
            have a shape and take no memory, to see what is wanted.
        path: A safetensors file.
        origins: Where each parameter comes from.
        left_out: A regular expression: the tensors of the file that the model can do without.
        dtype: What to compute in.

    Returns:
        The model, in eval mode.

    Raises:
        UserError: If the file cannot be read, or a tensor in it is missing, unknown, of another
            shape, or NaN or infinite.
    """
    with torch.device("meta"):
        wanted = make().state_dict()
    tensors = _read_tensors(path)
    known = {name for ours in wanted for name in origins[ours].names}
    for name in tensors:
        if name not in known and not re.fullmatch(left_out, name):
            raise UserError(f"{path} holds tensor {name!r}, for which the model has no use")
    weights = {}
    for ours, target in wanted.items():
        origin = origins[ours]
        found = {name: tensors[name] for name in origin.names if name in tensors}
        if not found:
            raise UserError(f"{path} lacks tensor {origin.names[0]!r}")
        for name, tensor in found.items():
            shape = origin.shape(target.shape)
            if tensor.shape != shape or tensor.dtype not in FLOATS:
                raise UserError(
                    f"{path}: tensor {name!r} must hold numbers of shape {shape} by config.json, "
                    f"got {tensor.dtype} of shape {tuple(tensor.shape)}"
                )
            found[name] = tensor.to(dtype)
            if not found[name].isfinite().all():
                raise UserError(f"{path}: tensor {name!r} holds NaN or infinity")
        first, *others = found
        for name in others:
            if not torch.equal(found[first], found[name]):
                raise UserError(f"{path}: {first!r} and {name!r} must be equal, but differ")
        weights[ours] = origin.read(found[first])
    model = make().to(dtype)
    model.load_state_dict(weights)
    return model.eval()


def _read_tensors(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        there = {other.name for other in path.parent.glob("*")}
        if "pytorch_model.bin" in there:
            raise UserError(
                f"{path} is missing; pytorch_model.bin, which is there, is a pickle that could run "
                "code when opened, and is never read: look for a revision with safetensors"
            )
        if f"{path.name}.index.json" in there:
            raise UserError(f"{path} is missing; weights in several files are not supported")
        raise UserError(
            f"{path} is missing; on the hub, some models have a revision with safetensors, which "
            "--revision names"
        )
    try:
        tensors: dict[str, Tensor] = load_file(path)
    except (SafetensorError, OSError, ValueError, KeyError) as error:
        raise UserError(
            f"{path} cannot be read as safetensors ({error}); download it again"
        ) from error
    return tensors
