"""Loading: read a published model from its folder.

``config.json`` holds the sizes of the model, ``tokenizer.json`` its tokenizer. Both were made for
other code, so each value is checked when it is read, and a setting that is not implemented here is
refused.

Next: ``weights.py``, the weights of a model.
"""

import copy
import json
import os
import re
import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch.nn.functional as F
from tokenizers import Tokenizer
from torch import Tensor

from common.errors import UserError

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "gelu_pytorch_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "swish": F.silu,
}
"""Activation functions by their names in ``config.json``."""

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
        UserError: If there is no such folder and it cannot be downloaded, or if a file is a pointer
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
        raise UserError(f"{name} is neither a folder nor the name of a model, such as owner/model")
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise UserError(
            f"there is no folder {name}; to download a model of that name, install "
            'huggingface_hub: pip install -e ".[pretrained]"'
        ) from None
    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=list(files)))
    except Exception as error:  # network, hub and disk have dozens of classes of errors
        reason = str(error).strip().split("\n")[0] or type(error).__name__
        raise UserError(
            f"there is no folder {name}, and no model of that name could be downloaded: {reason}"
        ) from error


def check_content(path: Path) -> None:
    """Check that a path is a file, and neither a pointer of git-lfs nor a web page.

    Raises:
        UserError: If it is not.
    """
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
    """Format a value of a published file for an error message, shortened if long or nested."""
    return _SHOWN.repr(value)


_SHOWN = reprlib.Repr()
_SHOWN.maxstring = _SHOWN.maxother = _SHOWN.maxlong = 100


def read_json(path: Path, kind: type = dict) -> Any:
    """Read a JSON file that holds an object, or an array if ``kind`` is ``list``.

    Raises:
        UserError: If the file is missing or damaged, or holds something else.
    """
    try:
        content = json.loads(path.read_bytes())
        json.dumps(content, ensure_ascii=False).encode()  # a lone surrogate cannot be encoded
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except RecursionError as error:
        raise UserError(f"{path} is not JSON that can be read: too many nested levels") from error
    except UnicodeEncodeError as error:
        raise UserError(f"{path} holds a lone surrogate, which is no character") from error
    except ValueError as error:  # neither JSON nor UTF-8
        raise UserError(f"{path} is not JSON: {error}") from error
    if not isinstance(content, kind):
        noun = "array" if kind is list else "object"
        raise UserError(f"{path} must hold a JSON {noun}, got a {type(content).__name__}")
    return content


def check_vocabulary(vocabulary: object, where: Path) -> dict[str, int]:
    """Check a vocabulary, the id of each token, and return it.

    Args:
        vocabulary: The value that was read from a file.
        where: The file, which errors name.

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


def read_tokenizer(path: Path, kind: str, *, added_words: bool = False) -> Tokenizer:
    """Load a ``tokenizer.json`` with the library ``tokenizers``; nothing in it is executed.

    Truncation and padding are switched off. Special tokens within a text are text.

    Args:
        path: The file.
        kind: The tokenizer's model that the file must describe: "WordPiece", "BPE" or "Unigram".
        added_words: Whether the file may add tokens that are not special tokens, which are found in
            a text before it is split.

    Raises:
        UserError: If the file is missing or damaged, describes another model, or adds tokens that
            it may not add.
    """
    content = read_json(path)
    model = content.get("model")
    model = model if isinstance(model, dict) else {"type": model}
    found = model.get("type", "BPE" if "merges" in model else "WordPiece")  # older files name none
    expect(path, "model", found, kind)
    if kind != "Unigram":  # whose vocabulary is an array, which the library checks
        check_vocabulary(model.get("vocab"), path)
    added = content.get("added_tokens") or []
    for token in added if isinstance(added, list) else [added]:
        special = token.get("special") if isinstance(token, dict) else None
        if not (added_words and special is False):
            expect(path, f"special of the added token {shown(token)}", special, True)
    with reporting_panics(f"{path} cannot be read as a tokenizer"):
        tokenizer = Tokenizer.from_file(str(path))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        tokenizer.encode_special_tokens = True
        tokenizer.encode("ab c")
    return tokenizer


@contextmanager
def reporting_panics(what: str = "the tokenizer cannot read the text") -> Iterator[None]:
    """Turn errors of the library ``tokenizers`` into errors of one line.

    The library raises its errors without a class of their own. Where it panics, as at a regular
    expression that needs too many steps, it raises what is no ``Exception``, and prints lines to
    the standard error, which are dropped.

    Args:
        what: What failed; the error begins with it.

    Raises:
        UserError: If the block raises.
    """
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise UserError(f"{what} ({error})") from error
    finally:
        os.dup2(kept, 2)
        for descriptor in (kept, nowhere):
            os.close(descriptor)


def check_tokenizer_config(path: Path, **settings: bool) -> None:
    """Check that a ``tokenizer_config.json``, if it exists, does not contradict the tokenizer.

    Args:
        path: The file.
        settings: What the tokenizer does by its other files; null in the file means the same.

    Raises:
        UserError: If a setting of the file has another value.
    """
    found = read_json(path) if path.exists() else {}
    for name, wanted in settings.items():
        if found.get(name) not in (None, wanted):
            raise UserError(
                f"{path}: {name} must be {wanted} for this tokenizer, got {shown(found[name])}"
            )


def adds_space(tokenizer: Tokenizer) -> bool:
    """Return whether a byte-pair tokenizer puts a space before a text."""
    return "".join(tokenizer.encode("a", add_special_tokens=False).tokens) != "a"


def expect(path: Path | str, name: str, found: object, wanted: object) -> None:
    """Raise unless a setting of a published file has the value that is implemented here.

    Args:
        path: The file, which the error names.
        name: Name of the setting.
        found: Value of the setting.
        wanted: The value that is implemented.

    Raises:
        UserError: If the values differ.
    """
    if found != wanted:
        raise UserError(f"{path}: {name} must be {wanted!r} for this program, got {shown(found)}")


def expect_parts(
    path: Path, tokenizer: Tokenizer, parts: Mapping[str, Mapping[str, object]]
) -> dict[str, Any]:
    """Check that a ``tokenizer.json`` describes the steps that are implemented here.

    Args:
        path: The file, which errors name.
        tokenizer: The tokenizer that was read from it.
        parts: The settings of each part, and the values that are implemented.

    Returns:
        The content of the file.

    Raises:
        UserError: If a setting has another value.
    """
    content: dict[str, Any] = json.loads(tokenizer.to_str())
    for part, settings in parts.items():
        for name, wanted in settings.items():
            found = (content[part] or {}).get(name)
            found = "" if found is None and wanted == "" else found
            expect(path, part if name == "type" else name, found, wanted)
    return content


class Config:
    """The settings of a published model, each checked when it is read.

    Args:
        path: Path of a ``config.json``.
        kind: The ``model_type`` that the file must name; files of a model's modules name none.

    Raises:
        UserError: If the file cannot be read, names another ``model_type``, or describes quantised
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
            UserError: If one has another value.
        """
        for name, wanted in settings.items():
            expect(self.path, name, self.values.get(name, wanted), wanted)

    def expect_only(self, *known: str, **settings: object) -> None:
        """Raise as :meth:`expect` does, and also if the file has any other setting.

        Args:
            known: Names of the settings that may have any value.
            settings: The others, with the values that are implemented.

        Raises:
            UserError: If a setting has another value, or is unknown and neither false nor empty.
        """
        self.expect(**settings)
        for name, value in self.values.items():
            if name not in (*known, *settings) and value not in (None, False, {}, []):
                raise UserError(
                    f"{self.path}: {shown(name)} is not a known setting, got {shown(value)}"
                )

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
            UserError: If the value is missing without a default, or invalid.
        """
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise UserError(
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
            UserError: If the value is missing without a default, or invalid.
        """
        value: Any = self.values.get(name)
        value = default if value is None else value
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not (1e-30 <= value <= 1e30 or (zero and value == 0)):
            rule = "0 or a number" if zero else "a number"
            raise UserError(
                f"{self.path}: {name} must be {rule} from 1e-30 to 1e30, got {shown(value)}"
            )
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        """Read true or false.

        Args:
            name: Name of the setting.
            default: The value if the file has none.

        Raises:
            UserError: If the value is neither.
        """
        value = self.values.get(name, default)
        if not isinstance(value, bool):
            raise UserError(f"{self.path}: {name} must be true or false, got {shown(value)}")
        return value

    def nested(self, name: str) -> "Config":
        """Return the settings of an object within the file; their errors name it too.

        Raises:
            UserError: If the value is missing or no object.
        """
        values = self.values.get(name)
        if not isinstance(values, dict):
            raise UserError(f"{self.path}: {name} must be an object, got {shown(values)}")
        part = copy.copy(self)
        part.path, part.values = f"{self.path}: {name}", values
        return part

    def sizes(self, **names: str) -> dict[str, int]:
        """Read the sizes of a model; ``num_heads`` must divide ``d_model``.

        Args:
            names: Published name of each size, by ours.

        Raises:
            UserError: If one is missing or invalid.
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
            UserError: If the number is missing or does not divide ``d_model``.
        """
        heads = self.size(name)
        if d_model % heads:
            raise UserError(
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
            UserError: If the value is missing without a default, or is none of them.
        """
        value = self.values.get(name, default)
        if not isinstance(value, str) or value not in choices:
            raise UserError(
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
        UserError: If they are not token ids.
    """
    path = folder / "generation_config.json"
    generation = Config(path) if path.exists() else config
    config = config if generation.values.get("eos_token_id") is None else generation
    found = config.values.get("eos_token_id")
    ids = [] if found is None else found if isinstance(found, list) else [found]
    if not all(isinstance(each, int) and not isinstance(each, bool) and each >= 0 for each in ids):
        raise UserError(
            f"{config.path}: eos_token_id must be a token id or a list, got {shown(found)}"
        )
    return tuple(ids)
