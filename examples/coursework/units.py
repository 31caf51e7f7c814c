"""Units: the twelve units of the course, in their order."""

import importlib

from coursework.grader import Unit

NAMES = (
    *("tokens", "embedding", "positions", "masks", "attention", "heads"),
    *("feed_forward", "layers", "loss", "optimizer", "search", "bleu"),
)
UNITS: dict[str, Unit] = {
    name: importlib.import_module(f"coursework.{name}").UNIT for name in NAMES
}
"""The units by the names of the reader's files."""
