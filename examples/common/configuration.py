"""Configurations: the settings of a run in ``config.json``, in which every change is detected.

Every field has a type and a range, which are checked when a configuration is made and when it is
read. The file holds the SHA-256 of its own content. And every checkpoint holds the configuration
that it was trained with, the hashes of data and tokenizers included: the weights of another run are
detected even if all their sizes are equal.
"""

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, get_args, get_origin, get_type_hints

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from common.errors import UserError
from common.options import RULES, describe_rule

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

FIELDS = {
    **dict.fromkeys(("num_layers", "accumulate"), "from 1 to 1000"),
    **dict.fromkeys(("d_model", "num_heads", "max_length", "context"), "from 1 to 100000"),
    **dict.fromkeys(("d_ff", "vocabulary", "batch_size"), "from 1 to 1000000"),
    **dict.fromkeys(("dropout", "label_smoothing", "average"), "in [0, 1)"),
    **dict.fromkeys(("peak_rate", "warmup_steps", "batch_tokens", "report_steps"), "above 0"),
    **dict.fromkeys(("epochs", "steps", "minutes", "patience", "format_version"), "above 0"),
    "seed": "at least 0",
}
"""The range of each number in a configuration, by the name of its field."""

Dataclass = TypeVar("Dataclass", bound="DataclassInstance")
Model = TypeVar("Model", bound=nn.Module)


def check_fields(kind: type, content: Mapping[str, object]) -> None:
    """Check the type of each field of a dataclass, and the range of each number in :data:`FIELDS`.

    Args:
        kind: The dataclass.
        content: The values of its fields, by name.

    Raises:
        KeyError: If a field is missing.
        TypeError: If a value is of another type.
        ValueError: If a number is out of its range.
    """
    hints = get_type_hints(kind)
    for name in [field.name for field in fields(kind)]:
        value, hint = content[name], hints[name]
        allowed = get_origin(hint) if get_origin(hint) in (dict, list) else hint
        is_int_for_float = isinstance(value, int) and isinstance(1.0, allowed)
        is_bool_for_number = isinstance(value, bool) and hint is not bool
        if is_bool_for_number or not (isinstance(value, allowed) or is_int_for_float):
            raise TypeError(f"{name} must be {_name(hint)}, got {short(value)}")
        if isinstance(value, int | float) and hint is not bool:
            rule = FIELDS[name]
            if not RULES[rule](value):
                limit = describe_rule(rule, value)
                raise ValueError(f"{name} must be {limit}, got {short(value)}")
        parts = [*value, *value.values()] if isinstance(value, dict) else value
        for part in parts if isinstance(parts, list) else []:
            is_number = float in get_args(hint) and type(part) in (int, float)
            if not isinstance(part, str) and not is_number:
                raise TypeError(f"{name} must be {_name(hint)}, got {short(value)}")


def checked(config: Dataclass) -> Dataclass:
    """Check the fields of a configuration that was made from a command line, and return it.

    Raises:
        UserError: If one is out of range.
    """
    try:
        check_fields(type(config), vars(config))
    except (TypeError, ValueError) as error:
        raise UserError(str(error)) from error
    return config


def load_json(text: str) -> Any:
    """Parse JSON.

    Raises:
        ValueError: If it is not JSON, holds NaN or infinity, or is nested too deeply.
    """
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def is_row(row: object, figures: AbstractSet[str]) -> bool:
    """Return whether a row of ``metrics.jsonl`` has these metrics, each a number.

    Example:
        >>> is_row({"step": 3}, {"step"}), is_row({"step": "3"}, {"step"})
        (True, False)
    """
    return isinstance(row, dict) and all(type(row.get(name)) in (int, float) for name in figures)


def difference(now: Mapping[str, Any], then: Mapping[str, Any]) -> str:
    """Describe the first field in which two configurations differ, with both values.

    Example:
        >>> difference({"seed": 0, "settings": {"d_ff": 8}}, {"seed": 0, "settings": {"d_ff": 4}})
        'd_ff is 8 instead of 4'
    """
    for name in [*now, *then]:
        here, there = now.get(name), then.get(name)
        if here != there:
            if isinstance(here, Mapping) and isinstance(there, Mapping):
                return difference(here, there)
            return f"{name} is {short(here)} instead of {short(there)}"
    return ""


def build_model(build: Callable[[], Model]) -> Model:
    """Build the model that a configuration describes, with fresh weights.

    It is first built on torch's meta device, without memory, to count the bytes of its weights.

    Raises:
        UserError: If its sizes do not go together, or the weights do not fit into the memory.
    """
    try:
        with torch.device("meta"), _NoRandomNumbers():
            outline = build()
        size = sum(tensor.nbytes for tensor in (*outline.parameters(), *outline.buffers()))
        if size > _memory():
            raise ValueError(f"its weights take {size / 2**30:,.0f} GiB, more than the memory")
        return build()
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"these settings do not make a valid model: {error}") from error


class _NoRandomNumbers(TorchFunctionMode):
    """Skip the initialisation of weights, which takes torch 2 s even on the meta device."""

    def __torch_function__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        if getattr(function, "__name__", "") in ("normal_", "uniform_", "kaiming_uniform_"):
            return args[0] if args else kwargs["tensor"]
        return function(*args, **(kwargs or {}))


def _memory() -> float:
    try:
        return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    except (AttributeError, OSError, ValueError):  # as on Windows
        return float("inf")


def content_hash(content: Mapping[str, object]) -> str:
    """Compute the SHA-256 of a configuration, which its file holds."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _name(hint: Any) -> str:
    return hint.__name__ if isinstance(hint, type) and not get_origin(hint) else str(hint)


def short(value: object) -> str:
    """Return a value as an error message shows it: at most 100 characters."""
    text = str(value) if isinstance(value, int | float) else repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
