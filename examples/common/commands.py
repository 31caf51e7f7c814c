"""Commands: the lines and prompts that the commands of several programs read."""

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from common.errors import UserError
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


def add_prompts(parser: argparse.ArgumentParser, default: str) -> None:
    """Add the arguments of :func:`continue_prompts`; ``default`` describes the empty prompt."""
    parser.add_argument("prompts", nargs="*", help=f"the prompts (default: {default})")
    parser.add_argument(
        "--file",
        type=Path,
        help="a file of prompts, one per line, instead of prompts on the command line (default: "
        "none); each text is then printed as one line, with spaces for line breaks, and a blank "
        "line for a blank line",
    )


def check_prompts(options: argparse.Namespace) -> None:
    """Raise if prompts are given in both ways.

    Raises:
        UserError: If they are.
    """
    if options.file and options.prompts:
        raise UserError("prompts cannot be combined with --file")


def read_prompts(options: argparse.Namespace) -> list[str]:
    """Read the prompts of the command line or of ``--file``; one empty prompt if there are none.

    Raises:
        UserError: If a prompt is not UTF-8 text.
    """
    if options.file:
        return read_lines(options.file)
    return [  # bytes first: in a locale without UTF-8, Python cannot read them as text
        "\n".join(
            decode_line(line, where="the prompt") for line in os.fsencode(prompt).split(b"\n")
        )
        for prompt in options.prompts or [""]
    ]


def continue_prompts(
    options: argparse.Namespace,
    prompts: Sequence[str],
    generate: Callable[[Sequence[str]], Sequence[Sequence[str]]],
) -> None:
    """Print the texts that continue prompts, in their order.

    Args:
        options: The command line.
        prompts: What :func:`read_prompts` returned.
        generate: Function that returns the texts of each prompt. It does not receive blank lines of
            a file.
    """
    if not options.file:
        print("\n\n".join(text for texts in generate(prompts) for text in texts))
        return
    found = iter(generate([prompt for prompt in prompts if prompt.strip()]))
    for prompt in prompts:
        for text in next(found) if prompt.strip() else [""]:
            print(text.replace("\r", " ").replace("\n", " "))
