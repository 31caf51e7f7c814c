"""The explorer's page of one translation: every head of the model, and the words it weighed."""

from pathlib import Path

import torch

from common.searches import Search
from common.tokenizer import Tokenizer
from transformer_blocks import causal_mask
from transformer_blocks.explorer import AttentionMaps, DecodingSteps, save_explorer
from translation.decoding import translate_with_attention
from translation.translator import Translator


def explore(
    model: Translator,
    source: Tokenizer,
    target: Tokenizer,
    sentence: str,
    path: Path,
    *,
    search: Search,
) -> str:
    """Translate a sentence and write a page with all attention of the model.

    Returns:
        The title of the page: the sentence and its translation.
    """
    seen = translate_with_attention(model, source, target, sentence, search=search)
    tokens = {"source": seen.source, "target": seen.target}
    maps = []
    for attentions in model.attentions:
        weights = torch.stack([seen.weights[name] for name in attentions.names])
        reads_itself = attentions.queries == attentions.keys
        of_target = attentions.queries == "target"
        maps.append(
            AttentionMaps(
                attentions.title,
                weights,  # (layers, H, L, S)
                seen.given if of_target and reads_itself else tokens[attentions.queries],
                None if reads_itself else tokens[attentions.keys],
                mask=causal_mask(len(seen.given)) if of_target and reads_itself else None,
                is_decoding=of_target,
            )
        )
    title = f"{sentence} → {seen.translation}"
    decoding = DecodingSteps(seen.target, seen.candidates)
    save_explorer(path, maps, title=title, decoding=decoding)
    return title
