"""Exploring: a page with all attention weights of a translation, and with the model itself."""

import logging
from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

from common.checkpoint import checkpoint_paths, load_checkpoint, load_weights, step_of
from common.run import Run
from common.searches import Search
from common.terminal import counted
from common.tokenizer import EOS
from transformer_blocks import Seq2Seq
from transformer_blocks.explorer import DecodingSteps, Explorer, LiveModel
from transformer_blocks.explorer import explore as explore_model
from transformer_blocks.explorer.tokens import token_labels
from translation.decoding import TrainedTranslator, translate
from translation.glosses import SLOTS, glosses_of
from translation.pairs import is_tokenised
from translation.presets import TranslatorConfig
from translation.recording import (
    AttentionRecord,
    attention_with_teacher_forcing,
    translate_with_attention,
)

PAGE = "explorer.html"
"""Name of the page in the folder of a run."""
MOST_WEIGHTS = 20_000_000
"""Maximum number of weights of a model that a page holds, with 1.25 bytes for each."""

log = logging.getLogger(__name__)


def explore(
    trained: TrainedTranslator,
    sentences: Sequence[str],
    path: Path,
    *,
    search: Search,
    snapshots: Iterable[tuple[str, TrainedTranslator]] = (),
) -> str:
    """Translate sentences and write a page with the attention weights of every layer and head.

    Args:
        trained: The translator.
        sentences: Cleaned source sentences. The page shows the first, and offers the others.
        path: The page to write.
        search: The decoding algorithm and its options.
        snapshots: The translator at several times of its training, from :func:`snapshots_of`. A
            slider shows how each of them attends while it reads the same translations, and what it
            translates by itself.

    Returns:
        The title of the page: the first sentence and its translation.
    """
    records = [translate_with_attention(trained, each, search=search) for each in sentences]
    pages = [
        _show(trained, sentence, record, record.translation)
        for sentence, record in zip(sentences, records, strict=True)
    ]
    times: list[list[Explorer]] = [[] for _ in sentences]
    for name, each in snapshots:
        outputs = translate(each, sentences, search=search)
        for sentence, record, output, pages_of in zip(
            sentences, records, outputs, times, strict=True
        ):
            forced = attention_with_teacher_forcing(each, sentence, record.ids)
            pages_of.append(replace(_show(each, sentence, forced, output), model=name))
    if times[0]:
        pages = [
            replace(page, model=earlier[-1].model, earlier=earlier[:-1])
            for page, earlier in zip(pages, times, strict=True)
        ]
    live = live_model(trained)
    page = replace(pages[0], live=live, others=pages[1:], **for_readers(trained))
    page.save(path)
    return page.title


def _show(
    trained: TrainedTranslator, sentence: str, record: AttentionRecord, output: str
) -> Explorer:
    """Make the page of a recorded translation."""
    tokens, title = (record.source, record.decoder_input), f"{sentence} → {output}"
    page = explore_model(trained.model, record.inputs, tokens=tokens, title=title)
    maps = []
    for each in page.maps:
        if each.query_axis != "source":  # each decoding step has its query
            each = replace(each, is_decoding=True)
        if each.query_axis != each.key_axis:  # a row for each token that cross-attention predicts
            each = replace(each, queries=record.target, query_axis="target")
        maps.append(each)
    decoding = DecodingSteps(record.target, record.candidates, record.layers)
    return replace(page, maps=maps, decoding=decoding, text=sentence)


def for_readers(trained: TrainedTranslator) -> dict[str, Any]:
    """Return the languages of a page, and for the toy Japanese what its tokens mean."""
    config = trained.config
    found: dict[str, Any] = {"languages": [config.source_language, config.target_language]}
    if (config.corpus, config.source_language) == ("toy", "ja"):
        tokens = [each.text for each in token_labels(trained.source.vocabulary)]
        found |= {"glosses": glosses_of(tokens), "slots": SLOTS}
    return found


def snapshots_of(
    run: Run[TranslatorConfig], trained: TrainedTranslator
) -> Iterator[tuple[str, TrainedTranslator]]:
    """Yield the translator of each snapshot that a run has, and that of the best weights at last.

    Each comes with a name for its time. They share one model, which holds the weights of one of
    them at a time.

    Raises:
        UserError: If weights are damaged or of another model.
    """
    model, best = deepcopy(trained.model), checkpoint_paths(run.best)[-1]
    earlier = [path for path in checkpoint_paths(run.snapshots) if step_of(path) < step_of(best)]
    for path in earlier and [*earlier, best]:
        checkpoint = load_checkpoint(path)
        trained.config.check_trained(checkpoint)
        load_weights(model, checkpoint.tensors["model"], path=path)
        bleu = f"validation BLEU {checkpoint.state['validation_bleu']:.1f}"
        name = f"{type(model).__name__}, {counted(checkpoint.step, 'update')}, {bleu}"
        yield name, trained._replace(model=model)


def live_model(trained: TrainedTranslator) -> LiveModel | None:
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
            characters="".join("".join(each.vocabulary) for each in tokenizers),
        )
    log.info(f"the page shows these sentences only: it {reason}")
    return None
