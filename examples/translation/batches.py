"""Batches: sentences of like length together, as many as a budget of tokens allows.

A batch is as long as its longest sentence; the rest is padding that is computed for nothing. So
sentences are sorted by the lengths of both sides, cut into batches of about the same number of
tokens, and the batches are shuffled. Among sentences of equal lengths the company changes from
epoch to epoch.
"""

import logging
import random
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from common.batching import pad
from common.errors import UserError
from common.tokenizer import BOS, EOS, PAD, Tokenizer
from translation.corpus import Pair

log = logging.getLogger(__name__)


class Example(NamedTuple):
    """One pair of sentences as token ids, without begin and end."""

    source: list[int]
    target: list[int]


class Batch(NamedTuple):
    """What one training step sees.

    Attributes:
        source: Padded source ids, each sentence closed by end-of-sentence. Shape (B, S).
        target: What the decoder is given: begin-of-sentence, then the translation. Shape (B, L).
        next_token: What it should say at each place: the translation, then end. Shape (B, L).
        real: Where ``next_token`` is no padding: numbers of places in the flattened table, found
            here so that no device has to count and answer. Shape (N,).
    """

    source: Tensor
    target: Tensor
    next_token: Tensor
    real: Tensor

    def to(self, device: torch.device) -> "Batch":
        """Move the batch to a device."""
        return Batch(*(tensor.to(device, non_blocking=True) for tensor in self))


def encode_pairs(
    pairs: Sequence[Pair],
    source_tokenizer: Tokenizer,
    target_tokenizer: Tokenizer,
    *,
    max_length: int,
) -> list[Example]:
    """Turn pairs into token ids, leaving out those longer than the model can take.

    Raises:
        UserError: If nothing is left.
    """
    sources = source_tokenizer.encode_many([pair.source for pair in pairs])
    targets = target_tokenizer.encode_many([pair.target for pair in pairs])
    examples = [
        Example(source, target)
        for source, target in zip(sources, targets, strict=True)
        if max(len(source), len(target)) < max_length
    ]
    if not examples:
        raise UserError(f"no sentence pair is shorter than {max_length} tokens")
    if len(examples) < len(pairs):
        log.warning(
            f"left out {len(pairs) - len(examples):,} of {len(pairs):,} pairs: "
            f"{max_length} tokens or longer"
        )
    return examples


def make_batches(
    examples: Sequence[Example], *, batch_tokens: int, seed: int, epoch: int
) -> list[list[Example]]:
    """Sort, cut and shuffle; the same seed and epoch give the same batches.

    Args:
        examples: The sentences of an epoch.
        batch_tokens: Most tokens on either side of a batch, padding included. A sentence that
            is longer alone still gets a batch of its own.
        seed: Of the whole training.
        epoch: Which pass over the data this is.

    Returns:
        All examples, each once.
    """
    order = random.Random(f"batches {seed} {epoch}")

    def place(example: Example) -> tuple[int, float]:
        source = len(example.source) + order.random()  # equal ones are shuffled
        # Up and down in turn, so that a batch with two target lengths has like sources as well.
        return len(example.target), source if len(example.target) % 2 else -source

    by_length = sorted(examples, key=place)
    batches: list[list[Example]] = [[]]
    longest = 0
    for example in by_length:
        longest = max(longest, len(example.source) + 1, len(example.target) + 1)
        if batches[-1] and longest * (len(batches[-1]) + 1) > batch_tokens:
            batches.append([])
            longest = max(len(example.source), len(example.target)) + 1
        batches[-1].append(example)
    order.shuffle(batches)
    return batches


def collate(examples: Sequence[Example]) -> Batch:
    """Pad examples to one length and put begin and end where they belong."""
    next_token = pad([[*example.target, EOS] for example in examples])
    return Batch(
        source=pad([[*example.source, EOS] for example in examples]),
        target=pad([[BOS, *example.target] for example in examples]),
        next_token=next_token,
        real=(next_token != PAD).flatten().nonzero()[:, 0],
    )


def batches_of(sequence: Sequence[Example], batch_tokens: int) -> Iterator[Batch]:
    """Collate examples for evaluation, in fixed batches."""
    for batch in make_batches(sequence, batch_tokens=batch_tokens, seed=0, epoch=0):
        yield collate(batch)
