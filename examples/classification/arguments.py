"""Arguments: the commands of ``classify.py`` as dataclasses, which its command line fills in."""

from dataclasses import dataclass, field
from pathlib import Path

from common.errors import UserError
from common.options import Count, RunOptions, TrainingOptions, Words


@dataclass(frozen=True, kw_only=True)
class Train(TrainingOptions):
    """Train a model.

    Attributes:
        run: Folder of the run (default: runs/classify).
        train_file: Labelled training texts (default: toy reviews).
        test_file: Labelled test texts (default: toy reviews).
        steps: Planned number of updates (default: 2000).
        batch_size: Number of texts of a batch (default: 64).
        vocabulary: Maximum vocabulary size (default: 1000 for the toy reviews, else 4000).
        num_layers: Number of layers of the encoder (default: 2).
        d_model: Hidden size (default: 64).
        num_heads: Number of heads of each attention (default: 4).
        d_ff: Inner size of the feed-forward networks (default: 256).
        max_length: Maximum number of tokens of a text (default: 256).
        dropout: Dropout probability (default: 0 for the toy reviews, else 0.1).
        peak_rate: Highest learning rate (default: 0.0015).
    """

    train_file: Path | None = None
    test_file: Path | None = None
    steps: Count | None = None
    batch_size: Count | None = None
    vocabulary: Count | None = None
    num_layers: Count | None = None
    d_model: Count | None = None
    num_heads: Count | None = None
    d_ff: Count | None = None
    max_length: Count | None = None


class Evaluate(RunOptions):
    """Compute the accuracy on the test texts."""


@dataclass(frozen=True)
class Classify(RunOptions):
    """Print the label and its probability for texts.

    Attributes:
        sentences: Texts (default: read standard input).
        file: A file of texts, one per line (default: none).
    """

    sentences: Words = ()
    file: Path | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """Check that the texts are given in one way."""
        if self.sentences and self.file:
            raise UserError("give texts or --file, not both")
