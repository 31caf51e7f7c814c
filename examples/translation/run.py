"""A translator's run: loading the model with its tokenizers."""

from pathlib import Path
from typing import NamedTuple

import torch

from common.run import Run
from common.tokenizer import Tokenizer
from translation.presets import Config
from translation.translator import Translator

FIGURES = frozenset({"validation_bleu", "tokens_per_second"})
"""The metrics of a translator, besides those of every training."""


class TrainedTranslator(NamedTuple):
    """A translator that was trained, with all that is needed to use it.

    Attributes:
        config: The configuration of its run.
        model: The model, in evaluation mode.
        source: The tokenizer of the source language.
        target: The tokenizer of the target language.
    """

    config: Config
    model: Translator
    source: Tokenizer
    target: Tokenizer


def load_translator(
    run: Run[Config], device: torch.device, *, last: int | None = None
) -> TrainedTranslator:
    """Load the best weights of a run, with both tokenizers.

    Args:
        run: The run.
        device: The device to compute on.
        last: Load the mean of the weights of this many checkpoints instead, the last ones.

    Raises:
        UserError: If the run is missing, unfinished or damaged.
    """
    config = run.read_config()
    source, target = run.load_tokenizers(config)
    model = config.build(source.vocab_size, target.vocab_size)
    model = run.load_best(model, config, last=last)
    return TrainedTranslator(config, model.to(device), source, target)


def page_of(run: Run[Config]) -> Path:
    """Return the page of a run with its attention weights."""
    return run.folder / "explorer.html"
