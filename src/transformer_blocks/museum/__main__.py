"""Show the exhibits: ``python -m transformer_blocks.museum``.

Without arguments it lists them; with a name it shows one; with ``--all`` it examines all of them
and prints how many are found.
"""

import argparse
import os
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from typing import NoReturn

from transformer_blocks.museum.exhibit import (
    THEMES,
    code,
    difference,
    examine,
    exhibits,
    modules,
    story,
)

COLUMNS = 80
PROGRAM = "python -m transformer_blocks.museum"


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line each."""

    def error(self, message: str) -> NoReturn:
        """Print the message and exit with status 2."""
        self.exit(2, f"error: {message}\n")


def wrap(text: str, indent: str = "", first: str | None = None) -> list[str]:
    """Break a paragraph into lines that fit."""
    return textwrap.wrap(
        text,
        COLUMNS,
        initial_indent=indent if first is None else first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )


def headed(heading: str, text: str) -> list[str]:
    """Put a heading above an indented text, whose long lines are broken."""
    lines = ["", heading]
    for line in text.splitlines():
        indent = "    " + line[: len(line) - len(line.lstrip())]
        lines += wrap(line.strip(), indent + "  ", first=indent) or [""]
    return lines


def list_exhibits() -> Iterator[str]:
    """List the exhibits by theme, numbered, each with the check that finds it."""
    found = exhibits()
    number = 0
    for theme in THEMES:
        of_theme = {name: each for name, each in found.items() if each.theme == theme}
        if of_theme:
            yield f"{theme[0].upper()}{theme[1:]}"
        for name, exhibit in of_theme.items():
            number += 1
            yield from wrap(f"{name} ({exhibit.found_by})", "        ", first=f"  {number:3}. ")
            yield from wrap(exhibit.title, "        ")
        if of_theme:
            yield ""
    example = next(iter(found), "NAME")
    yield from wrap(f"See one by its name or number: {PROGRAM} {example}")


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
    yield f"Theme: {exhibit.theme}. Found by the check: {exhibit.found_by}."
    yield from ["", "The code"]
    yield from (f"    {line}".rstrip() for line in code(module).splitlines())
    yield from ["", "What is mended"]
    yield from (f"    {line}".rstrip() for line in difference(module).splitlines())
    examination = examine(exhibit)
    yield from headed("The report on the broken model", repr(examination.broken))
    yield from headed("The report on the mended model", repr(examination.mended))


def examine_all() -> Iterator[str]:
    """Examine all exhibits; yield a table, and as the last line the score."""
    start = time.perf_counter()
    found = exhibits()
    width = max(map(len, found), default=0)
    right = 0
    for name, exhibit in found.items():
        examination = examine(exhibit)
        is_right = examination.found and not examination.accused
        right += is_right
        result = "found" if examination.found else "NOT FOUND"
        if examination.accused:
            result += ", but the mended model is ACCUSED"
        yield f"{name:{width}}  {exhibit.found_by:14}  {result}"
    yield f"{right} of {len(found)} found in {time.perf_counter() - start:.1f} s"


def resolve(text: str) -> str | None:
    """Find the exhibit of a name or number."""
    names = list(modules())
    if text.isdigit():
        return names[int(text) - 1] if 1 <= int(text) <= len(names) else None
    name = text.replace("-", "_")
    return name if name in names else None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program.

    Args:
        arguments: The command line without the program's name.

    Returns:
        The exit status: 1 if ``--all`` finds that a fault is not found or a mended model is
        accused, otherwise 0.
    """
    parser = Parser(
        prog=PROGRAM,
        description="Show published faults of Transformers, and the checks that find them.",
    )
    parser.add_argument("exhibit", nargs="?", help="the name or number of an exhibit")
    parser.add_argument(
        "--all",
        action="store_true",
        help="examine all exhibits; exit with 1 unless each is found and no mended one accused",
    )
    options = parser.parse_args(arguments)
    if options.all and options.exhibit is not None:
        parser.error("--all takes no exhibit")
    name = None if options.exhibit is None else resolve(options.exhibit)
    if options.exhibit is not None and name is None:
        parser.error(
            f"no exhibit is called {options.exhibit!r}: {PROGRAM} lists the names and numbers"
        )
    is_right = True
    try:
        for line in show(name) if name else examine_all() if options.all else list_exhibits():
            is_right &= not any(word in line for word in ("NOT FOUND", "ACCUSED"))
            print(line, flush=options.all)
        sys.stdout.flush()
    except BrokenPipeError:  # what reads the output has ended, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0 if is_right or not options.all else 1


if __name__ == "__main__":
    sys.exit(main())
