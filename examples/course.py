"""Build a Transformer yourself: an empty package in twelve units, and laws that judge it.

    python examples/course.py new my_transformer    # write the empty package
    python examples/course.py check masks           # or a number; exit status 1 if a law fails
    python examples/course.py status                # list the units
    python examples/course.py train                 # train a translator of the reader's modules
    python examples/course.py museum                # list published faults, or show one

Each file of the package holds the empty functions and classes of one unit, with what they must
compute. A check compares them with loops in float64, with torch, and with known mistakes: where a
law fails, it prints which position differs, by how much, and which mistake gives the same numbers.
"""

import argparse
import gc
import sys
from collections.abc import Sequence
from pathlib import Path

from common.options import Number, Parser, add
from common.program import run_program


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program; return its exit status, 1 if an answer is refused."""
    results: list[bool] = []
    status = run_program(lambda: results.append(run(parse(arguments))))
    return status or int(not all(results))


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; the command is named by ``command``."""
    parser = Parser(description=__doc__)
    commands = parser.add_commands()
    new = commands.add_parser("new", help="write the empty package")
    add(new, Path, {"package": "folder of the package, for example my_transformer"})
    check = commands.add_parser("check", help="check a unit of the package")
    add(check, str, {"unit": "name or number of the unit, or all"}, metavar="UNIT")
    add(check, Path, {"--junit": "file for the result of each law, as JUnit XML"})
    listing = commands.add_parser("status", help="list the units, and which of them pass")
    museum = commands.add_parser("museum", help="show a published fault, or list them")
    add(museum, str, {"exhibit": "name or number of the fault (default: list them)"}, nargs="?")
    training = commands.add_parser("train", help="train a translator of your modules (3 minutes)")
    add(training, Number(int, "above 0"), {"--updates": "updates (default: 3000)"}, default=3000)
    page = Path("my_attention.html")
    add(training, Path, {"--page": "page with its attention"}, default=page)
    package = Path("my_transformer")
    for command in (check, listing, training):
        text = f"folder of the package (default: {package})"
        add(command, Path, {"--package": text}, default=package)
    return parser.parse_args(arguments)


def run(options: argparse.Namespace) -> bool:
    """Run the command that the command line names."""
    gc.disable()  # a fifth of the time in which torch is imported
    from coursework import commands

    gc.freeze()
    gc.enable()
    if options.command == "train":
        from translation.toy import toy_corpus

        return commands.train(options, toy_corpus())
    return commands.run(options)


if __name__ == "__main__":
    sys.exit(main())
