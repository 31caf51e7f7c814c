"""Options: argparse helpers and options that several programs share."""

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
    """An argument parser whose errors are one line and whose options cannot be abbreviated.

    Pass it as ``parser_class`` of subcommands, so that they behave alike.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})

    def error(self, message: str) -> NoReturn:
        """Raise the error as one that the program prints in one line."""
        raise UserError(f"{message} (see --help)")


def number(kind: Callable[[str], float], rule: str) -> Callable[[str], float]:
    """Make a ``type`` for argparse: numbers that obey one of :data:`common.ranges.RULES`."""

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


def add_sampling_options(parser: argparse._ActionsContainer) -> None:
    """Add the options of sampling: temperature, top-k, top-p and the seed."""
    parser.add_argument(
        "--temperature", type=number(float, "above 0"), help="sampling temperature (default: 1)"
    )
    parser.add_argument(
        "--top-k", type=number(int, "above 0"), help="sample from the k most probable tokens only"
    )
    parser.add_argument(
        "--top-p",
        type=number(float, "in (0, 1]"),
        help="sample from the fewest tokens whose probabilities sum to p (nucleus sampling); with "
        "--top-k, among those k",
    )
    parser.add_argument(
        "--seed",
        type=number(int, "at least 0"),
        help="seed of sampling (default: a different one each time)",
    )


def new_parser(description: str | None) -> Parser:
    """Make a parser whose description is a program's docstring."""
    return Parser(
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def run_options(folder: str) -> Parser:
    """Make the options of every command: the run, and the device to compute on.

    Args:
        folder: The default folder of the run.
    """
    parser = Parser(add_help=False)
    parser.add_argument(
        "--run", type=Path, default=Path(folder), help=f"folder of the run (default: {folder})"
    )
    add_device_option(parser)
    return parser


def add_device_option(parser: argparse._ActionsContainer) -> None:
    """Add the option of the device to compute on."""
    parser.add_argument(
        "--device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="device to compute on (default: auto, a GPU if there is one)",
    )


def add_training_options(train: argparse.ArgumentParser, sizes: Iterable[tuple[str, str]]) -> None:
    """Add the options of every training.

    Args:
        train: The parser of the command.
        sizes: Names and descriptions of options that are whole numbers above 0.
    """
    above_0 = number(int, "above 0")
    for name, description in sizes:
        train.add_argument(f"--{name}", type=above_0, help=description)
    train.add_argument("--dropout", type=number(float, "in [0, 1)"), help="dropout probability")
    train.add_argument("--peak-rate", type=number(float, "above 0"), help="highest learning rate")
    train.add_argument(
        "--seed",
        type=number(int, "at least 0"),
        help="seed of initial weights, dropout and data order (default: 0)",
    )
    train.add_argument(
        "--resume", action="store_true", help="resume the run from its last checkpoint, or begin it"
    )
