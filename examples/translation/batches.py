"""Batches: sentences of similar length together, up to a number of tokens.

A batch is as long as its longest sentence; the rest is padding, whose computation is wasted. So the
sentences are sorted by the lengths of both sides and divided into batches of about the same number
of tokens, and the batches are shuffled. Sentences of equal lengths are divided anew in each epoch.
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
    """One pair of sentences as token ids, without begin and end tokens."""

    source: list[int]
    target: list[int]


class Batch(NamedTuple):
    """The tensors of a batch of sentence pairs, for teacher forcing.

    Attributes:
        source: Padded source ids, each sentence with its end token, of shape (B, S).
        target: The decoder's input: the begin token, then the translation, of shape (B, L).
        next_token: The targets of each position: the translation, then the end token, of shape
            (B, L).
        real: Indices of the N positions of the flattened ``next_token`` that are not padding, of
            shape (N,). They are computed on the CPU, so that no GPU must be waited for.
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
    """Encode sentence pairs, leaving out those that are too long for the model.

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
    """Divide examples into batches; the same seed and epoch give the same batches.

    Args:
        examples: The sentences of an epoch.
        batch_tokens: Maximum number of tokens on either side of a batch, padding included. A
            longer sentence is a batch of its own.
        seed: Seed of the training.
        epoch: Number of the epoch.

    Returns:
        The batches, in random order; together they contain every example once.
    """
    rng = random.Random(f"batches {seed} {epoch}")

    def sort_key(example: Example) -> tuple[int, float]:
        source = len(example.source) + rng.random()  # equal lengths are shuffled
        # Ascending and descending in turn: a batch of two target lengths has similar sources, too.
        return len(example.target), source if len(example.target) % 2 else -source

    by_length = sorted(examples, key=sort_key)
    batches: list[list[Example]] = [[]]
    longest = 0
    for example in by_length:
        longest = max(longest, len(example.source) + 1, len(example.target) + 1)
        if batches[-1] and longest * (len(batches[-1]) + 1) > batch_tokens:
            batches.append([])
            longest = max(len(example.source), len(example.target)) + 1
        batches[-1].append(example)
    rng.shuffle(batches)
    return batches


def collate(examples: Sequence[Example]) -> Batch:
    """Pad examples to one length and add begin and end tokens."""
    next_token = pad([[*example.target, EOS] for example in examples])
    return Batch(
        source=pad([[*example.source, EOS] for example in examples]),
        target=pad([[BOS, *example.target] for example in examples]),
        next_token=next_token,
        real=(next_token != PAD).flatten().nonzero()[:, 0],
    )


def batches_of(examples: Sequence[Example], batch_tokens: int) -> Iterator[Batch]:
    """Yield the collated batches of an evaluation, the same each time."""
    for batch in make_batches(examples, batch_tokens=batch_tokens, seed=0, epoch=0):
        yield collate(batch)
