"""Commands: the lines and prompts that the commands of several programs read."""

import os
import sys
from collections.abc import Iterator, Sequence
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


def read_prompts(prompts: Sequence[str]) -> list[str]:
    """Read the prompts of the command line; one empty prompt if there are none.

    Raises:
        UserError: If a prompt is not UTF-8 text.
    """
    return [  # bytes first: in a locale without UTF-8, Python cannot read them as text
        "\n".join(
            decode_line(line, where="the prompt") for line in os.fsencode(prompt).split(b"\n")
        )
        for prompt in prompts or [""]
    ]
