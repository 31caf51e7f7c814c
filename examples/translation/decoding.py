"""Decoding: the trained model writes translations, many sentences at a time."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from transformer_blocks import record_attention
from translation.batches import pad
from translation.searches import Search
from translation.tokenizer import BOS, EOS, Tokenizer
from translation.transformer import Transformer

log = logging.getLogger(__name__)


class TransformerSteps:
    """A Transformer in the middle of writing: the ``StepModel`` that a search drives.

    Args:
        model: In eval mode.
        source: Padded source ids. Shape (N, S).
    """

    def __init__(self, model: Transformer, source: Tensor) -> None:
        self.model = model
        memory, memory_mask = model.encode(source)
        self.cache = model.decoder.new_cache(memory, memory_mask=memory_mask)

    def step(self, tokens: Tensor) -> Tensor:
        """Read the newest tokens, shape (N,), and score the next ones, shape (N, V)."""
        hidden = self.model.decode(tokens[:, None], cache=self.cache)  # (N, 1, d_model)
        return self.model.output(hidden[:, 0])

    def select(self, rows: Tensor) -> None:
        """Go on with these rows, shape (M,), only."""
        self.cache.select(rows)


class Translation(NamedTuple):
    """A sentence that was written, with its log-probability."""

    text: str
    score: float


@torch.inference_mode()
def translate_n_best(
    model: Transformer,
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
    most = model.positions.max_length - 1  # leaves room for the end mark
    encoded = source_tokenizer.encode_many(sentences)
    if too_long := sum(len(ids) > most for ids in encoded):
        log.warning(f"{too_long:,} sentences were cut: the model reads {most} tokens at most")
        encoded = [ids[:most] for ids in encoded]
    translations = [[Translation("", 0.0)] for _ in encoded]
    was_training = model.training
    model.eval()
    try:
        for chosen in by_length([len(ids) + 1 if ids else 0 for ids in encoded], batch_tokens):
            source = pad([[*encoded[i], EOS] for i in chosen]).to(device)
            start = torch.full((len(chosen),), BOS, device=device)
            written = search(
                TransformerSteps(model, source),
                start,
                end_id=EOS,
                max_length=_most_tokens(model, source),
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
    model: Transformer,
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


def by_length(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Put sentences of like length together; those of length 0 are left out.

    Yields:
        The places of a batch's sentences: at most ``batch_tokens`` tokens with padding, or one
        sentence that is longer.

    Example:
        >>> from translation.decoding import by_length
        >>> list(by_length([3, 0, 9, 4, 3], batch_tokens=8))
        [[0, 4], [3], [2]]
    """
    chosen: list[int] = []
    places = [place for place, length in enumerate(lengths) if length]
    for place in sorted(places, key=lengths.__getitem__):
        if chosen and lengths[place] * (len(chosen) + 1) > batch_tokens:
            yield chosen
            chosen = []
        chosen.append(place)
    if chosen:
        yield chosen


class Look(NamedTuple):
    """What a model looked at while it translated one sentence.

    Attributes:
        translation: What it wrote.
        source: The S tokens it read, the end mark included.
        target: The L tokens it wrote, the end mark included if it got there.
        weights: Cross-attention of the last decoder layer. Shape (H, L, S).
    """

    translation: str
    source: list[str]
    target: list[str]
    weights: Tensor


@torch.inference_mode()
def look(
    model: Transformer,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    sentence: str,
    *,
    search: Search,
) -> Look:
    """Translate one sentence and record where the last decoder layer looked for each token.

    Args:
        model: In eval mode.
        source_tokenizer: Of the language read.
        target_tokenizer: Of the language written.
        sentence: A cleaned source sentence.
        search: How to choose words.
    """
    device = next(model.parameters()).device
    ids = [*source_tokenizer.encode(sentence)[: model.positions.max_length - 1], EOS]
    source = torch.tensor([ids], device=device)
    ((written, *_),) = search(
        TransformerSteps(model, source),
        torch.tensor([BOS], device=device),
        end_id=EOS,
        max_length=_most_tokens(model, source),
    )
    said = [*written.tokens, EOS] if written.ended else written.tokens
    with record_attention(model) as maps:
        memory, memory_mask = model.encode(source)
        model.decode(torch.tensor([[BOS, *said[:-1]]], device=device), memory, memory_mask)
    last = f"decoder.layers.{len(model.decoder.layers) - 1}.cross_attention"
    return Look(
        translation=target_tokenizer.decode(written.tokens),
        source=source_tokenizer.pieces(ids),
        target=target_tokenizer.pieces(said),
        weights=maps[last][0][0].cpu(),
    )


def _most_tokens(model: Transformer, source: Tensor) -> int:
    """Bound a translation: twice its source and a little, within the model's positions."""
    return min(2 * source.shape[1] + 10, model.positions.max_length)
