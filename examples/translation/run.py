"""A run: the folder that holds everything one training needs, and nothing outside it."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, get_origin, get_type_hints

import torch

from translation.checkpoint import average_last, latest_checkpoint, load_weights
from translation.corpus import Corpus, Files, load_corpus
from translation.errors import UserError
from translation.presets import Settings
from translation.tokenizer import Tokenizer
from translation.translator import Translator

try:
    import fcntl
except ImportError:  # Windows: two trainings in one folder are up to the user there
    fcntl = None  # type: ignore[assignment]

FORMAT_VERSION = 4
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

    def write_config(self, config: Config) -> None:
        """Write ``config.json`` by one rename."""
        content = {"format_version": FORMAT_VERSION, **asdict(config)}
        partial = self.folder / ".config.json.part"
        text = json.dumps(content, indent=2)
        partial.write_text(text + "\n", encoding="utf-8")
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
            if version < 2:  # there was but one model
                content["settings"]["model"] = "transformer"
            if version < 3:  # and one batch an update
                content["settings"]["accumulate"] = 1
            if version < 4:  # validation and test pairs were always held out
                content |= dict.fromkeys(SPLIT_FILES)
            _check_types(Settings, content["settings"])
            content["settings"] = Settings(**content["settings"])
            _check_types(Config, content)
            config = Config(**content)
            for name, size in (("epochs", config.settings.epochs), ("minutes", config.minutes)):
                if size is not None and not size > 0:
                    raise ValueError(f"{name} must be above 0, got {size}")
            return config
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise UserError(f"{self.config_file} is damaged: {error}") from error

    def read_metrics(self) -> list[dict[str, Any]]:
        """Read what was written down after each epoch.

        Raises:
            UserError: If there is nothing, or it is damaged.
        """
        if not self.metrics.is_file():
            raise UserError(f"{self.metrics} is missing")
        try:
            lines = self.metrics.read_text(encoding="utf-8").split("\n")
            rows = [json.loads(line) for line in lines if line]
            if not rows or not all(row.keys() >= WRITTEN_DOWN for row in rows):
                raise ValueError("an epoch or a figure is missing")
        except (AttributeError, ValueError) as error:
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
        model = config.settings.build(source.vocab_size, target.vocab_size)
        if last is not None:
            weights = average_last(self.checkpoints, last, group="model")
            load_weights(model, weights, path=self.checkpoints)
            return config, model.to(device).eval(), source, target
        checkpoint = latest_checkpoint(self.best)
        if checkpoint is None:
            raise UserError(f"{self.best} holds no weights yet; training has not ended an epoch")
        load_weights(model, checkpoint.tensors["model"], path=checkpoint.path)
        return config, model.to(device).eval(), source, target


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Keep other trainings from a folder: lock one of its files, as long as the process lives.

    Raises:
        UserError: If another training holds it.
    """
    with file.open("rb") as opened:
        if fcntl is not None:
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise UserError(f"another training is at work in {file.parent}") from error
        yield


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


def _check_types(kind: type, content: dict[str, Any]) -> None:
    """Raise unless each value of ``content`` has the type of the field that it is for."""
    for name, hint in get_type_hints(kind).items():
        allowed = get_origin(hint) if get_origin(hint) is dict else hint
        value = content[name]
        is_int_for_float = isinstance(value, int) and isinstance(1.0, allowed)
        if not (isinstance(value, allowed) or is_int_for_float):
            raise TypeError(f"{name} must be {hint}, got {value!r}")


def file_hash(path: Path) -> str:
    """Compute the SHA-256 of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()
