"""Options: what the command lines of programs that train have in common."""

import argparse
from collections.abc import Iterable
from pathlib import Path

from translation.arguments import Parser, number


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
