"""Exhibit: a published fault, what shows it, and its code and reports as text.

Each file of this package but those of ``NOT_EXHIBITS`` is an exhibit, which is found without any
list. Its docstring has the title, the story, and at its end three fields: the theme, the source,
which is the address of the public thread, and the title of the report that has to find the fault.
Its code is the smallest model that has the fault, the same model with the fault mended, and
``examine``, which runs the check as a user would:

- ``Broken`` and ``Mended`` are classes that are made without arguments, or ``broken`` and
  ``mended`` are functions that are themselves examined, such as a loss.
- ``Mended`` inherits from ``Broken`` and overrides the faulty methods; the names of other classes
  that are mended have "Broken" and "Mended" in them. So the difference can be shown.
- The faulty line follows a comment that begins with ``# the fault:``.

Several exhibits share what is not their point: the projections and embeddings of a small model, the
toy batches (``models``), a cache, a beam search (``decoding``), and the sum of a loss (``losses``).
"""

import difflib
import functools
import importlib
import inspect
import pkgutil
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

import torch

from transformer_blocks.inspection import Difference, Report, Soundness

PACKAGE = __name__.rpartition(".")[0]
NOT_EXHIBITS = {"exhibit", "models", "losses", "decoding"}
THEMES = (
    *("masks", "padding", "layout and modes", "positions", "heads"),
    *("weights", "loss", "caches", "decoding"),
)
"""The themes, in the order in which the museum shows them."""
FAULT = re.compile(r"#\s*the fault\b", re.IGNORECASE)
FIELD = re.compile(r"^:([a-z ]+): (.+)$", re.MULTILINE)

Result = TypeVar("Result")
Found = Soundness | Report | Difference
"""What a check returns: a table of reports, one report, or where two models differ."""


@dataclass(frozen=True)
class Exhibit:
    """A published fault, with a broken and a mended model and the check that finds it.

    Attributes:
        module: The module of its file.
        name: The name of its file.
        title: What is wrong, in a few words.
        story: The paragraphs of the story, each of one line.
        theme: The group in which it is shown, one of :data:`THEMES`.
        source: The address of the public thread in which the fault was reported.
        found_by: The title of the report that has to find it, for example ``"causality"``.
    """

    module: ModuleType
    name: str
    title: str
    story: list[str]
    theme: str
    source: str
    found_by: str

    def make(self, state: str) -> Any:
        """Make the ``"broken"`` or the ``"mended"`` model, with seeded weights."""
        function = getattr(self.module, state, None)
        return function or seeded(getattr(self.module, state.title()))

    def examine(self, model: Any) -> Found:
        """Run the check on a model."""
        return seeded(lambda: self.module.examine(model))


def read(module: ModuleType) -> Exhibit:
    """Read the docstring of an exhibit's file."""
    text = inspect.cleandoc(module.__doc__ or "")
    title, *story = re.split(r"\n\s*\n", FIELD.sub("", text).strip())
    fields = {name.replace(" ", "_"): value for name, value in FIELD.findall(text)}
    paragraphs = [" ".join(each.split()) for each in story]
    name = module.__name__.rpartition(".")[2]
    return Exhibit(module, name, title.removesuffix("."), paragraphs, **fields)


@functools.cache
def exhibits() -> dict[str, Exhibit]:
    """List the exhibits by the names of their files, by theme, and within a theme by title."""
    paths = importlib.import_module(PACKAGE).__path__
    names = {each.name for each in pkgutil.iter_modules(paths)} - NOT_EXHIBITS
    found = [read(importlib.import_module(f"{PACKAGE}.{name}")) for name in names]
    found.sort(key=lambda each: (THEMES.index(each.theme), each.title))
    return {each.name: each for each in found}


def reports(result: Found) -> tuple[Report, ...]:
    """List the reports of a result; a difference of two models is one violation."""
    if isinstance(result, Difference):
        return (Report("equivalence", (result.summary,) if result else ()),)
    return (result,) if isinstance(result, Report) else result.reports


def violated(result: Found) -> list[str]:
    """List the titles of the reports that have problems."""
    return [each.title for each in reports(result) if each.problems]


def seeded(make: Callable[[], Result], seed: int = 0) -> Result:
    """Call a function with seeded random numbers, and leave torch's generator as it is.

    Args:
        make: A function without arguments, for example the class of a module.
        seed: The seed of the random numbers.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return make()


def code(module: ModuleType) -> str:
    """Read the code of an exhibit: its file without the docstring."""
    return inspect.getsource(module).split('"""', 2)[2].strip("\n") + "\n"


def difference(module: ModuleType) -> str:
    """Compare the broken and the mended code.

    Returns:
        A unified difference of each function or method that was mended, without file names.
    """
    pairs, parts = [], []
    for name, mended in vars(module).items():
        if name == "mended":
            pairs.append((module.broken, mended))
        elif name.startswith("Mended"):
            methods = filter(inspect.isfunction, vars(mended).values())
            pairs += [(getattr(mended.__base__, x.__name__, None), x) for x in methods]
    for pair in pairs:
        if all(x and inspect.unwrap(x).__code__.co_filename == module.__file__ for x in pair):
            before, after = (inspect.cleandoc(f"\n{inspect.getsource(each)}") for each in pair)
            if re.sub("[Bb]roken", "", before) != re.sub("[Mm]ended", "", after):
                lines = difflib.unified_diff(before.splitlines(), after.splitlines(), n=100)
                parts.append("\n".join(line.rstrip("\n") for line in list(lines)[3:]))
    return "\n\n".join(parts)


def show(exhibit: Exhibit) -> Iterator[str]:
    """Show one exhibit: story, source, code, difference, and what the check reports."""
    yield from (exhibit.title, "=" * len(exhibit.title))
    for paragraph in exhibit.story:
        yield from ("", *textwrap.wrap(paragraph, 80, break_on_hyphens=False))
    yield from ("", f"Published: {exhibit.source}")
    yield f"Theme: {exhibit.theme}. Found by the check: {exhibit.found_by}."
    yield from ("", "The code", textwrap.indent(code(exhibit.module), "  "))
    yield from ("What is mended", textwrap.indent(difference(exhibit.module), "  "))
    for state in ("broken", "mended"):
        yield f"\nThe report on the {state} model\n{exhibit.examine(exhibit.make(state))}"
