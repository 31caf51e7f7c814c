"""Build a Transformer yourself: an empty package in twelve units, and laws that judge it.

    python examples/course.py new my_transformer    # write the empty package
    python examples/course.py check masks           # or a number; exit status 1 if a law fails
    python examples/course.py status                # list the units
    python examples/course.py debug 1               # find out why a model is silently wrong
    python examples/course.py examine model.py:MultiHeadAttention   # apply the laws to any code
    python examples/course.py train                 # train a translator of the reader's modules
    python examples/course.py museum                # list published faults, or show one

Each file of the package holds the empty functions and classes of one unit, with what they must
compute. A check compares them with loops in float64, with torch, and with known mistakes: where a
law fails, it prints which position differs, by how much, and which mistake gives the same numbers.
"""

import gc
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.options import Count, parse
from common.program import run_program


@dataclass(frozen=True)
class New:
    """Write the empty package.

    Attributes:
        package: Folder of the package, for example my_transformer.
    """

    package: Path


@dataclass(frozen=True, kw_only=True)
class PackageOptions:
    """Options of commands that use a package.

    Attributes:
        package: Folder of the package.
    """

    package: Path = Path("my_transformer")


@dataclass(frozen=True)
class Check(PackageOptions):
    """Check a unit of the package.

    Attributes:
        unit: Name or number of the unit, or all.
    """

    unit: str


@dataclass(frozen=True, kw_only=True)
class Status(PackageOptions):
    """List the units, and which of them pass, and count the solved cases.

    Attributes:
        folder: Folder of the cases.
    """

    folder: Path = Path("my_cases")


@dataclass(frozen=True)
class Debug:
    """Begin a broken model, or judge the check and the mended model that you wrote.

    Attributes:
        case: Number of the case (default: list them).
        hint: Show the next of three hints, which costs points.
        folder: Folder of the cases.
    """

    case: str | None = None
    hint: bool = field(default=False, kw_only=True)
    folder: Path = field(default=Path("my_cases"), kw_only=True)


@dataclass(frozen=True)
class Examine:
    """Examine an attention, a mask, a positional encoding or a model; the file is executed.

    Attributes:
        target: File and class or function, for example model.py:MultiHeadAttention.
    """

    target: str


@dataclass(frozen=True)
class Museum:
    """Show a published fault, or list them.

    Attributes:
        exhibit: Name or number of the fault (default: list them).
    """

    exhibit: str | None = None


@dataclass(frozen=True, kw_only=True)
class Train(PackageOptions):
    """Train a translator of your modules (3 minutes).

    Attributes:
        updates: Number of updates.
        page: Page with its attention.
    """

    updates: Count = 3000
    page: Path = Path("my_attention.html")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status, 1 if an answer is refused."""
    results: list[bool] = []
    commands = New, Check, Status, Debug, Examine, Museum, Train
    status = run_program(lambda: results.append(run(parse(arguments, __doc__, *commands))))
    return status or int(not all(results))


def run(options: Any) -> bool:
    """Run the command that the command line names."""
    gc.disable()  # a fifth of the time in which torch is imported
    from coursework import commands

    gc.freeze()
    gc.enable()
    if isinstance(options, New):
        return commands.new(options.package)
    if isinstance(options, Status):
        return commands.status(options.package, options.folder)
    if isinstance(options, Debug):
        return commands.debug(options.case, options.folder, hint=options.hint)
    if isinstance(options, Examine):
        return commands.examine_file(options.target)
    if isinstance(options, Museum):
        return commands.museum(options.exhibit)
    if isinstance(options, Check):
        return commands.check_units(options.unit, options.package)
    from translation.toy import toy_corpus

    sizes = {"updates": options.updates, "page": options.page}
    return commands.train(options.package, toy_corpus(), **sizes)


if __name__ == "__main__":
    status = main()
    os._exit(status)  # run_program() has written all; to take torch apart takes 0.3 s
