"""Exploring: a page with all attention weights of one sentence and its translation."""

from pathlib import Path

import torch

from common.searches import Search
from transformer_blocks import causal_mask
from transformer_blocks.explorer import Arithmetic, AttentionMaps, DecodingSteps, Explorer
from translation.decoding import translate_with_attention
from translation.run import TrainedTranslator


def explore(trained: TrainedTranslator, sentence: str, path: Path, *, search: Search) -> str:
    """Translate a sentence and write a page with the attention weights of every layer and head.

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
        axes = ["target (input of the decoder)"] * 2
        if not reads_target:
            axes = [attentions.queries, attentions.keys]
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
                query_axis=axes[0],
                key_axis=axes[1],
            )
        )
    title = f"{sentence} → {record.translation}"
    decoding = DecodingSteps(record.target, record.candidates, record.layers)
    Explorer(maps, title, decoding, type(trained.model).__name__).save(path)
    return title
