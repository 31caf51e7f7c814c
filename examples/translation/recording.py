"""Recording: the attention weights and the most probable tokens of a translation."""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

import torch
from torch import Tensor

from common.searches import Candidates, Search, most_probable
from common.tokenizer import BOS, EOS, Tokenizer
from transformer_blocks import record_attention
from transformer_blocks.inspection import logit_lens
from translation.decoding import TrainedTranslator, decoder_of

log = logging.getLogger(__name__)


class AttentionRecord(NamedTuple):
    """The attention weights and the most probable tokens of the decoding of one sentence.

    Attributes:
        translation: The translation.
        ids: The ids of the L target tokens.
        source: The S source tokens, the end token included.
        target: The L target tokens, the end token included if it was generated.
        decoder_input: The L tokens that the decoder reads: the begin token, and all but the last
            target token.
        inputs: The token ids of the source, of shape (1, S), and of the decoder's input, (1, L).
        weights: The attention weights of each layer, by its name, of shape (H, queries, keys).
            Empty for a model without attention.
        candidates: For each target token, the most probable tokens at its position, with their
            probabilities.
        layers: For each layer of the decoder, such candidates as its output would give (the logit
            lens, :func:`~transformer_blocks.inspection.logit_lens`). None for a model without
            decoder layers.
    """

    translation: str
    ids: Sequence[int]
    source: list[str]
    target: list[str]
    decoder_input: list[str]
    inputs: list[Tensor]
    weights: dict[str, Tensor]
    candidates: Candidates
    layers: list[Candidates] | None


@torch.inference_mode()
def translate_with_attention(
    trained: TrainedTranslator, sentence: str, *, search: Search
) -> AttentionRecord:
    """Translate one sentence and record the attention weights of every layer.

    Args:
        trained: The translator.
        sentence: A cleaned source sentence.
        search: The decoding algorithm and its options.
    """
    decode = decoder_of(trained.model, search, next(trained.model.parameters()).device)
    (best,) = decode([ids_of(sentence, trained.source, trained.model.max_length)[:-1]])
    target = [*best.tokens, EOS] if best.finished else best.tokens
    return attention_with_teacher_forcing(trained, sentence, target)


@torch.inference_mode()
def attention_with_teacher_forcing(
    trained: TrainedTranslator, sentence: str, target: Sequence[int]
) -> AttentionRecord:
    """Record the attention weights of one forward pass over a known translation.

    Args:
        trained: The translator.
        sentence: A cleaned source sentence.
        target: The token ids of the translation, usually with the end token.
    """
    _, model, source_tokenizer, target_tokenizer = trained
    device = next(model.parameters()).device
    source = ids_of(sentence, source_tokenizer, model.max_length)
    given = [BOS, *target[:-1]]
    inputs = [torch.tensor([ids], device=device) for ids in (source, given)]
    maps: dict[str, list[Tensor]] = {}
    lens: list[list[Tensor]] = []
    with ExitStack() as stack:
        if model.cross_attentions:  # not if the context is one fixed vector
            maps = stack.enter_context(record_attention(model, device="cpu"))
        if model.decoder_layers:
            lens = stack.enter_context(logit_lens(model.decoder_layers, model.read_layer))
        logits = model(*inputs)
    return AttentionRecord(
        translation=target_tokenizer.decode(target),
        ids=target,
        source=source_tokenizer.subwords(source),
        target=target_tokenizer.subwords(target),
        decoder_input=target_tokenizer.subwords(given),
        inputs=inputs,
        weights={name: calls[0][0] for name, calls in maps.items()},
        candidates=most_probable(logits[0].float().softmax(-1), target_tokenizer.subwords),
        layers=[most_probable(calls[0][0], target_tokenizer.subwords) for calls in lens] or None,
    )


def ids_of(sentence: str, tokenizer: Tokenizer, max_length: int) -> list[int]:
    """Return the token ids of a sentence, truncated to the model's length, with the end token."""
    ids, most = tokenizer.encode(sentence), max_length - 1
    if len(ids) > most:
        log.warning(f"the sentence was truncated to the model's {most} tokens")
    return [*ids[:most], EOS]
