"""A run: the folder of one training, with its configuration, tokenizers, checkpoints and metrics.

The folder holds everything that a training needs or produces, except the data::

    runs/NAME/
        config.json       the configuration (:class:`TrainingConfig`), written when the run begins
        *.model           the tokenizers
        checkpoints/      the last states of the training, to resume from
        best/             the averaged weights with the lowest validation loss, to be used
        snapshots/        the averaged weights at some earlier times, if they are asked for
        metrics.jsonl     a line for each validation
        loss.png          their figure

``config.json`` holds the SHA-256 of its own content, which includes the hashes of the data and of
the tokenizers. And every checkpoint names the configuration that it was trained with by its hash:
the weights of another run are detected even if all their sizes are equal.
"""

import hashlib
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import torch

from common.checkpoint import Checkpoint, checkpoint_paths, latest_checkpoint, load_weights
from common.errors import UserError
from common.files import FolderLock, file_hash, load_json, write_atomically
from common.options import flag
from common.terminal import say
from common.tokenizer import Tokenizer

RUNS = Path("runs")
"""The folder in which runs are looked for."""


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The settings that all trainings have in common; each program adds its own.

    A training is planned in updates (``steps``), in passes over the data (``epochs``) or in
    ``minutes``; if several are set, minutes count before epochs, and epochs before steps.

    Attributes:
        num_layers: Number of layers of the encoder and of the decoder.
        d_model: Hidden size.
        num_heads: Number of heads of each attention.
        d_ff: Inner size of the feed-forward networks.
        dropout: Dropout probability of sublayer outputs and embeddings.
        vocabulary: Maximum number of sentencepiece tokens.
        seed: Seed of the initial weights, of dropout and of the order of the data.
        steps: Planned number of updates.
        epochs: Planned number of passes over the training data.
        minutes: Planned length of the training, in minutes.
        report_steps: Number of updates between two validations; if None, the model is validated
            after each epoch.
        accumulate: Number of batches of each process for one update.
        peak_rate: Highest learning rate, from which the rate falls linearly to zero at the planned
            end; None for the schedule of the paper, which has no end.
        warmup_steps: Number of updates during which the learning rate rises.
        average: Decay of the moving average of the weights; 0 switches averaging off.
        data_hash: SHA-256 of the training, validation and test data.
        tokenizers: SHA-256 of each tokenizer file, by its name without suffix.
    """

    num_layers: int
    d_model: int
    num_heads: int
    d_ff: int
    dropout: float
    vocabulary: int
    seed: int = 0
    steps: int | None = None
    epochs: int | None = None
    minutes: float | None = None
    report_steps: int | None = None
    accumulate: int = 1
    peak_rate: float | None
    warmup_steps: int
    average: float
    data_hash: str = ""
    tokenizers: dict[str, str] = field(default_factory=dict)

    CHANGEABLE: ClassVar[tuple[str, ...]] = ("steps",)
    """Fields that may change when a run is resumed."""
    TOKENIZERS: ClassVar[tuple[str, ...]] = ("tokenizer",)
    """Names of the tokenizers of a run."""

    @property
    def tokenizer_names(self) -> tuple[str, ...]:
        """The name of the file of each tokenizer in ``TOKENIZERS``; two may share a file."""
        return self.TOKENIZERS

    @property
    def sizes(self) -> dict[str, Any]:
        """The sizes of the layers, as arguments of a model."""
        names = "num_layers", "d_model", "num_heads", "d_ff", "dropout"
        return {name: getattr(self, name) for name in names}

    def build(self, *vocabularies: int) -> Any:
        """Build the program's model with fresh weights.

        Args:
            vocabularies: Number of token ids of each tokenizer, in the order of ``TOKENIZERS``.
        """
        raise NotImplementedError

    @property
    def identity(self) -> str:
        """The SHA-256 of all fields that may not change while a run is trained."""
        fields = asdict(self).items()
        return _hash({name: value for name, value in fields if name not in self.CHANGEABLE})

    def check_data(self, fingerprint: str) -> None:
        """Check that the data of a run are those that it began with.

        Args:
            fingerprint: SHA-256 of the data as they are now.

        Raises:
            UserError: If they are not.
        """
        if self.data_hash not in ("", fingerprint):
            raise UserError(
                "the data have changed since the run began, so that its test data may have been "
                "trained on; begin another --run"
            )

    def check_trained(self, checkpoint: Checkpoint) -> None:
        """Check that a checkpoint, whose state names its configuration, was trained with this one.

        Raises:
            UserError: If it was trained with another one.
        """
        if checkpoint.state.get("config") != self.identity:
            raise UserError(
                f"{checkpoint.path} belongs to another run, or was trained with another "
                "configuration than that of config.json; restore the original files"
            )


AnyConfig = TypeVar("AnyConfig", bound=TrainingConfig)


class Run(Generic[AnyConfig]):
    """The folder of a training: its paths, and how its files are written and read.

    Args:
        folder: The folder, such as ``runs/toy``.
        kind: The dataclass of the run's configuration.
    """

    def __init__(self, folder: Path, kind: type[AnyConfig]) -> None:
        self.folder, self.kind = folder, kind
        self.config_file = folder / "config.json"  # written last: without it there is no run
        self.checkpoints, self.best = folder / "checkpoints", folder / "best"
        self.snapshots = folder / "snapshots"
        self.metrics, self.picture = folder / "metrics.jsonl", folder / "loss.png"

    def tokenizer_file(self, name: str = "tokenizer") -> Path:
        """Return the path of a tokenizer, one of ``TrainingConfig.tokenizer_names``."""
        return self.folder / f"{name}.model"

    # The configuration

    def write_config(
        self, config: AnyConfig, *, write: Callable[[Path, bytes], None] = write_atomically
    ) -> None:
        """Write ``config.json`` atomically, with the SHA-256 of its content."""
        content = asdict(config)
        sealed = content | {"sha256": _hash(content)}
        write(self.config_file, (json.dumps(sealed, indent=2) + "\n").encode())

    def read_config(self) -> AnyConfig:
        """Read ``config.json``.

        Raises:
            UserError: If it is missing, damaged, changed or of another program.
        """
        if not self.config_file.is_file():
            raise UserError(f"{self.folder} holds no run (no config.json); train one first")
        try:
            content = load_json(self.config_file.read_text(encoding="utf-8"))
            if content.pop("sha256") != _hash(content):
                raise ValueError("its content does not have its checksum")
            return self.kind(**content)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            options = " or ".join(map(flag, self.kind.CHANGEABLE))
            raise UserError(
                f"{self.config_file} was changed, or is of another program: {error}; restore the "
                f"file that the training wrote (train --resume accepts a new {options})"
            ) from error

    def choose_config(
        self, new: AnyConfig, chosen: Mapping[str, Any], *, resume: bool
    ) -> AnyConfig:
        """Return the configuration of the run that is resumed, or else of the new one.

        Args:
            new: The configuration of a new run, which :meth:`begin` is to complete.
            chosen: The fields that the command line sets. A run that is resumed must have been
                begun with the same values, those of ``TrainingConfig.CHANGEABLE`` excepted.
            resume: Whether a run that exists is to be resumed.

        Returns:
            The configuration. If its plan has changed, the file is not written yet: the training
            may still refuse it.

        Raises:
            UserError: If the folder holds files that would be lost, or another training's.
        """
        if self.config_file.exists():
            if resume:
                return self._resume(chosen)
            raise UserError(
                f"{self.folder} holds a run; resume it with --resume, or choose another --run"
            )
        if self.checkpoints.exists() or self.best.exists():
            raise UserError(
                f"{self.folder} holds weights but no config.json; "
                "restore that file, or choose another --run"
            )
        return new

    def _resume(self, chosen: Mapping[str, Any]) -> AnyConfig:
        config = self.read_config()
        begun = asdict(config)
        changes = {}
        for name, value in chosen.items():
            if name in config.CHANGEABLE:
                changes[name] = value
            elif name in begun and value != begun[name]:
                raise UserError(
                    f"{self.folder} was begun with {name}={begun[name]}, got {value}; "
                    "leave the option out, or begin another --run"
                )
        if "epochs" in changes:
            changes.setdefault("minutes", None)
        return replace(config, **changes)

    # The tokenizers

    def begin(
        self, config: AnyConfig, texts: Mapping[str, Sequence[str]], lock: FolderLock
    ) -> AnyConfig:
        """Train the tokenizers of a new run, and write its configuration.

        Sizes that do not go together are refused before: a tokenizer may take minutes.

        Args:
            config: The configuration, but for the hashes of the tokenizers.
            texts: The training texts of each tokenizer, by its name.
            lock: The lock of the folder.

        Returns:
            The whole configuration.
        """
        hashes, size = {}, config.vocabulary
        self.build(config, [size for _ in config.TOKENIZERS])
        for name, sentences in texts.items():
            path = self.tokenizer_file(name)
            Tokenizer.train(sentences, vocab_size=size, path=path, write=lock.write_new)
            hashes[name] = file_hash(path)
        config = replace(config, tokenizers=hashes)
        self.write_config(config, write=lock.write_new)
        return config

    def load_tokenizers(self, config: AnyConfig) -> list[Tokenizer]:
        """Load the tokenizers, in the order of ``TrainingConfig.TOKENIZERS``.

        Raises:
            OSError: If one is missing.
            UserError: If one is damaged or from another run.
        """
        tokenizers = []
        for name in config.tokenizer_names:
            path = self.tokenizer_file(name)
            if file_hash(path) != config.tokenizers.get(name):
                raise UserError(
                    f"{path} is not the tokenizer that this run was trained with, or it is "
                    "damaged; restore the file that the training wrote"
                )
            tokenizers.append(Tokenizer(path.read_bytes()))
        return tokenizers

    # The model

    def build(self, config: AnyConfig, vocabularies: Sequence[int]) -> Any:
        """Build the model of a configuration with fresh weights.

        Args:
            config: The configuration.
            vocabularies: Number of token ids of each tokenizer.

        Raises:
            UserError: If the sizes do not go together, or the weights do not fit into the memory.
        """
        try:
            return config.build(*vocabularies)
        except (KeyError, RuntimeError, TypeError, ValueError) as error:
            raise UserError(f"these settings do not make a valid model: {error}") from error

    def load(self, device: torch.device) -> tuple[AnyConfig, Any, list[Tokenizer]]:
        """Load a trained run.

        Args:
            device: The device to compute on.

        Returns:
            The configuration, the model with the best weights in evaluation mode, and the
            tokenizers.

        Raises:
            UserError: If the run is missing, unfinished or damaged.
        """
        config = self.read_config()
        tokenizers = self.load_tokenizers(config)
        model = self.build(config, [each.vocab_size for each in tokenizers])
        checkpoint = latest_checkpoint(self.best)
        if checkpoint is None:
            raise UserError(
                f"{self.best} holds no weights yet; training has not reached its first validation"
            )
        config.check_trained(checkpoint)
        load_weights(model, checkpoint.tensors["model"], path=checkpoint.path)
        return config, model.to(device).eval(), tokenizers


def choose_run(folder: Path | None, kind: type[AnyConfig], *, train: str) -> Run[AnyConfig]:
    """Return the run that ``--run`` names, or else the latest trained one, and print its name.

    A run is skipped if it is of another program, its configuration is damaged, or it has no weights
    yet.

    Args:
        folder: The folder that the command line names; None to choose one.
        kind: The configuration of the program's runs.
        train: The command that trains a run, for the error message.

    Raises:
        UserError: If ``folder`` is None and there is no trained run.
    """
    if folder is not None:
        return Run(folder, kind)
    trained = []
    for file in RUNS.glob("*/config.json"):
        run = Run(file.parent, kind)
        with suppress(OSError, UserError):
            run.read_config()
            trained += [(path.stat().st_mtime, run.folder) for path in checkpoint_paths(run.best)]
    if not trained:
        raise UserError(
            f"{RUNS}/ holds no trained run of this program; train one with {train}, or name one "
            "with --run"
        )
    _, latest = max(trained)
    say(f"run: {latest} (the latest; choose with --run)", file=sys.stderr)
    return Run(latest, kind)


def _hash(content: Mapping[str, object]) -> str:
    """Compute the SHA-256 of fields of a configuration."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
