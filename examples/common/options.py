"""Options: what the command lines of programs that train have in common."""

import argparse
from collections.abc import Callable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from common.errors import UserError
from common.ranges import RULES, describe_rule

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, and whose options are written in full.

    The parsers of subcommands are made by it as well, so that no command accepts an abbreviation.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and exit with status 2."""
        raise UserError(f"{message} (see --help)")


def number(kind: Callable[[str], float], rule: str) -> Callable[[str], float]:
    """Make a reader of numbers for argparse, by one of :data:`common.ranges.RULES`."""

    def read(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            value = float("nan")
        if not RULES[rule](value):
            noun = "whole number" if kind is int else "number"
            limit = describe_rule(rule, value)
            raise argparse.ArgumentTypeError(f"must be a {noun} {limit}, got {text!r}")
        return value

    return read


def chosen_fields(options: argparse.Namespace, kind: type["DataclassInstance"]) -> dict[str, Any]:
    """Return the fields of a configuration that a command line sets; paths become absolute."""
    names = {field.name for field in fields(kind)}
    return {
        name: str(value.absolute()) if isinstance(value, Path) else value
        for name, value in vars(options).items()
        if name in names and value is not None
    }


def new_parser(description: str | None) -> Parser:
    """Begin a command line whose description is a program's docstring."""
    return Parser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def run_options(folder: str) -> Parser:
    """Make the options of every command: which run, and where to compute.

    Args:
        folder: Of the run, unless another is named.
    """
    parser = Parser(add_help=False)
    parser.add_argument(
        "--run", type=Path, default=Path(folder), help=f"folder of the run (default: {folder})"
    )
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="where to compute (default: auto, a GPU if there is one)",
    )
    return parser


def add_training_options(train: argparse.ArgumentParser, sizes: Iterable[tuple[str, str]]) -> None:
    """Add what every training can be told.

    Args:
        train: The command.
        sizes: Names of options that are whole numbers above 0, and what they are.
    """
    above_0 = number(int, "above 0")
    for name, what in sizes:
        train.add_argument(f"--{name}", type=above_0, help=what)
    train.add_argument(
        "--dropout", type=number(float, "in [0, 1)"), help="probability of dropping a number"
    )
    train.add_argument("--peak-rate", type=number(float, "above 0"), help="highest learning rate")
    train.add_argument("--seed", type=number(int, "at least 0"), help="of everything (default: 0)")
    train.add_argument(
        "--resume", action="store_true", help="go on where the run stopped, or begin it"
    )
