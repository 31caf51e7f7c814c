"""Decoding: the trained model writes translations, many sentences at a time."""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from common.batching import group_by_length, pad
from common.searches import Search
from common.tokenizer import BOS, EOS, Tokenizer
from transformer_blocks import record_attention
from translation.translator import Translator

log = logging.getLogger(__name__)

CANDIDATES = 5  # likeliest words that a look tells of each place


class Translation(NamedTuple):
    """A sentence that was written, with its log-probability."""

    text: str
    score: float


@torch.inference_mode()
def translate_n_best(
    model: Translator,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    sentences: Sequence[str],
    *,
    search: Search,
    batch_tokens: int = 1024,
    progress: Callable[[int], object] = lambda done: None,
) -> list[list[Translation]]:
    """Translate sentences, giving several translations of each if the search finds them.

    Sentences of like length share a batch; results come in the caller's order. A sentence without
    any token, such as an empty line, gives one empty translation. One that is longer than the
    model's ``max_length`` is cut there.

    Args:
        model: The trained model; its mode is restored afterwards.
        source_tokenizer: Of the language read.
        target_tokenizer: Of the language written.
        sentences: Cleaned source sentences.
        search: How to choose words.
        batch_tokens: Most source tokens of a batch, padding included; a sentence that is longer
            alone still gets a batch of its own.
        progress: Told how many sentences a batch has finished.

    Returns:
        The translations of each sentence, best first.
    """
    device = next(model.parameters()).device
    most = model.max_length - 1  # leaves room for the end mark
    encoded = source_tokenizer.encode_many(sentences)
    if too_long := sum(len(ids) > most for ids in encoded):
        log.warning(f"{too_long:,} sentences were cut: the model reads {most} tokens at most")
        encoded = [ids[:most] for ids in encoded]
    translations = [[Translation("", 0.0)] for _ in encoded]
    was_training = model.training
    model.eval()
    try:
        for chosen in group_by_length(
            [len(ids) + 1 if ids else 0 for ids in encoded], batch_tokens
        ):
            source = pad([[*encoded[i], EOS] for i in chosen]).to(device)
            start = torch.full((len(chosen),), BOS, device=device)
            written = search(
                model.begin(source),
                start,
                end_id=EOS,
                max_length=[_most_tokens(model, len(encoded[i])) for i in chosen],
            )
            for i, found in zip(chosen, written, strict=True):
                translations[i] = [
                    Translation(target_tokenizer.decode(each.tokens), each.score) for each in found
                ]
            progress(len(chosen))
    finally:
        model.train(was_training)
    return translations


def translate(
    model: Translator,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    sentences: Sequence[str],
    *,
    search: Search,
    batch_tokens: int = 1024,
    progress: Callable[[int], object] = lambda done: None,
) -> list[str]:
    """Translate sentences; the arguments are those of :func:`translate_n_best`.

    Returns:
        The best translation of each sentence.
    """
    found = translate_n_best(
        model,
        source_tokenizer,
        target_tokenizer,
        sentences,
        search=search,
        batch_tokens=batch_tokens,
        progress=progress,
    )
    return [translations[0].text for translations in found]


class AttentionRecord(NamedTuple):
    """What a model looked at, and what it thought of, while it translated one sentence.

    Attributes:
        translation: What it wrote.
        source: The S tokens it read, the end mark included.
        target: The L tokens it wrote, the end mark included if it got there.
        given: The L tokens that it read to write them: the begin mark, and all but the last.
        weights: Of each attention layer, by its name, (H, rows, columns). Empty for a model
            without attention.
        candidates: For each token it wrote, the likeliest at its place, with their probabilities.
    """

    translation: str
    source: list[str]
    target: list[str]
    given: list[str]
    weights: dict[str, Tensor]
    candidates: list[list[tuple[str, float]]]


@torch.inference_mode()
def translate_with_attention(
    model: Translator,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    sentence: str,
    *,
    search: Search,
) -> AttentionRecord:
    """Translate one sentence and record where the model looked for each token.

    Args:
        model: In eval mode.
        source_tokenizer: Of the language read.
        target_tokenizer: Of the language written.
        sentence: A cleaned source sentence.
        search: How to choose words.
    """
    device = next(model.parameters()).device
    source = torch.tensor([_read(model, source_tokenizer, sentence)], device=device)
    ((written, *_),) = search(
        model.begin(source),
        torch.tensor([BOS], device=device),
        end_id=EOS,
        max_length=[_most_tokens(model, source.shape[1] - 1)],
    )
    said = [*written.tokens, EOS] if written.finished else written.tokens
    return attention_with_teacher_forcing(model, source_tokenizer, target_tokenizer, sentence, said)


@torch.inference_mode()
def attention_with_teacher_forcing(
    model: Translator,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    sentence: str,
    target: Sequence[int],
) -> AttentionRecord:
    """Record where a model looks for each token of a translation that it is given.

    Args:
        model: In eval mode.
        source_tokenizer: Of the language read.
        target_tokenizer: Of the language written.
        sentence: A cleaned source sentence.
        target: The translation's ids, usually with the end mark.
    """
    device = next(model.parameters()).device
    source = _read(model, source_tokenizer, sentence)
    given = [BOS, *target[:-1]]
    with record_attention(model, device="cpu") as maps:
        logits = model(torch.tensor([source], device=device), torch.tensor([given], device=device))
    chances, words = logits[0].float().softmax(-1).topk(min(CANDIDATES, logits.shape[-1]))
    return AttentionRecord(
        translation=target_tokenizer.decode(target),
        source=source_tokenizer.pieces(source),
        target=target_tokenizer.pieces(target),
        given=target_tokenizer.pieces(given),
        weights={name: maps[name][0][0] for each in model.attentions for name in each.names},
        candidates=[
            list(zip(target_tokenizer.pieces(row), row_chances, strict=True))
            for row, row_chances in zip(words.tolist(), chances.tolist(), strict=True)
        ],
    )


def _read(model: Translator, tokenizer: Tokenizer, sentence: str) -> list[int]:
    """Encode a sentence as the model reads it: cut where it must be, and closed."""
    ids, most = tokenizer.encode(sentence), model.max_length - 1
    if len(ids) > most:
        log.warning(f"the sentence was cut: the model reads {most} tokens at most")
    return [*ids[:most], EOS]


def _most_tokens(model: Translator, source_length: int) -> int:
    """Bound a translation: twice its source and a little, within the model's positions.

    The padding of a batch does not count: a translation must not depend on its neighbours.
    """
    return min(2 * (source_length + 1) + 10, model.max_length)
