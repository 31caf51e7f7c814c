"""Decoding: the trained model writes translations, many sentences at a time."""

import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from transformer_blocks import greedy_search, record_attention
from translation.batches import pad
from translation.tokenizer import BOS, EOS, Tokenizer
from translation.transformer import Transformer

log = logging.getLogger(__name__)


class TransformerSteps:
    """A Transformer in the middle of writing: the ``StepModel`` that a search drives.

    It remembers the source as the encoder left it, and the tokens written so far, which it reads
    again at each step.

    Args:
        model: In eval mode.
        source: Padded source ids. Shape (N, S).
    """

    def __init__(self, model: Transformer, source: Tensor) -> None:
        self.model = model
        self.memory, self.memory_mask = model.encode(source)
        self.written = source[:, :0]  # (N, 0)

    def step(self, tokens: Tensor) -> Tensor:
        """Read the newest tokens, shape (N,), and score the next ones, shape (N, V)."""
        self.written = torch.cat((self.written, tokens[:, None]), dim=1)
        hidden = self.model.decode(self.written, self.memory, self.memory_mask)
        return self.model.output(hidden[:, -1])

    def select(self, rows: Tensor) -> None:
        """Go on with these rows, shape (M,), only."""
        self.written = self.written[rows]
        self.memory = self.memory[rows]
        self.memory_mask = self.memory_mask[rows]


@torch.no_grad()
def translate(
    model: Transformer,
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    sentences: Sequence[str],
    *,
    batch_size: int = 64,
    progress: Callable[[int], object] = lambda done: None,
) -> list[str]:
    """Translate sentences, greedily.

    Sentences of like length share a batch; results come in the caller's order. A sentence without
    any token, such as an empty line, gives an empty translation. One that is longer than the
    model's ``max_length`` is cut there.

    Args:
        model: The trained model; its mode is restored afterwards.
        source_tokenizer: Of the language read.
        target_tokenizer: Of the language written.
        sentences: Cleaned source sentences.
        batch_size: Sentences that are translated side by side.
        progress: Told how many sentences a batch has finished.

    Returns:
        One translation a sentence.
    """
    device = next(model.parameters()).device
    most = model.positions.max_length - 1  # and the end mark
    encoded = source_tokenizer.encode_many(sentences)
    if too_long := sum(len(ids) > most for ids in encoded):
        log.warning(f"{too_long:,} sentences were cut: the model reads {most} tokens at most")
        encoded = [ids[:most] for ids in encoded]
    translations = [""] * len(encoded)
    order = sorted((i for i, ids in enumerate(encoded) if ids), key=lambda i: len(encoded[i]))
    was_training = model.training
    model.eval()
    try:
        for first in range(0, len(order), batch_size):
            chosen = order[first : first + batch_size]
            source = pad([[*encoded[i], EOS] for i in chosen]).to(device)
            start = torch.full((len(chosen),), BOS, device=device)
            written = greedy_search(
                TransformerSteps(model, source),
                start,
                end_id=EOS,
                max_length=_most_tokens(model, source),
            )
            for i, sentence in zip(chosen, written, strict=True):
                translations[i] = target_tokenizer.decode(sentence.tokens)
            progress(len(chosen))
    finally:
        model.train(was_training)
    return translations


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


@torch.no_grad()
def look(
    model: Transformer, source_tokenizer: Tokenizer, target_tokenizer: Tokenizer, sentence: str
) -> Look:
    """Translate one sentence and record where the last decoder layer looked for each token.

    Args:
        model: In eval mode.
        source_tokenizer: Of the language read.
        target_tokenizer: Of the language written.
        sentence: A cleaned source sentence.
    """
    device = next(model.parameters()).device
    ids = [*source_tokenizer.encode(sentence)[: model.positions.max_length - 1], EOS]
    source = torch.tensor([ids], device=device)
    start = torch.tensor([BOS], device=device)
    (written,) = greedy_search(
        TransformerSteps(model, source),
        start,
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
