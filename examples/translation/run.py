"""A run: the folder that holds everything one training needs, and nothing outside it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch

from common.checkpoint import (
    Checkpoint,
    average_last,
    check_definition,
    latest_checkpoint,
    load_weights,
)
from common.configuration import check_fields, is_row, load_json, read_content, write_config
from common.errors import UserError
from common.files import file_hash, read_text, write_atomically
from common.tokenizer import Tokenizer
from translation.corpus import Corpus, Files, load_corpus
from translation.presets import Settings
from translation.translator import Translator

FORMAT_VERSION = 4
"""The first that is sealed: the file holds its own SHA-256, and checkpoints its content."""
SPLIT_FILES = ("valid_source", "valid_target", "test_source", "test_target")
"""Names of the fields of :class:`Config` that hold files of validation and test pairs."""
WRITTEN_DOWN = {
    *("epoch", "step", "train_loss", "validation_loss", "validation_bleu"),
    *("tokens_per_second", "minutes"),
}
"""What a line of ``metrics.jsonl`` says."""


@dataclass(frozen=True)
class Config:
    """What a run is: its data, its settings, its seed; ``config.json`` in words.

    Attributes:
        corpus: "toy", "small_parallel_enja" or "files".
        source_language: Of the sentences read.
        target_language: Of the sentences written.
        data_dir: Where the corpus lies, if not in its usual place.
        source_file: With "files", the training sentences.
        target_file: With "files", their translations, line by line.
        valid_source: With "files", the validation sentences; held out from training if not given.
        valid_target: Their translations.
        test_source: With "files", the test sentences; held out from training if not given.
        test_target: Their translations.
        seed: Of weights, dropout and data order.
        preset: Where the settings come from.
        settings: Sizes and training plan.
        minutes: The planned length of the training, if it is not ``settings.epochs``.
        corpus_hash: ``Corpus.fingerprint``.
        tokenizers: SHA-256 of the two tokenizer models.
        format_version: Of the file that it was read from.
    """

    corpus: str
    source_language: str
    target_language: str
    data_dir: str | None
    source_file: str | None
    target_file: str | None
    valid_source: str | None
    valid_target: str | None
    test_source: str | None
    test_target: str | None
    seed: int
    preset: str
    settings: Settings
    minutes: float | None
    corpus_hash: str
    tokenizers: dict[str, str]
    format_version: int = field(default=FORMAT_VERSION, compare=False)

    @property
    def definition(self) -> dict[str, Any]:
        """All that may not change while a run is trained, as its checkpoints hold it."""
        content = asdict(self)
        for name in ("minutes", "data_dir", "format_version"):
            del content[name]
        del content["settings"]["epochs"]
        return content


@dataclass(frozen=True)
class Run:
    """The paths of a run, such as ``runs/toy``."""

    folder: Path

    @property
    def config_file(self) -> Path:
        """Written last when a run begins: a folder without it holds no run."""
        return self.folder / "config.json"

    @property
    def checkpoints(self) -> Path:
        """Where training goes on from."""
        return self.folder / "checkpoints"

    @property
    def best(self) -> Path:
        """The averaged weights with the lowest validation loss: what translates."""
        return self.folder / "best"

    @property
    def metrics(self) -> Path:
        """A line of JSON an epoch."""
        return self.folder / "metrics.jsonl"

    def tokenizer_file(self, side: str) -> Path:
        """The sentencepiece model of a side, "source" or "target"."""
        return self.folder / f"{side}.model"

    def write_config(
        self, config: Config, *, write: Callable[[Path, bytes], None] = write_atomically
    ) -> None:
        """Write ``config.json`` by one rename."""
        write_config(self.config_file, config, write=write)

    def read_config(self) -> Config:
        """Read ``config.json``.

        Raises:
            UserError: If it is missing, damaged, changed or of a newer version.
        """
        content, intact = read_content(
            self.config_file, version=FORMAT_VERSION, sealed_since=FORMAT_VERSION
        )
        try:
            if content["format_version"] < 2:  # there was but one model
                content["settings"]["model"] = "transformer"
            if content["format_version"] < 3:  # and one batch an update
                content["settings"]["accumulate"] = 1
            if content["format_version"] < 4:  # validation and test pairs were always held out
                content |= dict.fromkeys(SPLIT_FILES)
            check_fields(Settings, content["settings"])
            content["settings"] = Settings(**content["settings"])
            check_fields(Config, content)
            config = Config(**content)
        except KeyError as error:
            raise UserError(f"{self.config_file} is damaged: it lacks {error}") from error
        except (AttributeError, TypeError, ValueError) as error:
            raise UserError(f"{self.config_file} is damaged: {error}") from error
        if not intact:
            self._check_saved(config)  # may tell what has changed
            raise UserError(
                f"{self.config_file} has changed since the training wrote it; put it back "
                "(train --resume takes another --epochs, --minutes or --data-dir)"
            )
        return config

    def _check_saved(self, config: Config) -> None:
        """Raise if a checkpoint shows what was changed in a configuration."""
        for folder in (self.best, self.checkpoints):
            checkpoint = latest_checkpoint(folder)
            if checkpoint is not None:
                self.check_definition(config, checkpoint)

    def check_definition(self, config: Config, checkpoint: Checkpoint) -> None:
        """Check that a checkpoint was trained with a configuration.

        Raises:
            UserError: If it was trained with another one; it names what differs.
        """
        is_old = config.format_version < FORMAT_VERSION
        check_definition(checkpoint, config.definition, file=self.config_file, is_old=is_old)

    def read_metrics(self) -> list[dict[str, Any]]:
        """Read what was written down after each epoch.

        Raises:
            UserError: If there is nothing, or it is damaged.
        """
        if not self.metrics.is_file():
            raise UserError(f"{self.metrics} is missing")
        try:
            rows = [load_json(line) for line in read_text(self.metrics).split("\n") if line]
            if not rows or not all(is_row(row, WRITTEN_DOWN) for row in rows):
                raise ValueError("an epoch or a figure is missing, or out of its range")
            checkpoint = latest_checkpoint(self.checkpoints)
            saved = [] if checkpoint is None else checkpoint.state.get("metrics", [])
            if rows[: len(saved)] != saved:
                raise ValueError(f"it differs from what {self.checkpoints} holds")
            more = len(rows) - len(saved)
            if checkpoint is not None and more > 1:  # a row is written before its checkpoint
                raise ValueError(f"it holds {more} epochs more than {self.checkpoints}")
            if [row["epoch"] for row in rows] != [*range(1, len(rows) + 1)]:
                raise ValueError("the epochs are not counted from 1")
            for name in ("step", "minutes"):
                if any(after[name] < before[name] for before, after in pairwise(rows)):
                    raise ValueError(f"{name} falls from one epoch to the next")
        except ValueError as error:
            raise UserError(f"{self.metrics} is damaged: {error}") from error
        return rows

    def load_tokenizers(self, config: Config) -> tuple[Tokenizer, Tokenizer]:
        """Load both tokenizers and see that they are this run's.

        Raises:
            UserError: If one is missing, damaged or from another run.
        """
        tokenizers = []
        for side in ("source", "target"):
            path = self.tokenizer_file(side)
            tokenizers.append(Tokenizer.load(path))
            if file_hash(path) != config.tokenizers.get(side):
                raise UserError(f"{path} is not the tokenizer that this run was trained with")
        return tokenizers[0], tokenizers[1]

    def load_best(
        self, device: torch.device, *, last: int | None = None
    ) -> tuple[Config, Translator, Tokenizer, Tokenizer]:
        """Load what translates: the best weights, in eval mode, with both tokenizers.

        Args:
            device: Where to compute.
            last: Take the mean of the weights of so many checkpoints instead, the last ones.

        Raises:
            UserError: If the run is missing, unfinished or damaged.
        """
        config = self.read_config()
        source, target = self.load_tokenizers(config)
        if last is not None:
            weights = average_last(
                *(self.checkpoints, last),
                group="model",
                check=lambda checkpoint: self.check_definition(config, checkpoint),
            )
            path = self.checkpoints
        else:
            checkpoint = latest_checkpoint(self.best)
            if checkpoint is None:
                raise UserError(
                    f"{self.best} holds no weights yet; training has not ended an epoch"
                )
            self.check_definition(config, checkpoint)
            weights, path = checkpoint.tensors["model"], checkpoint.path
        model = config.settings.build(source.vocab_size, target.vocab_size)
        load_weights(model, weights, path=path)
        return config, model.to(device).eval(), source, target


def corpus_of(config: Config) -> Corpus:
    """Load the corpus that a configuration names, and see that it is still the same."""
    corpus = load_corpus(
        config.corpus,
        source_language=config.source_language,
        target_language=config.target_language,
        data_dir=None if config.data_dir is None else Path(config.data_dir),
        files=_both(config.source_file, config.target_file),
        validation_files=_both(config.valid_source, config.valid_target),
        test_files=_both(config.test_source, config.test_target),
    )
    if config.corpus_hash and config.corpus_hash != corpus.fingerprint:
        raise UserError(
            f"the corpus {config.corpus} has changed since the run began, so that its test "
            "sentences may have been trained on; begin another --run"
        )
    return corpus


def _both(source: str | None, target: str | None) -> Files | None:
    """Make a pair of paths, if there is one."""
    return None if source is None or target is None else (Path(source), Path(target))
