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
    Few,
    Flag,
    Paths,
    Positive,
    RunOptions,
    SamplingOptions,
    TrainingOptions,
    Words,
    flag,
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
        compile: Compile the model with torch.compile; faster on a GPU.
        save_steps: Updates between two checkpoints within an epoch.
        snapshots: Keep the weights of about a dozen earlier updates, for a slider on the explorer
            page.
        keep: Number of checkpoints that are kept, besides the best.
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
    accumulate: Few | None = None
    shared_vocabulary: Annotated[bool | None, Parameter(negative="--no-shared-vocabulary")] = None
    compile: Flag = False
    save_steps: Count = 1000
    snapshots: Flag = False
    keep: Few = 2

    def __post_init__(self) -> None:
        """Check that there is one plan."""
        if self.minutes is not None and self.epochs is not None:
            raise UserError("--minutes cannot be combined with --epochs")


@dataclass(frozen=True, kw_only=True)
class BeamOptions:
    """Options of beam search.

    Attributes:
        beam: Beam size; 1 is greedy decoding (default: 5).
        length_penalty: Length penalty; larger values favour longer sentences (default: 1.4).
        batch_tokens: Maximum number of source tokens of a batch.
    """

    beam: Count | None = None
    length_penalty: Exponent | None = None
    batch_tokens: Count = 1024

    @property
    def beam_size(self) -> int:
        """The beam size, also if the command line sets none."""
        return BEAM_SIZE if self.beam is None else self.beam


@dataclass(frozen=True, kw_only=True)
class DecodingOptions(RunOptions, SamplingOptions, BeamOptions):
    """Options of the commands that translate.

    Attributes:
        average_last: Use the mean of this number of last checkpoints (default: the best weights).
        int8: Multiply 8-bit integers in all linear layers, on a CPU; faster, and BLEU may change by
            0.4.
        sample: Sample instead of beam search.
    """

    average_last: Few | None = None
    int8: Flag = False
    sample: Flag = False

    def __post_init__(self) -> None:
        """Check that options of beam search and of sampling are not combined."""
        if not self.sample:
            self.check_greedy("requires --sample")
        for name in ("beam", "length_penalty"):
            if self.sample and getattr(self, name) is not None:
                raise UserError(f"{flag(name)} cannot be combined with --sample")


@dataclass(frozen=True)
class Translate(DecodingOptions):
    """Translate sentences.

    Attributes:
        sentences: Sentences (default: read standard input).
        file: A file of sentences, one per line (default: none).
        n_best: Number of translations to print for each sentence; if above 1, each line holds the
            number of the sentence, the log-probability and the text.
        engine: What computes the translations; ctranslate2 is faster, on a CPU.
    """

    sentences: Words = ()
    file: Path | None = field(default=None, kw_only=True)
    n_best: Few = field(default=1, kw_only=True)
    engine: Literal["torch", "ctranslate2"] = field(default="torch", kw_only=True)

    def __post_init__(self) -> None:
        """Check that options are not combined that exclude each other."""
        super().__post_init__()
        if self.sentences and self.file:
            raise UserError("give sentences or --file, not both")
        if self.engine == "ctranslate2" and (self.sample or self.n_best > 1):
            raise UserError(f"--{'sample' if self.sample else 'n-best'} requires --engine torch")
        if self.n_best > self.beam_size and not self.sample:
            raise UserError(
                f"--n-best {self.n_best} requires a beam of at least that size, got --beam "
                f"{self.beam_size}"
            )


@dataclass(frozen=True, kw_only=True)
class Evaluate(DecodingOptions):
    """Score translations of the test sentences.

    Attributes:
        output: File to write the translations to (default: none).
        test_source: Sentences to score (default: the run's test sentences).
        test_target: Their translations (default: the run's).
    """

    output: Path | None = None
    test_source: Path | None = None
    test_target: Path | None = None


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
    """Write a page with the attention weights of every layer and head.

    Attributes:
        sentence: Sentence to translate (default: a test sentence of the run).
        output: Page to write (default: explorer.html in the run).
        no_model: Leave out the model, which translates any sentence there.
    """

    sentence: str | None = None
    output: Path | None = None
    no_model: Flag = False


@dataclass(frozen=True, kw_only=True)
class Align(RunOptions, BeamOptions):
    """Print which subwords of a translation translate which ones of the source.

    Attributes:
        sentence: Source sentence (default: a test sentence of the run).
        translation: Its translation (default: that of the run's model).
    """

    sentence: str | None = None
    translation: str | None = None


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write a trained Transformer for another engine.

    Attributes:
        to: Format to write.
        run: Folder of the run (default: the latest trained run in runs/).
        output: Folder to write (default: in the run, named as --to, with -int8 if so).
        average_last: Use the mean of this number of last checkpoints (default: the best weights).
        int8: Store the weights as 8-bit integers.
    """

    to: Literal["ctranslate2"]
    run: Path | None = None
    output: Path | None = None
    average_last: Few | None = None
    int8: Flag = False


COMMANDS = Train, Translate, Evaluate, Compare, Explore, Align, Export
"""The commands."""
