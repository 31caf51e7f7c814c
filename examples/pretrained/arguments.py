"""Arguments: what the command lines of these programs have in common."""

import argparse
import os
from pathlib import Path

from common.errors import UserError
from common.options import Parser
from common.text_files import decode_line, read_lines


def model_parser(description: str | None) -> Parser:
    """Make a parser with the arguments of every program: the model, and its revision."""
    parser = Parser(description=description)
    parser.add_argument("model", help="a folder, or the name of a model on the Hugging Face hub")
    parser.add_argument("--revision", help="branch, tag or commit on the hub (default: main)")
    return parser


def add_texts(parser: Parser, name: str) -> None:
    """Add the arguments of :func:`read_texts`; ``name`` is what errors and help call the texts."""
    parser.add_argument("texts", nargs="*", metavar=name, help=f"{name} (default: those of --file)")
    parser.add_argument("--file", type=Path, help=f"file of {name}, one per line (default: none)")


def check_texts(options: argparse.Namespace, name: str) -> None:
    """Raise unless texts are given in one of both ways.

    Raises:
        UserError: If they are given in none or in both.
    """
    if bool(options.texts) == bool(options.file):
        raise UserError(f"give either {name} or --file")


def read_texts(options: argparse.Namespace) -> list[str]:
    """Read the texts of the command line, or the lines of ``--file``.

    Raises:
        UserError: If one is not UTF-8 text.
    """
    if options.file:
        return read_lines(options.file)
    return [decode_line(os.fsencode(each), where="a text") for each in options.texts]


def check_beam(beam: int, vocabulary_size: int) -> None:
    """Raise if there are more beams than tokens.

    Raises:
        UserError: If there are.
    """
    if beam > vocabulary_size:
        raise UserError(
            f"--beam must not exceed the {vocabulary_size} tokens of the vocabulary, got {beam}"
        )
