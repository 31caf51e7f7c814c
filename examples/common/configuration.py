"""Configurations: the settings of a run in ``config.json``, in which every change is detected.

The file holds the SHA-256 of its own content. And every checkpoint holds the configuration that it
was trained with, the hashes of data and tokenizers included: the weights of another run are
detected even if all their sizes are equal.
"""

import hashlib
import json
from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from typing import Any, NoReturn

from common.errors import UserError


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


@contextmanager
def model_errors() -> Iterator[None]:
    """Turn the errors of building a model into one that names its settings as the reason.

    Raises:
        UserError: If the sizes do not go together, or the weights do not fit into the memory.
    """
    try:
        yield
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise UserError(f"these settings do not make a valid model: {error}") from error


def content_hash(content: Mapping[str, object]) -> str:
    """Compute the SHA-256 of a configuration, which its file holds."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def short(value: object) -> str:
    """Return a value as an error message shows it: at most 100 characters."""
    text = str(value) if isinstance(value, int | float) else repr(value)
    return text if len(text) <= 100 else f"{text[:97]}..."


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
