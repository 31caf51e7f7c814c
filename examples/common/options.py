"""Options: argparse helpers, options that several programs share, and the ranges of numbers."""

import argparse
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from common.errors import UserError
from common.terminal import width, wrap

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

RULES: dict[str, Callable[[float], bool]] = {
    "above 0": lambda x: 0 < x < 2**63,
    "at least 0": lambda x: 0 <= x < 2**63,
    "in [0, 1)": lambda x: 0 <= x < 1,
    "in (0, 1]": lambda x: 0 < x <= 1,
    "in [0, 10]": lambda x: 0 <= x <= 10,
    "from 1 to 1000": lambda x: 1 <= x <= 1000,
    "from 1 to 1000000": lambda x: 1 <= x <= 1_000_000,
}
"""The test of each rule, by the words in which error messages state it. NaN passes none."""


class Help(argparse.HelpFormatter):
    """Help as wide as the terminal, in which indented lines of the description are kept."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=width())

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = text.replace("``", "").strip("\n").split("\n\n")
        return "\n\n".join(
            each if each.startswith(" ") else "\n".join(wrap(" ".join(each.split()), width))
            for each in paragraphs
        )

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        if isinstance(action.type, Number):
            return "N" if action.type.kind is int else "X"
        return "PATH" if action.type is Path else super()._get_default_metavar_for_optional(action)


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, with the nearest option where one is misspelt.

    Its options cannot be abbreviated. The subcommands that :meth:`add_commands` adds behave alike,
    and an error names the subcommands that have an option.
    """

    commands: Mapping[str, "Parser"] = {}

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, "formatter_class": Help, **options})

    def add_commands(self) -> "argparse._SubParsersAction[Parser]":
        """Prepare to add subcommands; the one that is chosen is named by ``command``."""
        added = self.add_subparsers(
            title="commands", dest="command", metavar="COMMAND", required=True, parser_class=Parser
        )
        self.commands = added.choices
        return added

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the command line, and refuse what is not known."""
        options, unknown = self.parse_known_args(args, namespace)
        if unknown:
            name = unknown[0].partition("=")[0]
            what = "unknown option" if name.startswith("-") else "unexpected argument"
            self.error(f"{what} {shown(name)}{self._hint(name, getattr(options, 'command', ''))}")
        return options

    def _hint(self, name: str, command: str) -> str:
        """Name the nearest option, and the subcommands that have it if this one has not."""
        owners: dict[str, list[str]] = {}
        for each, parser in self.commands.items():
            for option in parser._option_string_actions:
                owners.setdefault(option, []).append(each)
        own = self.commands.get(command, self)._option_string_actions
        where = {option: f" of {', '.join(names)}" for option, names in owners.items()}
        return nearest(name, {**where, **dict.fromkeys(own, "")})

    def error(self, message: str) -> NoReturn:
        """Raise the error as one that the program prints in one line."""
        raise UserError(f"{message} (see --help)")


def shown(value: object) -> str:
    """Return a value of the command line as an error message shows it: at most 60 characters."""
    text = str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the hint that names the known name that is most similar, or "" if none is similar.

    Args:
        name: A name that is not known.
        known: The known names; a mapping holds what is said after each.

    Example:
        >>> nearest("--bean", ["--beam", "--sample"])
        ' (did you mean --beam?)'
    """
    found = get_close_matches(name, list(known), n=1)
    after = known if isinstance(known, Mapping) else {}
    return f" (did you mean {found[0]}{after.get(found[0], '')}?)" if found else ""


@dataclass(frozen=True)
class Number:
    """A ``type`` for argparse: numbers that obey one of :data:`RULES`.

    Attributes:
        kind: ``int`` or ``float``.
        rule: The rule.
    """

    kind: Callable[[str], float]
    rule: str

    def __call__(self, text: str) -> float:
        """Read a number.

        Raises:
            argparse.ArgumentTypeError: If the text is no number, or breaks the rule.
        """
        try:
            value = self.kind(text)
        except ValueError:
            value = float("nan")
        if not RULES[self.rule](value):
            noun = "whole number" if self.kind is int else "number"
            raise argparse.ArgumentTypeError(f"must be a {noun} {self.rule}, got {text!r}")
        return value


def chosen_fields(options: argparse.Namespace, kind: type["DataclassInstance"]) -> dict[str, Any]:
    """Return the fields of a configuration that a command line sets; paths become absolute."""
    names = {field.name for field in fields(kind)}
    return {
        name: str(value.absolute()) if isinstance(value, Path) else value
        for name, value in vars(options).items()
        if name in names and value is not None
    }


def flag(name: str) -> str:
    """Return the option that sets a field of the options: ``--top-k`` for ``top_k``."""
    return f"--{name.replace('_', '-')}"


def check_together(given: Container[str], *names: str) -> None:
    """Raise if some of these options are given, and others are not.

    Raises:
        UserError: If they are.
    """
    if len({name in given for name in names}) > 1:
        raise UserError(f"{' and '.join(map(flag, names))} must be given together")


def add(
    parser: argparse._ActionsContainer, kind: Any, texts: Mapping[str, str], **how: Any
) -> None:
    """Add options or arguments of one kind.

    Args:
        parser: The parser, or a group of one.
        kind: A type, such as ``Path``; a tuple of choices; or ``bool`` for flags, without a value.
        texts: The names, each with the text of its help.
        how: Other arguments of ``add_argument``.
    """
    if kind is bool:
        how.setdefault("action", "store_true")
    else:
        how["choices" if isinstance(kind, tuple) else "type"] = kind
    for name, text in texts.items():
        parser.add_argument(name, help=text, **how)


def add_sampling_options(parser: argparse._ActionsContainer) -> None:
    """Add the options of sampling: temperature, top-k, top-p and the seed."""
    add(parser, Number(float, "above 0"), {"--temperature": "sampling temperature (default: 1)"})
    text = "sample from the N most probable tokens only (default: from all)"
    add(parser, Number(int, "above 0"), {"--top-k": text})
    text = (
        "sample from the fewest tokens whose probabilities sum to X (nucleus sampling); with "
        "--top-k, among those (default: 1, from all)"
    )
    add(parser, Number(float, "in (0, 1]"), {"--top-p": text})
    text = "seed of sampling (default: a different one each time)"
    add(parser, Number(int, "at least 0"), {"--seed": text})


PROGRAM_HELP = (
    "file of a compiled program, which is executed; it is written first if there is none, which "
    "takes some minutes (default: none)"
)


def check_greedy(options: argparse.Namespace, reason: str) -> None:
    """Raise if an option of :func:`add_sampling_options` is given, for tokens that are not sampled.

    Raises:
        UserError: If one is; the message ends with the reason.
    """
    for name in ("temperature", "top_k", "top_p", "seed"):
        if getattr(options, name) is not None:
            raise UserError(f"{flag(name)} {reason}")


def run_options(default: str = "the latest trained run in runs/") -> Parser:
    """Make the options of every command: the run, and the device to compute on.

    Args:
        default: What the help names as the default folder of the run.
    """
    parser = Parser(add_help=False)
    add(parser, Path, {"--run": f"folder of the run (default: {default})"})
    add_device_option(parser)
    return parser


def add_device_option(parser: argparse._ActionsContainer) -> None:
    """Add the option of the device to compute on."""
    devices = "auto", "cpu", "cuda", "mps"
    text = "device to compute on; mps is a GPU of Apple (default: auto, a GPU if there is one)"
    add(parser, devices, {"--device": text}, default="auto")


def add_training_options(
    train: argparse.ArgumentParser,
    sizes: Mapping[str, str],
    *,
    dropout: str,
    peak_rate: float | str,
) -> None:
    """Add the options of every training.

    Args:
        train: The parser of the command.
        sizes: Names and descriptions of options that are whole numbers from 1 to 1000000.
        dropout: What the help names as the default dropout probability.
        peak_rate: The default of the highest learning rate.
    """
    add(train, Number(int, "from 1 to 1000000"), sizes)
    text = f"dropout probability (default: {dropout})"
    add(train, Number(float, "in [0, 1)"), {"--dropout": text})
    text = f"highest learning rate (default: {peak_rate})"
    add(train, Number(float, "above 0"), {"--peak-rate": text})
    text = "seed of initial weights, dropout and data order (default: 0)"
    add(train, Number(int, "at least 0"), {"--seed": text})
    add(train, bool, {"--resume": "resume the run from its last checkpoint, or begin it"})
