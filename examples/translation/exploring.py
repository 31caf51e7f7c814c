"""Exploring: a page with all attention weights of a translation, and with the model itself."""

import logging
from pathlib import Path

import torch

from common.searches import Search
from common.tokenizer import EOS
from transformer_blocks import Seq2Seq, causal_mask
from transformer_blocks.explorer import (
    Arithmetic,
    AttentionMaps,
    DecodingSteps,
    Explorer,
    LiveModel,
)
from translation.decoding import translate_with_attention
from translation.pairs import is_tokenised
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
) -> str:
    """Translate a sentence and write a page with the attention weights of every layer and head.

    Args:
        trained: The translator.
        sentence: A cleaned source sentence.
        path: The page to write.
        search: The decoding algorithm and its options.
        has_model: Whether the page holds the model, too, and translates other sentences.

    Returns:
        The title of the page: the sentence and its translation.
    """
    record = translate_with_attention(trained, sentence, search=search)
    tokens = {"source": record.source, "target": record.target}
    maps = []
    for attentions in trained.model.attentions:
        weights = torch.stack([record.weights[name] for name in attentions.names])
        is_self_attention = attentions.queries == attentions.keys
        of_target = attentions.queries == "target"
        reads_target = of_target and is_self_attention
        mask = causal_mask(len(record.decoder_input)) if reads_target else None
        input_axis = "target (input of the decoder)" if reads_target else None
        calls = [record.projections.get(name, [])[:1] for name in attentions.names]
        arithmetic = Arithmetic.of([each for call in calls for each in call], weights, mask)
        maps.append(
            AttentionMaps(
                attentions.title,
                weights,  # (layers, H, L, S)
                record.decoder_input if reads_target else tokens[attentions.queries],
                None if is_self_attention else tokens[attentions.keys],
                mask=mask,
                is_decoding=of_target,
                arithmetic=arithmetic,
                query_axis=input_axis or attentions.queries,
                key_axis=input_axis or attentions.keys,
            )
        )
    title = f"{sentence} → {record.translation}"
    decoding = DecodingSteps(record.target, record.candidates, record.layers)
    live = live_model(trained, sentence) if has_model else None
    Explorer(maps, title, decoding, type(trained.model).__name__, live).save(path)
    return title


def live_model(trained: TrainedTranslator, sentence: str) -> LiveModel | None:
    """Return the model for a page, or None with a note in the log if the page could not run it."""
    config, model, *tokenizers = trained
    weights = sum(weight.numel() for weight in model.parameters())
    reason = ""
    if not isinstance(model, Seq2Seq):
        reason = f"runs no {type(model).__name__}"
    elif weights > MOST_WEIGHTS:
        reason = f"holds at most {MOST_WEIGHTS:,} weights, and this model has {weights:,}"
    elif is_tokenised(config.corpus, config.source_language):
        reason = "does not tokenise English as this corpus does"
    if reason or not isinstance(model, Seq2Seq):
        log.info(f"the page shows this sentence only: it {reason}")
        return None
    return LiveModel(
        model,
        [tokenizer.model for tokenizer in tokenizers],
        end_id=EOS,
        max_length=model.max_length,
        language=config.source_language,
        text=sentence,
        characters="".join("".join(each.subwords(range(each.vocab_size))) for each in tokenizers),
    )
