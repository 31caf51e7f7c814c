"""Batches: pairs of sentences as token ids, those of similar length together.

A batch is as long as its longest sentence; the rest is padding, whose computation is wasted. So the
sentences are sorted by the lengths of both sides and divided into batches of about the same number
of tokens, and the batches are shuffled. Sentences of equal lengths are divided anew in each epoch.
"""

import logging
import random
from array import array
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from common.batching import group_by_length, pad
from common.errors import UserError
from common.tokenizer import BOS, EOS, PAD, Tokenizer
from translation.pairs import Pair

log = logging.getLogger(__name__)


class Example(NamedTuple):
    """One pair of sentences as token ids, without begin and end tokens."""

    source: Sequence[int]
    target: Sequence[int]


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


def encode_pairs(pairs: Sequence[Pair], *tokenizers: Tokenizer, max_length: int) -> list[Example]:
    """Encode sentence pairs, leaving out those that are too long for the model.

    Args:
        pairs: The sentence pairs.
        tokenizers: The tokenizers of the source and of the target.
        max_length: Maximum number of tokens of either side, the end token included.

    Returns:
        The examples, whose ids are arrays of four bytes each.

    Raises:
        UserError: If nothing is left.
    """
    sides = [each.encode_many([pair[i] for pair in pairs]) for i, each in enumerate(tokenizers)]
    every = (Example(*(array("I", ids) for ids in each)) for each in zip(*sides, strict=True))
    examples = [example for example in every if max(map(len, example)) < max_length]
    if not examples:
        raise UserError(f"no sentence pair is shorter than {max_length} tokens")
    if dropped := len(pairs) - len(examples):
        log.warning(f"left out {dropped:,} of {len(pairs):,} pairs: {max_length} tokens or longer")
    return examples


def make_batches(
    examples: Sequence[Example], *, batch_tokens: int, seed: int, epoch: int
) -> list[list[Example]]:
    """Divide examples into the batches of an epoch, in random order.

    The same seed and epoch give the same batches, which together contain every example once.

    Args:
        examples: The sentences.
        batch_tokens: Maximum number of tokens on either side of a batch, padding included. A
            longer sentence is a batch of its own.
        seed: Seed of the training.
        epoch: Number of the epoch.
    """
    rng = random.Random(f"batches {seed} {epoch}")
    noise = [rng.random() for _ in examples]  # shuffles examples of equal lengths

    def lengths(index: int) -> tuple[int, float]:
        """Sort by target length, then by source length: ascending and descending in turn.

        So a batch that holds two target lengths has similar sources, too.
        """
        source, target = map(len, examples[index])
        return target, (source + noise[index]) * (1 if target % 2 else -1)

    longer = [max(map(len, example)) + 1 for example in examples]  # with the end token
    order = sorted(range(len(examples)), key=lengths)
    groups = group_by_length(longer, batch_tokens, order)
    batches = [[examples[index] for index in chosen] for chosen in groups]
    rng.shuffle(batches)
    return batches


def collate(examples: Sequence[Example]) -> Batch:
    """Pad examples to one length and add begin and end tokens."""
    next_token = pad([[*target, EOS] for _, target in examples])
    return Batch(
        source=pad([[*source, EOS] for source, _ in examples]),
        target=pad([[BOS, *target] for _, target in examples]),
        next_token=next_token,
        real=(next_token != PAD).flatten().nonzero()[:, 0],
    )


def batches_of(examples: Sequence[Example], batch_tokens: int) -> Iterator[Batch]:
    """Yield the collated batches of an evaluation, the same each time."""
    for batch in make_batches(examples, batch_tokens=batch_tokens, seed=0, epoch=0):
        yield collate(batch)
