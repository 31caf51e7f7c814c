"""Commands: the lines and prompts that the commands of several programs read."""

import os
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from common.text_files import decode_line, read_lines


def input_lines(sentences: Sequence[str], file: Path | None) -> Iterator[list[str]]:
    """Yield the input lines of a program: in large chunks, or one by one from a terminal.

    Args:
        sentences: The lines of the command line; the standard input is read if there are none.
        file: The file to read instead.

    Raises:
        UserError: If a line is not UTF-8 text.
    """
    if sentences:
        numbered = enumerate(sentences, start=1)
        yield [line for n, text in numbered for line in _read_argument(text, f"sentence {n}")]
    elif file:
        yield read_lines(file)
    else:
        size = 1 if sys.stdin.isatty() else 1000
        lines = (
            decode_line(line, where=f"standard input:{n}")
            for n, line in enumerate(sys.stdin.buffer, start=1)
        )
        yield from iter(lambda: list(islice(lines, size)), [])


def read_prompts(prompts: Sequence[str]) -> list[str]:
    """Read the prompts of the command line; one empty prompt if there are none.

    Raises:
        UserError: If a prompt is not UTF-8 text.
    """
    return ["\n".join(_read_argument(prompt, "the prompt")) for prompt in prompts or [""]]


def _read_argument(text: str, where: str) -> list[str]:
    """Read the lines of an argument: from bytes, since the locale may not be UTF-8."""
    return [decode_line(line, where=where) for line in os.fsencode(text).split(b"\n")]
