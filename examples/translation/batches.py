"""Batches: sentences of similar length together, up to a number of tokens.

A batch is as long as its longest sentence; the rest is padding, whose computation is wasted. So the
sentences are sorted by the lengths of both sides and divided into batches of about the same number
of tokens, and the batches are shuffled. Sentences of equal lengths are divided anew in each epoch.
"""

import random
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from common.tokenizer import BOS, EOS, PAD
from translation.examples import Example, Examples, Indices, TokenArray


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


def make_batches(
    examples: Iterable[Example], *, batch_tokens: int, seed: int, epoch: int
) -> list[Examples]:
    """Divide examples into the batches of an epoch, in random order.

    The same seed and epoch give the same batches, which together contain every example once.

    Args:
        examples: The sentences.
        batch_tokens: Maximum number of tokens on either side of a batch, padding included. A
            longer sentence is a batch of its own.
        seed: Seed of the training.
        epoch: Number of the epoch.
    """
    examples = Examples.of(examples)
    rng = random.Random(f"batches {seed} {epoch}")
    source, target = examples.lengths.T
    noise = [rng.random() for _ in examples.bounds]  # shuffles examples of equal lengths
    order = _sort(source + np.array(noise), target)
    starts = _divide(source[order], target[order], batch_tokens)
    batches = [examples.select(each) for each in np.split(order, starts[1:])]
    rng.shuffle(batches)
    return batches


def _sort(source: npt.NDArray[Any], target: Indices) -> Indices:
    """Sort by target length, then by source length: ascending and descending in turn.

    So a batch that holds two target lengths has similar sources, too.
    """
    return np.lexsort((np.where(target % 2 == 1, source, -source), target))


def _divide(source: Indices, target: Indices, batch_tokens: int) -> list[int]:
    """Return where each batch begins, given the lengths in sorted order."""
    starts, longest = [0], 0
    for index, length in enumerate((np.maximum(source, target) + 1).tolist()):
        longest = max(longest, length)
        size = index - starts[-1]
        if size and longest * (size + 1) > batch_tokens:
            starts.append(index)
            longest = length
    return starts


def collate(examples: Iterable[Example]) -> Batch:
    """Pad examples to one length and add begin and end tokens."""
    batch = Examples.of(examples)
    rows = np.arange(len(batch))
    sources, targets = batch.lengths.T
    source = _pad(batch.tokens, batch.bounds[:, 0], sources)
    target = _pad(batch.tokens, batch.bounds[:, 1], targets)
    shifted = np.empty_like(target)
    shifted[:, 0], shifted[:, 1:] = BOS, target[:, :-1]
    source[rows, sources] = EOS
    target[rows, targets] = EOS
    next_token = torch.from_numpy(target)
    return Batch(
        source=torch.from_numpy(source),
        target=torch.from_numpy(shifted),
        next_token=next_token,
        real=(next_token != PAD).flatten().nonzero()[:, 0],
    )


def _pad(tokens: TokenArray, starts: Indices, lengths: Indices) -> Indices:
    """Cut sequences out of an array, padded to the longest length and one token more."""
    columns = np.arange(lengths.max() + 1)
    is_real = columns < lengths[:, None]
    padded = np.full(is_real.shape, PAD, np.int64)
    padded[is_real] = tokens[(starts[:, None] + columns)[is_real]]
    return padded


def batches_of(examples: Iterable[Example], batch_tokens: int) -> Iterator[Batch]:
    """Yield the collated batches of an evaluation, the same each time."""
    for batch in make_batches(examples, batch_tokens=batch_tokens, seed=0, epoch=0):
        yield collate(batch)
