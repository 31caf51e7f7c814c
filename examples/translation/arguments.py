"""Arguments: the commands of ``translate.py`` as dataclasses, which its command line fills in."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from common.errors import UserError
from common.options import (
    Count,
    DeviceOptions,
    Exponent,
    Flag,
    Paths,
    Positive,
    RunOptions,
    TrainingOptions,
    Words,
)

TRAIN = "python examples/translate.py train"
"""The command that trains a run."""
BEAM_SIZE, LENGTH_PENALTY = 5, 1.4  # chosen on validation sentences


@dataclass(frozen=True, kw_only=True)
class Train(TrainingOptions):
    """Train a model.

    Attributes:
        run: Folder of the run (default: runs/CORPUS).
        corpus: Training corpus (default: toy).
        source_language: Source language (default: ja; for files the end of their names, train.de).
        target_language: Target language (default: en; for files the end of their names).
        data_dir: Folder that holds the files of the corpus (default: data/small_parallel_enja, to
            which it is downloaded).
        source_file: Training sentences, one per line, with --corpus files (default: none).
        target_file: Their translations, line by line, with --corpus files (default: none).
        valid_source: Validation sentences, with --corpus files (default: 5 % of the training
            sentences, at most 500, which are held out).
        valid_target: Their translations (default: held out).
        test_source: Test sentences, with --corpus files (default: held out, as for
            --valid-source).
        test_target: Their translations (default: held out).
        model: A Transformer, or a recurrent model (default: transformer).
        preset: Sizes and training plan (default: by the size of the corpus).
        vocabulary: Largest vocabulary size of each language, in subwords (default by preset: tiny
            800, small 4000, base 37000).
        batch_tokens: Maximum number of tokens on either side of a batch, padding included (default
            by preset: tiny 800, small 600, base 12500).
        dropout: Dropout probability (default by preset: tiny 0.1, small 0.15, base 0.1; 0.2 for a
            recurrent model).
        peak_rate: Highest learning rate (default by preset: tiny 0.003, small 0.0012, base the
            schedule of the paper; 0.0025 for a recurrent model).
        minutes: Planned length of the training, in minutes (default: see --epochs).
        epochs: Planned number of epochs, instead of --minutes (default by preset: tiny 4, small
            16, base 100).
        accumulate: Gradient accumulation: batches of each process per update (default: 1).
        shared_vocabulary: One vocabulary and one embedding matrix for both languages, as in
            section 3.4 of the paper (default: only with --preset base).
        save_steps: Updates between two checkpoints within an epoch.
        snapshots: Keep the weights of about a dozen earlier updates, for a slider on the explorer
            page.
    """

    corpus: Literal["toy", "small_parallel_enja", "files"] | None = None
    source_language: Annotated[str | None, Parameter("--from")] = None
    target_language: Annotated[str | None, Parameter("--to")] = None
    data_dir: Path | None = None
    source_file: Path | None = None
    target_file: Path | None = None
    valid_source: Path | None = None
    valid_target: Path | None = None
    test_source: Path | None = None
    test_target: Path | None = None
    model: Literal["transformer", "rnn", "rnn-additive", "rnn-fixed"] | None = None
    preset: Literal["tiny", "small", "base"] | None = None
    vocabulary: Count | None = None
    batch_tokens: Count | None = None
    minutes: Positive | None = None
    epochs: Count | None = None
    accumulate: Count | None = None
    shared_vocabulary: Annotated[bool | None, Parameter(negative="--no-shared-vocabulary")] = None
    save_steps: Count = 1000
    snapshots: Flag = False


@dataclass(frozen=True, kw_only=True)
class BeamOptions:
    """Options of beam search.

    Attributes:
        beam: Beam size; 1 is greedy decoding.
        length_penalty: Length penalty; larger values favour longer sentences.
    """

    beam: Count = BEAM_SIZE
    length_penalty: Exponent = LENGTH_PENALTY


@dataclass(frozen=True, kw_only=True)
class DecodingOptions(RunOptions, BeamOptions):
    """Options of a command that decodes.

    Attributes:
        int8: Compute linear layers with 8-bit integers; on a CPU.
    """

    int8: Flag = False


@dataclass(frozen=True)
class Translate(DecodingOptions):
    """Translate sentences.

    Attributes:
        sentences: Sentences (default: read standard input).
        file: A file of sentences, one per line (default: none).
        engine: What computes the translations; ctranslate2 is faster, on a CPU.
    """

    sentences: Words = ()
    file: Path | None = field(default=None, kw_only=True)
    engine: Literal["torch", "ctranslate2"] = field(default="torch", kw_only=True)

    def __post_init__(self) -> None:
        """Check that the sentences are given in one way."""
        if self.sentences and self.file:
            raise UserError("give sentences or --file, not both")


@dataclass(frozen=True, kw_only=True)
class Evaluate(DecodingOptions):
    """Score translations of the test sentences.

    Attributes:
        output: File to write the translations to (default: none).
    """

    output: Path | None = None


@dataclass(frozen=True)
class Compare(DeviceOptions, BeamOptions):
    """Score several runs on the same test sentences.

    Attributes:
        runs: Folders of runs of one corpus.
        output: Folder for figures and results.
    """

    runs: Paths
    output: Path = field(default=Path("runs/compare"), kw_only=True)


@dataclass(frozen=True, kw_only=True)
class Explore(RunOptions, BeamOptions):
    """Write a page with the attention weights of every layer and head, and the model.

    Attributes:
        sentence: Sentence to translate (default: a test sentence of the run).
        output: Page to write (default: explorer.html in the run).
    """

    sentence: str | None = None
    output: Path | None = None


@dataclass(frozen=True, kw_only=True)
class Align(RunOptions, BeamOptions):
    """Print which subword of a sentence each subword of its translation translates.

    Attributes:
        sentence: Source sentence (default: a test sentence of the run).
        translation: Its translation (default: that of the run's model).
    """

    sentence: str | None = None
    translation: str | None = None

    def __post_init__(self) -> None:
        """Check that a translation has its source."""
        if self.translation is not None and self.sentence is None:
            raise UserError("--translation requires --sentence")


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write a trained Transformer for another engine.

    Attributes:
        to: Format to write.
        run: Folder of the run (default: the latest trained run in runs/).
        output: Folder to write (default: in the run, named as --to, with -int8 if so).
        int8: Store the weights as 8-bit integers.
    """

    to: Literal["ctranslate2"]
    run: Path | None = None
    output: Path | None = None
    int8: Flag = False


COMMANDS = Train, Translate, Evaluate, Compare, Explore, Align, Export
"""The commands."""
