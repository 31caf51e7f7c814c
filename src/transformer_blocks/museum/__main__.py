"""Show the exhibits: ``python -m transformer_blocks.museum``.

Without arguments it lists them; with a name it shows one; with ``--all`` it examines all of them
and prints how many are found.
"""

import difflib
import importlib.metadata
import os
import re
import shutil
import sys
import textwrap
import time
from argparse import ArgumentParser, ArgumentTypeError
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NoReturn

from transformer_blocks.museum.exhibit import THEMES, examine, exhibits, modules
from transformer_blocks.museum.reading import code, difference, format_result, story

COLUMNS = 80
INDENT = "  "
PROGRAM = "python -m transformer_blocks.museum"
COLOURS = {
    31: r"^  -.*|VIOLATED|NOT FOUND|FAILED|THE MENDED MODEL FAILS A CHECK",
    32: r"^  \+.*|(?<=  )(holds|found)$",
    1: r"^(The code|What is mended|The report on the \w+ model)$|(?<=^  ...\. )\w+",
}
"""What is coloured on a terminal, by the code of the colour."""


class Parser(ArgumentParser):
    """A parser whose errors are one line each."""

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with status 2."""
        self.exit(2, f"error: {message.removeprefix('argument exhibit: ')}\n")

    def print_help(self, file: Any = None) -> None:
        """Print the help; unlike argparse's, fail if it cannot be written."""
        print(self.format_help(), end="", file=file, flush=True)


def columns() -> int:
    """Return the width of the terminal, at least 40; 80 for a pipe or a file."""
    return max(40, shutil.get_terminal_size().columns) if sys.stdout.isatty() else COLUMNS


def painted(line: str) -> str:
    """Colour a line for a terminal: what is broken red, what is mended green, headings bold."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    if sys.stdout.isatty() and not plain:
        for code, pattern in COLOURS.items():
            line = re.sub(pattern, rf"\033[{code}m\g<0>\033[0m", line)
    return line


def wrap(text: str, indent: str = "") -> list[str]:
    """Break a paragraph into lines that fit; those after the first are indented."""
    return textwrap.wrap(
        text, columns(), subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def headed(heading: str, text: str) -> list[str]:
    """Put a heading above an indented text."""
    return ["", heading, *textwrap.indent(text, INDENT).splitlines()]


def list_exhibits() -> Iterator[str]:
    """List the exhibits by theme, numbered, each with the check that finds it."""
    for theme in THEMES:
        yield theme.capitalize()
        for number, (name, exhibit) in enumerate(exhibits().items(), 1):
            if exhibit.theme == theme:
                yield from wrap(f"  {number:3}. {name} ({exhibit.found_by})", " " * 7)
                yield from wrap(f"{' ' * 7}{exhibit.title}", " " * 7)
        yield ""
    yield from wrap(f"See one by its name or number: {PROGRAM} {next(iter(exhibits()))}")


def show(name: str) -> Iterator[str]:
    """Show one exhibit: story, source, code, difference, and what the check reports."""
    module = modules()[name]
    exhibit = exhibits()[name]
    yield exhibit.title
    yield "=" * len(exhibit.title)
    for paragraph in story(module):
        yield ""
        yield from wrap(paragraph)
    yield ""
    yield f"Published: {exhibit.source}"
    yield from wrap(f"Theme: {exhibit.theme}. Found by the check: {exhibit.found_by}.")
    yield from headed("The code", code(module))
    yield from headed("What is mended", difference(module))
    examination = examine(exhibit)
    for state, result in (("broken", examination.broken), ("mended", examination.mended)):
        report = format_result(result, columns() - len(INDENT))
        yield from headed(f"The report on the {state} model", report)


def examine_all(write: Callable[[str], None]) -> bool:
    """Examine all exhibits: write a table and the score, and return whether all are right."""
    start = time.perf_counter()
    found = exhibits()
    width = max(map(len, found))
    right = 0
    for name, exhibit in found.items():
        try:
            examination = examine(exhibit)
            result = "found" if examination.found else "NOT FOUND"
            result += ", BUT THE MENDED MODEL FAILS A CHECK" if examination.accused else ""
        except Exception as error:  # the others are examined all the same
            result = f"FAILED: {error}"
        right += result == "found"
        row = f"{name:{width}}  {exhibit.found_by:14}  {result}"
        for line in wrap(row, " " * (width + 18)):
            write(line)
    write(f"{right} of {len(found)} found in {time.perf_counter() - start:.1f} s")
    return right == len(found)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the hint that names the known name that is most similar, or "" if none is similar."""
    found = difflib.get_close_matches(name, list(known), n=1)
    return f" (did you mean {found[0]}?)" if found else ""


def resolve(text: str) -> str:
    """Find the exhibit of a name or number.

    Raises:
        ArgumentTypeError: If there is none; the message says which names or numbers there are.
    """
    names = list(modules())
    name = "_".join(text.lower().replace("-", " ").replace("_", " ").split())
    if name in names:
        return name
    shown = repr(text) if len(text) <= COLUMNS else f"{text[:COLUMNS]!r}..."
    if re.fullmatch("-?[0-9]+", number := text.strip()):
        numbered = {str(place): each for place, each in enumerate(names, 1)}
        if (digits := number.lstrip("0")) in numbered:
            return numbered[digits]
        raise ArgumentTypeError(f"exhibits have the numbers 1 to {len(names)}, got {shown}")
    themes = {theme.replace(" ", "_"): theme for theme in THEMES}
    close = difflib.get_close_matches(name, [*themes, *names], n=1)
    if theme := themes.get("".join(close)):
        of_theme = [name for name, each in exhibits().items() if each.theme == theme]
        raise ArgumentTypeError(f"{theme!r} is a theme; its exhibits are {', '.join(of_theme)}")
    hint = nearest(name, names) or f": {PROGRAM} lists the names and numbers"
    raise ArgumentTypeError(f"no exhibit is called {shown}{hint}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program.

    Args:
        arguments: The command line without the program's name.

    Returns:
        The exit status: 1 if, with ``--all``, a fault is not found or a violation is reported for a
        mended model; otherwise 0.
    """
    parser = Parser(
        prog=PROGRAM,
        allow_abbrev=False,
        description="Show published faults of Transformers, and the checks that find them.",
    )
    text = "the name or number of an exhibit (default: list them)"
    parser.add_argument("exhibit", nargs="?", type=resolve, help=text)
    text = "examine all exhibits; exit with 1 if a fault is missed or a mended model fails"
    parser.add_argument("--all", action="store_true", help=text)
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    try:
        return run(parser, arguments)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # what is left to flush
        if not isinstance(error, BrokenPipeError):  # whose reader has ended, as `head` does
            parser.error(f"cannot write standard output: {error.strerror}")
        return 0


def run(parser: Parser, arguments: Sequence[str] | None) -> int:
    """Do what the command line says, and return the exit status."""
    options, unknown = parser.parse_known_args(arguments)
    for argument in unknown:
        hint = nearest(argument, ("--all", "--help", "--version"))
        parser.error(f"unknown argument {argument}{hint} (see --help)")
    if options.version:
        print("transformer-blocks", importlib.metadata.version("transformer-blocks"), flush=True)
        return 0
    if options.all and options.exhibit is not None:
        parser.error("--all takes no exhibit")
    if options.all:
        return 0 if examine_all(lambda line: print(painted(line), flush=True)) else 1
    lines = list_exhibits() if options.exhibit is None else show(options.exhibit)
    print("\n".join(map(painted, lines)), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
