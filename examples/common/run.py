"""A run: the folder of one training, and the plan that is written down in it."""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

from torch import nn

from common.checkpoint import Checkpoint, check_definition, latest_checkpoint, load_weights
from common.configuration import check_fields, is_row, load_json, read_content, write_config
from common.errors import UserError
from common.files import FolderLock, file_hash, read_text, write_atomically
from common.tokenizer import Tokenizer

FORMAT_VERSION = 2
"""The first that is sealed: the file holds its own SHA-256, and checkpoints its content."""
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
        format_version: Of the file that it was read from.
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
    format_version: int = field(default=FORMAT_VERSION, compare=False)

    @property
    def definition(self) -> dict[str, Any]:
        """All that may not change while a run is trained, as its checkpoints hold it."""
        content = asdict(self)
        for name in ("steps", "format_version"):
            del content[name]
        return content

    @property
    def is_old(self) -> bool:
        """Whether it is of an earlier version, whose checkpoints hold no configuration."""
        return self.format_version < FORMAT_VERSION

    def check_trained(self, checkpoint: Checkpoint) -> None:
        """Check that a checkpoint was trained with this configuration.

        Raises:
            UserError: If it was trained with another one; it names what differs.
        """
        file = Path("config.json")
        check_definition(checkpoint, self.definition, file=file, is_old=self.is_old)


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

    def write_config(
        self, config: Config, *, write: Callable[[Path, bytes], None] = write_atomically
    ) -> None:
        """Write ``config.json`` by one rename."""
        write_config(self.config_file, config, write=write)

    def accept(self, config: Config) -> None:
        """Write a configuration whose ``steps`` have changed, once the training is accepted."""
        if config != self.read_config():
            self.write_config(config)

    def read_config(self) -> Config:
        """Read ``config.json``.

        Raises:
            UserError: If it is missing, damaged, changed or of a newer version.
        """
        content, intact = read_content(
            self.config_file, version=FORMAT_VERSION, sealed_since=FORMAT_VERSION
        )
        try:
            check_fields(self.kind, content)
            config = self.kind(**content)
        except KeyError as error:
            raise UserError(
                f"{self.config_file} is damaged, or of another program: it lacks {error}"
            ) from error
        except (AttributeError, TypeError, ValueError) as error:
            raise UserError(f"{self.config_file} is damaged: {error}") from error
        if not intact:
            for folder in (self.best, self.checkpoints):  # which may tell what has changed
                checkpoint = latest_checkpoint(folder)
                if checkpoint is not None:
                    config.check_trained(checkpoint)
            raise UserError(
                f"{self.config_file} has changed since the training wrote it; put it back "
                "(train --resume takes other --steps)"
            )
        return config

    def begin_or_go_on(
        self, options: argparse.Namespace, lock: FolderLock, begin: Callable[[], Config]
    ) -> Config:
        """Find the configuration of a training that begins, or of one that goes on.

        Args:
            options: The command line. Those named as a field of the configuration must agree with
                a run that goes on; only ``steps`` may change.
            lock: Of the folder.
            begin: Prepares the folder, all but ``config.json``, and tells the configuration.

        Returns:
            The configuration. Where ``steps`` has changed, it is not written yet: the training may
            still be refused.

        Raises:
            UserError: If the folder holds what would be lost, or belongs to another training.
        """
        if self.config_file.exists():
            return self._go_on(options)
        if self.checkpoints.exists() or self.best.exists():
            raise UserError(
                f"{self.folder} holds weights but no config.json; "
                "put the file back, or choose another --run"
            )
        config = begin()
        self.write_config(config, write=lock.write_new)
        return config

    def _go_on(self, options: argparse.Namespace) -> Config:
        if not options.resume:
            raise UserError(f"{self.folder} holds a run; go on with --resume, or choose another")
        config = self.read_config()
        if config.is_old:
            raise UserError(
                f"{self.folder} was trained by an earlier version of this program; it can be used, "
                "but not resumed; begin another --run"
            )
        for name, begun in asdict(config).items():
            wanted = getattr(options, name, None)
            if name != "steps" and wanted is not None and wanted != begun:
                raise UserError(
                    f"{self.folder} was begun with {name}={begun}, got {wanted}; "
                    "leave the option out, or begin another --run"
                )
        if options.steps is not None and options.steps != config.steps:
            config = replace(config, steps=options.steps)
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


def load_best(folder: Path, model: Model, config: Plan) -> Model:
    """Load the best weights of a training into its model, and put that in eval mode.

    Args:
        folder: Of the training.
        model: Receives the weights.
        config: Of the run; the weights must have been trained with it.

    Raises:
        UserError: If there are none, or they are damaged or those of another model.
    """
    checkpoint = latest_checkpoint(folder / "best")
    if checkpoint is None:
        raise UserError(f"{folder / 'best'} holds no weights yet; training has not come so far")
    config.check_trained(checkpoint)
    load_weights(model, checkpoint.tensors["model"], path=checkpoint.path)
    return model.eval()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Read what a training wrote down at each report; lines without its figures are left out."""
    file, rows = folder / "metrics.jsonl", []
    if file.is_file():
        for line in read_text(file, errors="replace").split("\n"):
            try:
                row = load_json(line)
            except ValueError:
                continue
            if is_row(row, REPORTED):
                rows.append(row)
    return rows


def write_metrics(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Write down how a training went, a line of JSON a report, by one rename."""
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    write_atomically(folder / "metrics.jsonl", lines.encode())
