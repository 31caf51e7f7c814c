"""Exhibit: a published fault, and what shows it.

Each file of this package but those of ``NOT_EXHIBITS`` is an exhibit. Its docstring has the title
and the story; its code is the smallest model that has the fault, and the same model with the fault
mended; its last statement is ``EXHIBIT = Exhibit(...)``. A new file is found without any list.

Several exhibits share what is not their point: the projections and embeddings of a small model, the
toy batches (``models``), a cache, a beam search (``decoding``), and the sum of a loss (``losses``).

So that the difference between the broken and the mended code can be shown, the mended one is

- a class whose name has "mended", and which inherits from the broken one and overrides the faulty
  methods, or
- a class or function whose name has "mended" where the broken one's has "broken".

If they are called ``Broken`` and ``Mended``, ``EXHIBIT`` need not name them. The faulty line
follows a comment that begins with ``# the fault:``.
"""

import dataclasses
import functools
import importlib
import pkgutil
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

import torch

from transformer_blocks._contracts import Function, check, one_of, raise_type_error
from transformer_blocks.inspection import Difference, Report, Soundness

PACKAGE = __name__.rpartition(".")[0]
NOT_EXHIBITS = {"exhibit", "reading", "models", "losses", "decoding", "__main__"}
THEMES = (
    "masks",
    "padding",
    "layout and modes",
    "positions",
    "heads",
    "weights",
    "loss",
    "caches",
    "decoding",
)
"""The themes, in the order in which the museum shows them."""

Result = TypeVar("Result")
Found = Soundness | Report | Difference
"""What a check returns: a table of reports, one report, or where two models differ."""


def of_the_file() -> Any:
    """Stand for the class ``Broken`` or ``Mended`` of the exhibit's file, with seeded weights."""


@dataclass(frozen=True)
class Exhibit:
    """A published fault, with a broken and a mended model and the check that finds it.

    Args:
        theme: The group in which it is shown, one of ``THEMES`` of this file.
        source: The address of the public thread in which the fault was reported.
        found_by: The title of the report that has to find it, for example ``"causality"``.
        examine: Runs the check as a user would.
        broken: Makes the model or function that has the fault, with seeded weights. Left out where
            it is the class ``Broken`` of the exhibit's file.
        mended: Makes the same without the fault; left out where it is the class ``Mended``.
        title: What is wrong, in a few words. Left out in the file of an exhibit: :func:`exhibits`
            reads it there, in the first line of the docstring.
    """

    theme: str
    source: str
    found_by: str
    examine: Callable[[Any], Found]
    broken: Callable[[], Any] = of_the_file
    mended: Callable[[], Any] = of_the_file
    title: str = ""

    def __post_init__(self) -> None:
        check(str, title=self.title, source=self.source, found_by=self.found_by)
        check(Annotated[str, one_of(*THEMES)], theme=self.theme)
        check(Function, examine=self.examine)
        for name in ("broken", "mended"):
            if not callable(getattr(self, name)):
                raise_type_error(name, "a function or a class", getattr(self, name))


@dataclass(frozen=True)
class Examination:
    """What the check of an exhibit reports.

    Attributes:
        exhibit: The exhibit that was examined.
        broken: The result on the broken model.
        mended: The result on the mended model.
    """

    exhibit: Exhibit
    broken: Found
    mended: Found

    @property
    def found(self) -> bool:
        """Whether the check that has to find the fault finds it."""
        return any(
            report.title == self.exhibit.found_by and report.problems
            for report in reports(self.broken)
        )

    @property
    def accused(self) -> bool:
        """Whether any check reports a violation for the mended model."""
        return any(report.problems for report in reports(self.mended))


def reports(result: Found) -> tuple[Report, ...]:
    """List the reports of a result.

    Args:
        result: What a check returned.

    Returns:
        The reports, in their order; a difference of two models is one violation.
    """
    if isinstance(result, Difference):
        return (Report("equivalence", (result.summary,) if result else ()),)
    return (result,) if isinstance(result, Report) else result.reports


def seeded(make: Callable[[], Result]) -> Callable[[], Result]:
    """Make a function draw the same random numbers in each call, and leave torch's generator as is.

    Args:
        make: A function without arguments, for example the class of a module.

    Returns:
        The function that calls it after ``torch.manual_seed(0)``.
    """

    @functools.wraps(make, updated=())
    def make_with_seed() -> Result:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            return make()

    return make_with_seed


def read_title(module: types.ModuleType) -> str:
    """Read the title of an exhibit: the first line of its docstring.

    Args:
        module: The module of the exhibit.

    Returns:
        The title, without the full stop.
    """
    return (module.__doc__ or "").partition("\n")[0].removesuffix(".")


def modules() -> dict[str, types.ModuleType]:
    """Import the files of all exhibits.

    Returns:
        The modules by their names, by theme, and within a theme by title.
    """
    paths = importlib.import_module(PACKAGE).__path__
    names = sorted(each.name for each in pkgutil.iter_modules(paths))
    found = {
        name: importlib.import_module(f"{PACKAGE}.{name}")
        for name in names
        if name not in NOT_EXHIBITS
    }
    order = sorted(
        found,
        key=lambda name: (THEMES.index(found[name].EXHIBIT.theme), read_title(found[name])),
    )
    return {name: found[name] for name in order}


def exhibits() -> dict[str, Exhibit]:
    """List the exhibits.

    Returns:
        The exhibits by the names of their files, by theme, and within a theme by title.

    Example:
        >>> from transformer_blocks.museum import exhibits
        >>> sorted({exhibit.theme for exhibit in exhibits().values()})[:2]
        ['caches', 'decoding']
    """
    found = {}
    for name, module in modules().items():
        models = {
            each: seeded(getattr(module, each.title()))
            for each in ("broken", "mended")
            if getattr(module.EXHIBIT, each) is of_the_file
        }
        found[name] = dataclasses.replace(module.EXHIBIT, title=read_title(module), **models)
    return found


def examine(exhibit: Exhibit) -> Examination:
    """Run the check of an exhibit on its broken and on its mended model.

    Args:
        exhibit: The exhibit.

    Returns:
        Both results.
    """
    check(Exhibit, exhibit=exhibit)
    return Examination(
        exhibit,
        seeded(lambda: exhibit.examine(exhibit.broken()))(),
        seeded(lambda: exhibit.examine(exhibit.mended()))(),
    )
