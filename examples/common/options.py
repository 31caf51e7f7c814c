"""Options: a command line is made from dataclasses, by cyclopts.

Each command is a dataclass: its fields are the options, their types say which values are valid, and
its docstring is the help. :func:`parse` returns the one that the command line names, filled in.
"""

import sys
from collections.abc import Container, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import App, CycloptsError, Parameter, Token
from cyclopts.validators import Number

from common.errors import UserError

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def whole(_: object, tokens: Sequence[Token]) -> int:
    """Read a whole number; 3.5 is none."""
    return int(tokens[0].value)


_PLAIN = Parameter(show_default=False)
Flag = Annotated[bool, _PLAIN]
Words = Annotated[tuple[str, ...], _PLAIN]
Paths = Annotated[tuple[Path, ...], _PLAIN]
Count = Annotated[int, Parameter(converter=whole, validator=Number(gte=1, lte=1_000_000))]
Natural = Annotated[int, Parameter(converter=whole, validator=Number(gte=0, lt=2**63))]
Positive = Annotated[float, Parameter(validator=Number(gt=0, lt=2**63))]
Share = Annotated[float, Parameter(validator=Number(gte=0, lt=1))]
Probability = Annotated[float, Parameter(validator=Number(gt=0, lte=1))]
Exponent = Annotated[float, Parameter(validator=Number(gte=0, lte=10))]


@dataclass(frozen=True, kw_only=True)
class DeviceOptions:
    """Options of what computes.

    Attributes:
        device: Device to compute on; mps is a GPU of Apple, auto a GPU if there is one.
    """

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"


@dataclass(frozen=True, kw_only=True)
class RunOptions(DeviceOptions):
    """Options of a command that uses a run.

    Attributes:
        run: Folder of the run (default: the latest trained run in runs/).
    """

    run: Path | None = None


@dataclass(frozen=True, kw_only=True)
class TrainingOptions(RunOptions):
    """Options of every training; those that set a field of its configuration have its name.

    Attributes:
        dropout: Dropout probability.
        peak_rate: Highest learning rate.
        seed: Seed of initial weights, dropout and data order (default: 0).
        resume: Resume the run from its last checkpoint, or begin it.
    """

    dropout: Share | None = None
    peak_rate: Positive | None = None
    seed: Natural | None = None
    resume: Flag = False

    def chosen(self, kind: type["DataclassInstance"]) -> dict[str, Any]:
        """Return the fields of a configuration that the command line sets, paths absolute."""
        names = {field.name for field in fields(kind)}
        return {
            name: str(value.absolute()) if isinstance(value, Path) else value
            for name, value in vars(self).items()
            if name in names and value is not None
        }


@dataclass(frozen=True, kw_only=True)
class SamplingOptions:
    """Options of sampling.

    Attributes:
        temperature: Sampling temperature (default: 1).
        top_k: Sample from this number of most probable tokens only (default: from all).
        top_p: Sample from the fewest tokens whose probabilities sum to this (nucleus sampling);
            with --top-k, among those (default: 1, from all).
        seed: Seed of sampling (default: a different one each time).
    """

    temperature: Positive | None = None
    top_k: Count | None = None
    top_p: Probability | None = None
    seed: Natural | None = None

    def check_greedy(self, reason: str) -> None:
        """Raise if one of these options is given, for tokens that are not sampled.

        Raises:
            UserError: If one is; the message ends with the reason.
        """
        for name in ("temperature", "top_k", "top_p", "seed"):
            if getattr(self, name) is not None:
                raise UserError(f"{flag(name)} {reason}")


def parse(arguments: Sequence[str] | None, description: str | None, *commands: type[Any]) -> Any:
    """Read a command line.

    Args:
        arguments: The words of the command line; None for those of this process.
        description: What the help says besides; Markdown.
        commands: A dataclass for each command, named as it is; a single one is not named.

    Returns:
        The command.

    Raises:
        UserError: If an option is unknown, out of range or without a value.
        SystemExit: After the help was printed.
    """
    first, _, others = (description or "").partition("\n\n")
    app = App(
        name=Path(sys.argv[0]).name,
        help=first,
        help_epilogue=others,
        help_format="markdown",
        version_flags=(),
        default_parameter=Parameter(negative=()),
        result_action="return_value",
    )
    words = sys.argv[1:] if arguments is None else [*arguments]
    names = [command.__name__.lower() for command in commands]
    if len(commands) == 1:
        app.default(commands[0])
    else:
        for number, command in enumerate(commands):
            app.command(command, name=names[number], sort_key=number, help_epilogue="")
        if not words:
            raise UserError(f"a command is required, one of {', '.join(names)} (see --help)")
    try:
        options = app(words, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        text = " ".join(str(error).split()).rstrip(".")
        text = text if len(text) <= 300 else f"{text[:297]}..."
        raise UserError(f"{text} (see --help)") from error
    if options is None:
        raise SystemExit  # the help was printed
    return options


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
