"""Exploring: a page with all attention weights of a translation, and with the model itself."""

import logging
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

from common.checkpoint import checkpoint_paths, load_checkpoint, load_weights
from common.run import Run
from common.searches import Search
from common.terminal import counted
from common.tokenizer import EOS
from transformer_blocks import Seq2Seq
from transformer_blocks.explorer import DecodingSteps, Explorer, LiveModel
from transformer_blocks.explorer import explore as explore_model
from translation.decoding import (
    AttentionRecord,
    attention_with_teacher_forcing,
    translate,
    translate_with_attention,
)
from translation.pairs import is_tokenised
from translation.presets import Config
from translation.run import TrainedTranslator

MOST_WEIGHTS = 20_000_000
"""Maximum number of weights of a model that a page holds, with 1.3 bytes for each."""

log = logging.getLogger(__name__)


def explore(
    trained: TrainedTranslator,
    sentence: str,
    path: Path,
    *,
    search: Search,
    has_model: bool = True,
    snapshots: Iterable[tuple[str, TrainedTranslator]] = (),
) -> str:
    """Translate a sentence and write a page with the attention weights of every layer and head.

    Args:
        trained: The translator.
        sentence: A cleaned source sentence.
        path: The page to write.
        search: The decoding algorithm and its options.
        has_model: Whether the page holds the model, too, and translates other sentences.
        snapshots: The translator at several times of its training, from :func:`snapshots_of`. A
            slider shows how each of them attends while it reads the same translation, and what it
            translates by itself.

    Returns:
        The title of the page: the sentence and its translation.
    """
    record = translate_with_attention(trained, sentence, search=search)
    live = live_model(trained, sentence) if has_model else None
    page = replace(_show(trained, record, f"{sentence} → {record.translation}"), live=live)
    times = []
    for name, each in snapshots:
        output, *_ = translate(*each[1:], [sentence], search=search)
        forced = attention_with_teacher_forcing(each, sentence, record.ids)
        times.append(replace(_show(each, forced, f"{sentence} → {output}"), model=name))
    if times:
        page = replace(page, model=times.pop().model, earlier=times)
    page.save(path)
    return page.title


def _show(trained: TrainedTranslator, record: AttentionRecord, title: str) -> Explorer:
    """Make the page of a recorded translation."""
    tokens = record.source, record.decoder_input
    page = explore_model(trained.model, record.inputs, tokens=tokens, title=title)
    maps = []
    for each in page.maps:
        if each.query_axis != "source":  # each decoding step has its query
            each = replace(each, is_decoding=True)
        if each.query_axis != each.key_axis:  # a row for each token that cross-attention predicts
            each = replace(each, queries=record.target, query_axis="target")
        maps.append(each)
    decoding = DecodingSteps(record.target, record.candidates, record.layers)
    return replace(page, maps=maps, decoding=decoding)


def snapshots_of(
    run: Run[Config], trained: TrainedTranslator
) -> Iterator[tuple[str, TrainedTranslator]]:
    """Yield the translator of each snapshot that a run has, and that of the best weights at last.

    Each comes with a name for its time. They share one model, which holds the weights of one of
    them at a time.

    Raises:
        UserError: If weights are damaged or of another model.
    """
    model, best = deepcopy(trained.model), checkpoint_paths(run.best)[-1]
    earlier = [path for path in checkpoint_paths(run.snapshots) if path.name < best.name]
    for path in earlier and [*earlier, best]:
        checkpoint = load_checkpoint(path)
        trained.config.check_trained(checkpoint, file=run.config_file)
        load_weights(model, checkpoint.tensors["model"], path=path)
        bleu = f"validation BLEU {checkpoint.state['validation_bleu']:.1f}"
        name = f"{type(model).__name__}, {counted(checkpoint.step, 'update')}, {bleu}"
        yield name, trained._replace(model=model)


def live_model(trained: TrainedTranslator, sentence: str) -> LiveModel | None:
    """Return the model for a page, or None with a note in the log if the page could not run it."""
    config, model, *tokenizers = trained
    weights = sum(weight.numel() for weight in model.parameters())
    if not isinstance(model, Seq2Seq):
        reason = f"runs no {type(model).__name__}"
    elif weights > MOST_WEIGHTS:
        reason = f"holds at most {MOST_WEIGHTS:,} weights, and this model has {weights:,}"
    elif is_tokenised(config.corpus, config.source_language):
        reason = "does not tokenise English as this corpus does"
    else:
        return LiveModel(
            model,
            [tokenizer.model for tokenizer in tokenizers],
            end_id=EOS,
            max_length=model.max_length,
            language=config.source_language,
            text=sentence,
            characters="".join("".join(each.vocabulary) for each in tokenizers),
        )
    log.info(f"the page shows this sentence only: it {reason}")
    return None
