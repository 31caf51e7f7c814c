"""Commands: programs with several commands, and the lines that they read."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from common.program import run_program
from common.text_files import decode_line, read_lines


@contextmanager
def resumable() -> Iterator[None]:
    """Add the hint to use ``--resume`` to the message of an interrupted training."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt("(resume the training with --resume)") from None


def run_command(
    parse: Callable[[], argparse.Namespace],
    commands: Mapping[str, Callable[[argparse.Namespace], None]],
) -> int:
    """Run the command of a program that the command line names.

    Args:
        parse: Reads the command line; the command is named by ``command``.
        commands: The commands, by name.

    Returns:
        The exit status, as :func:`run_program` does.
    """

    def work() -> None:
        options = parse()
        commands[options.command](options)

    return run_program(work)


def input_lines(sentences: Sequence[str], file: Path | None) -> Iterator[list[str]]:
    """Yield the input lines of a program: in large chunks, or one by one from a terminal.

    Args:
        sentences: The lines of the command line; the standard input is read if there are none.
        file: The file to read instead.

    Raises:
        UserError: If a line is not UTF-8 text.
    """
    if sentences:
        yield [  # bytes first: in a locale without UTF-8, Python cannot read them as text
            decode_line(line, where=f"sentence {number}")
            for number, sentence in enumerate(sentences, start=1)
            for line in os.fsencode(sentence).split(b"\n")
        ]
    elif file:
        yield read_lines(file)
    else:
        chunk: list[str] = []
        size = 1 if sys.stdin.isatty() else 1000
        for number, line in enumerate(sys.stdin.buffer, start=1):
            chunk.append(decode_line(line, where=f"standard input:{number}"))
            if len(chunk) == size:
                yield chunk
                chunk = []
        if chunk:
            yield chunk
