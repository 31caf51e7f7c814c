"""A translator's run: loading its corpus, and the model with its tokenizers."""

from pathlib import Path
from typing import NamedTuple

import torch

from common.errors import UserError
from common.run import Run
from common.tokenizer import Tokenizer
from translation.corpus import Corpus, Files, load_corpus
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


def corpus_of(config: Config) -> Corpus:
    """Load the corpus of a run, and check that it is unchanged."""
    corpus = load_corpus(
        config.corpus,
        source_language=config.source_language,
        target_language=config.target_language,
        data_dir=None if config.data_dir is None else Path(config.data_dir),
        files=_both(config.source_file, config.target_file),
        validation_files=_both(config.valid_source, config.valid_target),
        test_files=_both(config.test_source, config.test_target),
    )
    if config.data_hash and config.data_hash != corpus.fingerprint:
        raise UserError(
            f"the corpus {config.corpus} has changed since the run began, so that its test "
            "sentences may have been trained on; begin another --run"
        )
    return corpus


def _both(source: str | None, target: str | None) -> Files | None:
    """Return a pair of paths, if there is one."""
    return None if source is None or target is None else (Path(source), Path(target))
