"""Loading: read a published model from its folder.

``config.json`` holds the sizes of the model, ``tokenizer.json`` its tokenizer. Both were made for
other code, so each value is checked when it is read, and a setting that is not implemented here is
refused.

Next: ``weights.py``, the weights of a model.
"""

import copy
import json
import re
import reprlib
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch.nn.functional as F
from torch import Tensor

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "swish": F.silu,
}
"""Activation functions by their names in ``config.json``."""


class LoadError(ValueError):
    """A file of a published model is missing, damaged, or describes what is not implemented."""


Choice = TypeVar("Choice")
LARGEST, MOST_LAYERS = 2**28, 2**10
"""Upper limits of every size and of a number of layers: beyond any published model. Products of two
sizes still fit in torch, and so many layers can be built before the weights are read."""


def find_folder(name: str, files: Sequence[str], *, revision: str | None = None) -> Path:
    """Return a model's folder, which is downloaded if the name is one of the Hugging Face hub.

    Args:
        name: Path of a folder, or "owner/model" on the hub.
        files: Patterns of the names of the files to download; some may not exist.
        revision: Branch, tag or commit on the hub; the main branch if ``None``.

    Returns:
        The folder.

    Raises:
        LoadError: If there is no such folder and it cannot be downloaded, or if a file is a pointer
            of git-lfs or a web page.
    """
    folder = Path(name) if Path(name).is_dir() else _download(name, files, revision)
    for pattern in files:
        for path in (folder / pattern, *folder.glob(pattern)):
            if path.exists() or path.is_symlink():  # to a file that may be missing
                check_content(path)
    return folder


def _download(name: str, files: Sequence[str], revision: str | None) -> Path:
    if not re.fullmatch(r"[\w.-]+(/[\w.-]+)?", name) or name.startswith(".") or Path(name).exists():
        raise LoadError(f"{name} is neither a folder nor the name of a model, such as owner/model")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise LoadError(
            f"there is no folder {name}; to download a model of that name, install "
            'huggingface_hub: pip install -e ".[pretrained]"'
        ) from None
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))
    except Exception as error:  # network, hub and disk have dozens of classes of errors
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise LoadError(
            f"there is no folder {name}, and no model of that name could be downloaded: {reason}"
        ) from error


def check_content(path: Path) -> None:
    """Check that a path is a file, and neither a pointer of git-lfs nor a web page.

    Raises:
        LoadError: If it is not.
    """
    if not path.is_file():
        raise LoadError(f"{path} is not a file")
    try:
        with path.open("rb") as file:
            beginning = file.read(64).lstrip().lower()
    except OSError as error:
        raise LoadError(f"cannot read {path}: {error.strerror}") from error
    if beginning.startswith(b"version https://git-lfs"):
        raise LoadError(f"{path} is a pointer of git-lfs, not the file: run git lfs pull")
    if beginning.startswith((b"<!doctype html", b"<html")):
        raise LoadError(f"{path} is a web page, not the file: download it again")


def shown(value: object) -> str:
    """Format a value of a published file for an error message, shortened if long or nested."""
    return _SHOWN.repr(value)


_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 100


def read_json(path: Path, kind: type = dict) -> Any:
    """Read a JSON file that holds an object, or an array if ``kind`` is ``list``.

    Raises:
        LoadError: If the file is missing or damaged, or holds something else.
    """
    try:
        content = json.loads(path.read_bytes())
        json.dumps(content, ensure_ascii=False).encode()  # a lone surrogate cannot be encoded
    except OSError as error:
        raise LoadError(f"cannot read {path}: {error.strerror}") from error
    except RecursionError as error:
        raise LoadError(f"{path} is not JSON that can be read: too many nested levels") from error
    except UnicodeEncodeError as error:
        raise LoadError(f"{path} holds a lone surrogate, which is no character") from error
    except ValueError as error:  # neither JSON nor UTF-8
        raise LoadError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, kind):
        noun = "array" if kind is list else "object"
        raise LoadError(f"{path} must hold a JSON {noun}, got a {type(content).__name__}")
    return content


def expect(path: Path | str, name: str, found: object, wanted: object) -> None:
    """Raise unless a setting of a published file has the value that is implemented here.

    Args:
        path: The file, which the error names.
        name: Name of the setting.
        found: Value of the setting.
        wanted: The value that is implemented.

    Raises:
        LoadError: If the values differ.
    """
    if found != wanted:
        raise LoadError(f"{path}: {name} must be {wanted!r} for this program, got {shown(found)}")


class Config:
    """The settings of a published model, each checked when it is read.

    Args:
        path: Path of a ``config.json``.
        kind: The ``model_type`` that the file must name; files of a model's modules name none.

    Raises:
        LoadError: If the file cannot be read, names another ``model_type``, or describes quantised
            weights or layers with settings of their own.
    """

    def __init__(self, path: Path, kind: str | None = None) -> None:
        self.path: Path | str = path
        self.values = read_json(path)
        if kind is not None:
            self.expect(model_type=kind, quantization_config=None, per_layer_config=None)

    def expect(self, **settings: object) -> None:
        """Raise unless each of these settings is absent or has the given value.

        Raises:
            LoadError: If one has another value.
        """
        for name, wanted in settings.items():
            expect(self.path, name, self.values.get(name, wanted), wanted)

    def size(
        self, name: str, default: int | None = None, *, least: int = 1, most: int = LARGEST
    ) -> int:
        """Read a whole number from ``least`` to ``most``.

        Args:
            name: Name of the setting.
            default: The value if the file has none.
            least: Smallest valid value.
            most: Largest valid value.

        Raises:
            LoadError: If the value is missing without a default, or invalid.
        """
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise LoadError(
                f"{self.path}: {name} must be a whole number from {least} to {most}, "
                f"got {shown(value)}"
            )
        return value

    def number(self, name: str, default: float | None = None, *, zero: bool = False) -> float:
        """Read a number from 1e-30 to 1e30, which float32 can represent.

        Args:
            name: Name of the setting.
            default: The value if the file has none.
            zero: Whether 0 is valid, too.

        Raises:
            LoadError: If the value is missing without a default, or invalid.
        """
        value: Any = self.values.get(name)
        value = default if value is None else value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not (1e-30 <= value <= 1e30 or (zero and value == 0)):
            rule = "0 or a number" if zero else "a number"
            raise LoadError(
                f"{self.path}: {name} must be {rule} from 1e-30 to 1e30, got {shown(value)}"
            )
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Read true or false.

        Args:
            name: Name of the setting.
            default: The value if the file has none.

        Raises:
            LoadError: If the value is neither.
        """
        value = self.values.get(name, default)
        if not isinstance(value, bool):
            raise LoadError(f"{self.path}: {name} must be true or false, got {shown(value)}")
        return value

    def nested(self, name: str) -> "Config":
        """Return the settings of an object within the file; their errors name it too.

        Raises:
            LoadError: If the value is missing or no object.
        """
        values = self.values.get(name)
        if not isinstance(values, dict):
            raise LoadError(f"{self.path}: {name} must be an object, got {shown(values)}")
        part = copy.copy(self)
        part.path, part.values = f"{self.path}: {name}", values
        return part

    def sizes(self, **names: str) -> dict[str, int]:
        """Read the sizes of a model; ``num_heads`` must divide ``d_model``.

        Args:
            names: Published name of each size, by ours.

        Raises:
            LoadError: If one is missing or invalid.
        """
        sizes = {
            ours: self.size(name, most=MOST_LAYERS if ours == "num_layers" else LARGEST)
            for ours, name in names.items()
        }
        if "num_heads" in names:
            self.check_heads(names["num_heads"], sizes["d_model"])
        return sizes

    def check_heads(self, name: str, d_model: int) -> None:
        """Check that a number of attention heads divides the hidden size.

        Raises:
            LoadError: If the number is missing or does not divide ``d_model``.
        """
        heads = self.size(name)
        if d_model % heads:
            raise LoadError(
                f"{self.path}: {name} must divide the hidden size {d_model}, got {heads}"
            )

    def choice(
        self, name: str, choices: Mapping[str, Choice], default: str | None = None
    ) -> Choice:
        """Return what belongs to the name that a setting has as its value.

        Args:
            name: Name of the setting.
            choices: What belongs to each value that is implemented.
            default: The value if the file has none.

        Raises:
            LoadError: If the value is missing without a default, or is none of them.
        """
        value = self.values.get(name, default)
        if not isinstance(value, str) or value not in choices:
            raise LoadError(
                f"{self.path}: {name} must be one of {', '.join(choices)} for this program, "
                f"got {shown(value)}"
            )
        return choices[value]


def read_end_ids(folder: Path, config: Config) -> tuple[int, ...]:
    """Read the ids of the tokens that end a text, from ``generation_config.json`` if it has any.

    Args:
        folder: The model's folder.
        config: Its ``config.json``.

    Raises:
        LoadError: If they are not token ids.
    """
    path = folder / "generation_config.json"
    generation = Config(path) if path.exists() else config
    config = config if generation.values.get("eos_token_id") is None else generation
    found = config.values.get("eos_token_id")
    ids = [] if found is None else found if isinstance(found, list) else [found]
    if not all(isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in ids):
        raise LoadError(
            f"{config.path}: eos_token_id must be a token id or a list, got {shown(found)}"
        )
    return tuple(ids)
