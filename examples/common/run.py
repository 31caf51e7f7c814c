"""A run: the folder of one training, and the plan that is written down in it."""

import argparse
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar, get_origin, get_type_hints

from torch import nn

from translation.checkpoint import latest_checkpoint, load_weights
from translation.errors import UserError
from translation.run import file_hash
from translation.tokenizer import Tokenizer

FORMAT_VERSION = 1
REPORTED = {"step", "minutes", "train_loss", "validation_loss"}
"""What every line of ``metrics.jsonl`` says."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a training goes. A program adds what else its runs are; all stands in ``config.json``.

    Attributes:
        seed: Of weights, dropout and the order of the data.
        steps: Updates in all.
        report_steps: Updates between two looks at how it goes; each ends with a checkpoint.
        peak_rate: Highest learning rate, from where it falls linearly to zero at the end.
        warmup_steps: Updates until it is highest.
        average: Part of the averaged weights that each update keeps.
        vocabulary: Most sentencepiece tokens.
        data_hash: The SHA-256 of what is learnt from and tried on.
        tokenizer_hash: The SHA-256 of the tokenizer.
    """

    seed: int
    steps: int
    report_steps: int
    peak_rate: float
    warmup_steps: int
    average: float
    vocabulary: int
    data_hash: str = ""
    tokenizer_hash: str = ""


Config = TypeVar("Config", bound=Plan)
Model = TypeVar("Model", bound=nn.Module)


class Run(Generic[Config]):
    """The paths of a run, and what lies there.

    Args:
        folder: Such as ``runs/classify``.
        kind: The dataclass of its configuration.
    """

    def __init__(self, folder: Path, kind: type[Config]) -> None:
        self.folder, self.kind = folder, kind
        self.config_file = folder / "config.json"  # written last when a run begins
        self.tokenizer_file = folder / "tokenizer.model"
        self.checkpoints = folder / "checkpoints"
        self.best = folder / "best"

    def write_config(self, config: Config) -> None:
        """Write ``config.json`` by one rename."""
        content = {"format_version": FORMAT_VERSION, **asdict(config)}
        partial = self.folder / ".config.json.part"
        partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        partial.replace(self.config_file)

    def read_config(self) -> Config:
        """Read ``config.json``.

        Raises:
            UserError: If it is missing, damaged or of a newer version.
        """
        if not self.config_file.is_file():
            raise UserError(f"{self.folder} holds no run (no config.json); train one first")
        try:
            content: dict[str, Any] = json.loads(self.config_file.read_text(encoding="utf-8"))
            version = content.pop("format_version")
            if version > FORMAT_VERSION:
                raise UserError(
                    f"{self.config_file} has format version {version}, newer than this program's "
                    f"{FORMAT_VERSION}; update the program"
                )
            for name, kind in get_type_hints(self.kind).items():
                allowed = get_origin(kind) if get_origin(kind) is list else kind
                if not isinstance(content[name], (float | int) if kind is float else allowed):
                    raise TypeError(f"{name} must be {kind}, got {content[name]!r}")
                if kind is int and content[name] < (name != "seed"):
                    raise ValueError(f"{name} is too small, got {content[name]}")
            return self.kind(**content)
        except KeyError as error:
            raise UserError(
                f"{self.config_file} is damaged, or of another program: it lacks {error}"
            ) from error
        except (AttributeError, TypeError, ValueError) as error:
            raise UserError(f"{self.config_file} is damaged: {error}") from error

    def begin_or_go_on(
        self, options: argparse.Namespace, begin: Callable[[], Config]
    ) -> tuple[Config, bool]:
        """Find the configuration of a training that begins, or of one that goes on.

        Args:
            options: The command line. Those named as a field of the configuration must agree with
                a run that goes on; only ``steps`` may change.
            begin: Prepares the folder, all but ``config.json``, and tells the configuration.

        Returns:
            The configuration, and whether the run was there already.

        Raises:
            UserError: If the folder holds what would be lost, belongs to another training, or has
                made more steps than are asked for.
        """
        if self.config_file.exists():
            return self._go_on(options), True
        if self.checkpoints.exists() or self.best.exists():
            raise UserError(
                f"{self.folder} holds weights but no config.json; "
                "put the file back, or choose another --run"
            )
        is_new = not self.folder.exists()
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            config = begin()
            self.write_config(config)
        except BaseException:
            if is_new and self.folder.exists():
                shutil.rmtree(self.folder)
            raise
        return config, False

    def _go_on(self, options: argparse.Namespace) -> Config:
        if not options.resume:
            raise UserError(f"{self.folder} holds a run; go on with --resume, or choose another")
        config = self.read_config()
        for name, begun in asdict(config).items():
            wanted = getattr(options, name, None)
            if name != "steps" and wanted is not None and wanted != begun:
                raise UserError(
                    f"{self.folder} was begun with {name}={begun}, got {wanted}; "
                    "leave the option out, or begin another --run"
                )
        if options.steps is not None and options.steps != config.steps:
            last = latest_checkpoint(self.checkpoints)
            if last is not None and last.step > options.steps:
                raise UserError(
                    f"{self.folder} has made {last.step} steps already, got --steps {options.steps}"
                )
            config = replace(config, steps=options.steps)
            self.write_config(config)
        return config

    def load_tokenizer(self, config: Config) -> Tokenizer:
        """Load the tokenizer and see that it is this run's.

        Raises:
            UserError: If it is missing, damaged or from another run.
        """
        tokenizer = Tokenizer.load(self.tokenizer_file)
        if file_hash(self.tokenizer_file) != config.tokenizer_hash:
            raise UserError(
                f"{self.tokenizer_file} is not the tokenizer that this run was trained with"
            )
        return tokenizer


def load_best(folder: Path, model: Model) -> Model:
    """Load the best weights of a training into its model, and put that in eval mode.

    Raises:
        UserError: If there are none, or they are damaged or those of another model.
    """
    checkpoint = latest_checkpoint(folder / "best")
    if checkpoint is None:
        raise UserError(f"{folder / 'best'} holds no weights yet; training has not come so far")
    load_weights(model, checkpoint.tensors["model"], path=checkpoint.path)
    return model.eval()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Read what a training wrote down at each report; a line that a kill cut off is left out."""
    file, rows = folder / "metrics.jsonl", []
    if file.is_file():
        for line in file.read_text(encoding="utf-8", errors="replace").split("\n"):
            try:
                row = json.loads(line)
            except ValueError:
                continue
            if isinstance(row, dict) and row.keys() >= REPORTED:
                rows.append(row)
    return rows


def write_metrics(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Write down how a training went, a line of JSON a report, by one rename."""
    partial = folder / ".metrics.jsonl.part"
    partial.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    partial.replace(folder / "metrics.jsonl")
