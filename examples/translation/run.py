"""A translator's run: its corpus, and its trained model with the tokenizers."""

from pathlib import Path
from typing import NamedTuple

import torch

from common.errors import UserError
from common.run import Run
from common.tokenizer import Tokenizer
from translation.corpus import Corpus, load_corpus
from translation.presets import Config
from translation.transformer import Transformer
from translation.translator import Translator

FIGURES = frozenset({"validation_bleu", "tokens_per_second"})
"""The metrics of a translator, besides those of every training."""


def corpus_of(config: Config) -> Corpus:
    """Load the corpus of a run, and check that it is unchanged.

    Raises:
        UserError: If the corpus has changed since the run began.
    """
    data_dir = None if config.data_dir is None else Path(config.data_dir)
    corpus = load_corpus(config.languages, data_dir=data_dir, files=config.files)
    if config.data_hash and config.data_hash != corpus.fingerprint:
        raise UserError(
            f"the corpus {config.corpus} has changed since the run began, so that its test "
            "sentences may have been trained on; begin another --run"
        )
    return corpus


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


def check_transformer(run: Run[Config], trained: TrainedTranslator, done: str) -> Transformer:
    """Return the model of a run, which is to be exported or compiled.

    Raises:
        UserError: If it is no Transformer.
    """
    if not isinstance(trained.model, Transformer):
        raise UserError(
            f"only a Transformer can be {done}, and {run.folder} holds a recurrent model "
            f"({trained.config.model})"
        )
    return trained.model
