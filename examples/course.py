"""Build a Transformer yourself, and find out why others are silently wrong; laws judge both.

    python examples/course.py build                 # list the twelve units, and your points
    python examples/course.py build masks           # begin a unit, or judge it; or a number, or all
    python examples/course.py debug                 # list broken models by their symptoms
    python examples/course.py debug 1               # begin a case, or judge your check and mending
    python examples/course.py status                # what you have solved
    python examples/course.py examine model.py:MultiHeadAttention   # apply the laws to any code
    python examples/course.py train                 # train a translator of the modules you built
    python examples/course.py museum                # list published faults, or show one

What you write is in one folder, with the file ``progress.json``. The file of a unit has empty
functions and classes, with what they must compute. A law compares them with loops in float64, with
torch, and with known mistakes: where it fails, it prints which position differs, by how much, and
which mistake gives the same numbers. The exit status is 0 if what is judged is right.
"""

import gc
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from common.options import Count, parse
from common.program import run_program


@dataclass(frozen=True, kw_only=True)
class Status:
    """Count the units and cases that are solved, and the points.

    Attributes:
        folder: Folder of your files.
    """

    folder: Path = Path("my_transformer")


@dataclass(frozen=True)
class Build(Status):
    """Begin a unit of a Transformer, or judge the one that you wrote.

    Attributes:
        unit: Name or number of the unit, or all (default: list them).
    """

    unit: str | None = None


@dataclass(frozen=True)
class Debug(Status):
    """Begin a broken model, or judge the check and the mended model that you wrote.

    Attributes:
        case: Number of the case, or all (default: list them).
        hint: Show the next of three hints, which costs points.
    """

    case: str | None = None
    hint: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Examine:
    """Examine an attention, a mask, a positional encoding or a model; the file is executed.

    Attributes:
        target: File and class or function, for example model.py:MultiHeadAttention.
        causal: No output of a layer or a model may depend on a later position.
    """

    target: str
    causal: bool = field(default=False, kw_only=True)


@dataclass(frozen=True)
class Museum:
    """Show a published fault, or list them.

    Attributes:
        exhibit: Name or number of the fault (default: list them).
    """

    exhibit: str | None = None


@dataclass(frozen=True, kw_only=True)
class Train(Status):
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
    commands = Build, Debug, Status, Examine, Train, Museum
    status = run_program(lambda: results.append(run(parse(arguments, __doc__, *commands))))
    return status or int(not all(results))


def run(options: Any) -> bool:
    """Run the command that the command line names."""
    gc.disable()  # a fifth of the time in which torch is imported
    from coursework import commands

    gc.freeze()
    gc.enable()
    if isinstance(options, Build):
        return commands.work("unit", options.unit, options.folder)
    if isinstance(options, Debug):
        return commands.work("case", options.case, options.folder, hint=options.hint)
    if isinstance(options, Examine):
        return commands.examine_file(options.target, causal=options.causal)
    if isinstance(options, Museum):
        return commands.museum(options.exhibit)
    if isinstance(options, Train):
        from translation.toy import toy_corpus

        corpus, page = toy_corpus(), options.page
        return commands.train(options.folder, corpus, updates=options.updates, page=page)
    return commands.status(options.folder)


if __name__ == "__main__":
    status = main()
    os._exit(status)  # run_program() has written all; to take torch apart takes 0.3 s
