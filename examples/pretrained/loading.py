"""Loading: from the folder that a model is published as to the parameters of a module.

The sizes stand in ``config.json``, the weights in ``model.safetensors``. Both were written by
somebody else for other code, so nothing is taken on trust: a setting that changes the computation
and is not known here is refused, and so is a file with a tensor too few, too many, of another
shape, or with NaN in it. Nothing is made before all of it is known to fit.

Weights come as safetensors only. The older ``pytorch_model.bin`` is a pickle, and a pickle is a
program that runs when it is opened; ``convert.py`` turns one into safetensors without running it.

Next: ``bert_model.py``, an encoder.
"""

import json
import re
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.nn.functional as F
from safetensors import SafetensorError, safe_open
from tokenizers import Tokenizer
from torch import Tensor, nn

from common.errors import UserError

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
PICKLE = "pytorch_model.bin"
LARGEST = 2**28
"""No size of a published model is larger, and the product of two is still a size to torch."""

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
        UserError: If there is no such folder and it cannot be fetched, or if something else stands
            in place of a file.
    """
    folder = Path(name) if Path(name).is_dir() else _fetch(name, files, revision)
    for pattern in files:
        for path in folder.glob(pattern):
            _check_substitute(path)
    return folder


def _fetch(name: str, files: Sequence[str], revision: str | None) -> Path:
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


def _check_substitute(path: Path) -> None:
    """Raise if something else stands in place of a file: a folder, or what git or a server gave."""
    if not path.is_file():
        raise UserError(f"{path} is not a file")
    try:
        with path.open("rb") as file:
            beginning = file.read(64).lstrip().lower()
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    if beginning.startswith(b"version https://git-lfs"):
        raise UserError(f"{path} is a pointer of git-lfs, not the file: run git lfs pull")
    if beginning.startswith((b"<!doctype html", b"<html")):
        raise UserError(f"{path} is a web page, not the file: download it again")


def shown(value: object) -> str:
    """Write a value that stands in a published file into an error, however long or deep it is."""
    return _SHOWN.repr(value)


_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 100


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds an object.

    Raises:
        UserError: If the file is missing, or holds something else.
    """
    content = _parse(path)
    if not isinstance(content, dict):
        raise UserError(f"{path} must hold a JSON object, got a {type(content).__name__}")
    return content


def read_json_list(path: Path) -> list[Any]:
    """Read a JSON file that holds an array.

    Raises:
        UserError: If the file is missing, or holds something else.
    """
    content = _parse(path)
    if not isinstance(content, list):
        raise UserError(f"{path} must hold a JSON array, got a {type(content).__name__}")
    return content


def _parse(path: Path) -> object:
    try:
        content = json.loads(path.read_bytes())
        json.dumps(content, ensure_ascii=False).encode()  # a lone surrogate is no text
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except RecursionError as error:
        raise UserError(f"{path} is not JSON that can be read: too many nested levels") from error
    except UnicodeEncodeError as error:
        raise UserError(f"{path} holds a lone surrogate, which is no character") from error
    except ValueError as error:  # neither JSON nor UTF-8
        raise UserError(f"{path} is not JSON: {error}") from error
    return content


def check_vocabulary(vocabulary: object, where: Path) -> dict[str, int]:
    """Return a vocabulary, the id of each piece, once it is known to be one.

    Raises:
        UserError: If it is no object, or an id is no whole number from 0 to :data:`LARGEST`.
    """
    if not isinstance(vocabulary, dict):
        raise UserError(f"{where} must hold an object as vocabulary, got {shown(vocabulary)}")
    for token, number in vocabulary.items():
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= LARGEST:
            raise UserError(
                f"{where}: the id of {shown(token)} must be a whole number from 0 to {LARGEST}, "
                f"got {shown(number)}"
            )
    return vocabulary


def read_tokenizer(path: Path, kind: str) -> Tokenizer:
    """Open a ``tokenizer.json`` with the library ``tokenizers``; nothing in it is executed.

    Truncation and padding are switched off, and special tokens within a text are text.

    Args:
        path: The file.
        kind: The model of tokens that it must describe, "WordPiece" or "BPE".

    Raises:
        UserError: If the file is missing or damaged, describes another model, or adds tokens that
            are not special.
    """
    content = read_json(path)
    model = content.get("model")
    model = model if isinstance(model, dict) else {"type": model}
    found = model.get("type", "BPE" if "merges" in model else "WordPiece")  # older ones name none
    expect(path, "model", found, kind)
    check_vocabulary(model.get("vocab"), path)
    added = content.get("added_tokens") or []
    for token in added if isinstance(added, list) else [added]:
        # A special token within a text is text to these programs; another would be split off.
        special = token.get("special") if isinstance(token, dict) else None
        expect(path, f"special of the added token {shown(token)}", special, True)
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the library has no class of its own for its errors
        raise UserError(f"{path} cannot be read as a tokenizer ({error})") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.encode_special_tokens = True
    return tokenizer


def expect(path: Path, name: str, found: object, wanted: object) -> None:
    """Raise unless a setting of a published file has the value that is implemented here.

    Raises:
        UserError: If it has another.
    """
    if found != wanted:
        raise UserError(f"{path}: {name} must be {wanted!r} for this program, got {shown(found)}")


def class_name(part: object) -> str | None:
    """Return the name of the class of a tokenizer's part, or ``None`` if there is no such part."""
    return None if part is None else type(part).__name__


class Config:
    """The settings of a published model; to read one is to check it.

    Args:
        path: A ``config.json``.
        kind: The ``model_type`` that it must name; files of a part of a model name none.

    Raises:
        UserError: If the file cannot be read, or is of another kind of model.
    """

    def __init__(self, path: Path, kind: str | None = None) -> None:
        self.path = path
        self.values = read_json(path)
        if kind is not None:
            self.expect(model_type=kind)

    def expect(self, **settings: object) -> None:
        """Raise unless every setting that is there has the value that this program implements.

        Raises:
            UserError: If one has another.
        """
        for name, wanted in settings.items():
            expect(self.path, name, self.values.get(name, wanted), wanted)

    def expect_only(self, **settings: object) -> None:
        """Raise as :meth:`expect` does, and also if a setting is there that is not among these.

        Raises:
            UserError: If one has another value, or is not known and not empty.
        """
        self.expect(**settings)
        for name, value in self.values.items():
            if name not in settings and value not in (None, False, {}, []):
                raise UserError(f"{self.path}: {shown(name)} is not known here: {shown(value)}")

    def size(
        self, name: str, default: int | None = None, *, least: int = 1, most: int = LARGEST
    ) -> int:
        """Read a whole number from ``least`` to ``most``."""
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise UserError(
                f"{self.path}: {name} must be a whole number from {least} to {most}, "
                f"got {shown(value)}"
            )
        return value

    def number(self, name: str, default: float, *, zero: bool = False) -> float:
        """Read a number above 0; or 0 itself, if ``zero`` allows that."""
        value = self.values.get(name)
        value = default if value is None else value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not 0 <= value < 1e9 or (value == 0 and not zero):
            rule = "a number from 0 up" if zero else "a number above 0"
            raise UserError(f"{self.path}: {name} must be {rule}, got {shown(value)}")
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
                f"{self.path}: {name} must be one of {', '.join(ACTIVATIONS)}, got {shown(value)}"
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
    origins: Iterable[tuple[str, Origin]],
    *,
    left_out: str,
    dtype: torch.dtype,
) -> Model:
    """Make a model and give it the weights of a file, once they are known to fit.

    First the names are compared, so that a ``config.json`` that asks for more layers than the file
    holds costs nothing; then the shapes; then the tensors are read.

    Args:
        make: Makes the model. It is called twice: first on torch's device "meta", where tensors
            have a shape and take no memory, to see what is wanted.
        path: A safetensors file.
        origins: The name of each parameter, and where it comes from.
        left_out: A regular expression: the tensors of the file that the model can do without.
        dtype: What to compute in.

    Returns:
        The model, in eval mode.

    Raises:
        UserError: If the file cannot be read, or a tensor in it is missing, unknown, of another
            shape, or NaN or infinite.
    """
    with _open_weights(path) as file:
        unused = set(file.keys())
        found: dict[str, tuple[Origin, list[str]]] = {}
        there = frozenset(unused)
        for ours, origin in origins:
            names = [name for name in origin.names if name in there]
            if not names:
                raise UserError(f"{path} lacks tensor {origin.names[0]!r}")
            unused.difference_update(names)
            found[ours] = origin, names
        for name in sorted(unused):
            if not re.fullmatch(left_out, name):
                raise UserError(
                    f"{path} holds tensor {shown(name)}, for which the model has no use"
                )
        with torch.device("meta"):
            wanted = make().state_dict()
        for ours, target in wanted.items():
            origin, names = found[ours]
            for name in names:
                _check_shape(path, name, file.get_slice(name).get_shape(), origin, target)
        weights = {}
        for ours in wanted:
            origin, names = found[ours]
            first, *others = [_read_tensor(file, path, name).to(dtype) for name in names]
            if not first.isfinite().all():
                raise UserError(f"{path}: tensor {names[0]!r} holds NaN or infinity")
            for name, other in zip(names[1:], others, strict=True):
                if not torch.equal(first, other):
                    raise UserError(f"{path}: {names[0]!r} and {name!r} must be equal, but differ")
            weights[ours] = origin.read(first)
    model = make().to(dtype)
    model.load_state_dict(weights)
    return model.eval()


def _check_shape(path: Path, name: str, found: list[int], origin: Origin, target: Tensor) -> None:
    wanted = origin.shape(target.shape)
    if tuple(found) != wanted:
        raise UserError(
            f"{path}: tensor {name!r} must have shape {wanted} by config.json, got {tuple(found)}"
        )


def _read_tensor(file: Any, path: Path, name: str) -> Tensor:
    tensor: Tensor = file.get_tensor(name)
    if tensor.dtype not in FLOATS:
        raise UserError(f"{path}: tensor {name!r} must hold numbers, got {tensor.dtype}")
    return tensor


@contextmanager
def _open_weights(path: Path) -> Iterator[Any]:
    """Open a safetensors file; its errors are told in one line."""
    if not path.is_file():
        there = {other.name for other in path.parent.glob("*")}
        if f"{path.name}.index.json" in there:
            raise UserError(f"{path} is missing; weights in several files are not supported")
        reason = "on the hub, some models have a revision with safetensors, which --revision names"
        if PICKLE in there:
            reason = f"{PICKLE}, which is there, is a pickle that could run code when opened"
        raise UserError(
            f"{path} is missing; {reason}; examples/pretrained/convert.py writes one from {PICKLE} "
            "without running anything in it"
        )
    _check_substitute(path)
    try:
        with safe_open(path, framework="pt") as file:
            yield file
    except (SafetensorError, OSError) as error:
        raise UserError(
            f"{path} cannot be read as safetensors ({error}); download it again"
        ) from error
