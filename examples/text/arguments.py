"""Arguments: the commands of ``generate_text.py`` as dataclasses."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from common.options import Count, Flag, RunOptions, SamplingOptions, TrainingOptions, Words


@dataclass(frozen=True, kw_only=True)
class Train(TrainingOptions):
    """Train a model.

    Attributes:
        run: Folder of the run (default: runs/text).
        text: Training text (default: toy stories).
        style: Style of the model's parts (default: today).
        steps: Planned number of updates (default: 1000).
        batch_size: Number of sequences of a batch (default: 16).
        context: Number of tokens of a sequence, and the most that the model processes at once
            (default: 128).
        vocabulary: Maximum vocabulary size (default: 400 for the toy stories, else 2000).
        num_layers: Number of layers (default: 2).
        d_model: Hidden size (default: 128).
        num_heads: Number of heads of each attention (default: 4).
        d_ff: Inner size of the feed-forward networks (default: 384).
        dropout: Dropout probability (default: 0 for the toy stories, else 0.1).
        peak_rate: Highest learning rate (default: 0.002).
    """

    text: Path | None = None
    style: Literal["2017", "today"] | None = None
    steps: Count | None = None
    batch_size: Count | None = None
    context: Count | None = None
    vocabulary: Count | None = None
    num_layers: Count | None = None
    d_model: Count | None = None
    num_heads: Count | None = None
    d_ff: Count | None = None


class Evaluate(RunOptions):
    """Compare the perplexity with that of n-grams."""


@dataclass(frozen=True)
class Generate(RunOptions, SamplingOptions):
    """Continue prompts.

    Attributes:
        prompts: The prompts (default: a new line).
        length: Number of tokens to generate.
        greedy: Decode greedily instead of sampling.
    """

    prompts: Words = ()
    length: Count = field(default=120, kw_only=True)
    greedy: Flag = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        """Check that options of sampling are not combined with greedy decoding."""
        if self.greedy:
            self.check_greedy("cannot be combined with --greedy")


@dataclass(frozen=True)
class Explore(RunOptions):
    """Write a page with all attention weights, and the model.

    Attributes:
        prompt: The beginning of a text (default: a new line).
        length: Number of tokens to generate.
        output: Page to write (default: explorer.html in the run).
    """

    prompt: str = ""
    length: Count = field(default=24, kw_only=True)
    output: Path | None = field(default=None, kw_only=True)
