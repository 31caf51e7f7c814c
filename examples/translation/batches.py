"""Batches: sentences of similar length together, up to a number of tokens.

A batch is as long as its longest sentence; the rest is padding, whose computation is wasted. So the
sentences are sorted by the lengths of both sides and divided into batches of about the same number
of tokens, and the batches are shuffled. Sentences of equal lengths are divided anew in each epoch.

A corpus may be larger than the memory: :class:`~translation.examples.Examples` may be
memory-mapped, and :class:`Batches` sorts and shuffles one block of about 262,000 pairs at a
time. A block consists of chunks of 1,024 consecutive pairs, which are drawn at random from the
whole corpus in each epoch; so each page of the disk is read once an epoch, and not once a sentence.
"""

import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple, overload

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from common.token_files import CHUNK, Offsets, Tokens
from common.tokenizer import BOS, EOS, PAD
from translation.examples import Example, Examples

CHUNK_PAIRS = CHUNK // 2
"""Number of consecutive pairs that are in one block: those that have one checksum on the disk."""
BLOCK_CHUNKS = 256
"""Number of chunks that are sorted and shuffled together."""


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


class Batches(Sequence[Examples]):
    """The batches of an epoch, in random order; together they contain every example once.

    The same seed and epoch give the same batches, which are made one block at a time. The chunks
    are shuffled, and each ``BLOCK_CHUNKS`` of them are a block, whose examples are sorted and
    divided into batches, which are shuffled. If there is only one block, its chunks keep their
    order. In memory are the numbers of all chunks, and the order of one block.

    Args:
        examples: The sentences of an epoch.
        batch_tokens: Maximum number of tokens on either side of a batch, padding included. A
            longer sentence is a batch of its own.
        seed: Seed of the training.
        epoch: Number of the epoch.
    """

    def __init__(
        self, examples: Iterable[Example], *, batch_tokens: int, seed: int, epoch: int
    ) -> None:
        self.examples, self.batch_tokens = Examples.of(examples), batch_tokens
        self._name = f"batches {seed} {epoch}"
        chunks = list(range(-(-len(self.examples) // CHUNK_PAIRS)))
        if len(chunks) > BLOCK_CHUNKS:
            random.Random(f"{self._name} chunks").shuffle(chunks)
        self._blocks = [chunks[i : i + BLOCK_CHUNKS] for i in range(0, len(chunks), BLOCK_CHUNKS)]
        self._current, self._batches = -1, list[Offsets]()  # the block whose batches are known
        counts = (len(self._sorted(block)[1]) for block in self._blocks)
        self._ends = [0, *accumulate(counts)]

    def __len__(self) -> int:
        """Return the number of batches."""
        return self._ends[-1]

    @overload
    def __getitem__(self, index: int) -> Examples: ...
    @overload
    def __getitem__(self, index: slice) -> list[Examples]: ...
    def __getitem__(self, index: int | slice) -> Examples | list[Examples]:
        """Return a batch, or several."""
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        index = range(len(self))[index]
        block = bisect_right(self._ends, index) - 1
        if block != self._current:
            self._current, self._batches = block, self._make(block)
        return self.examples.select(self._batches[index - self._ends[block]])

    def _make(self, number: int) -> list[Offsets]:
        """Divide the examples of a block into batches, in random order."""
        several = len(self._blocks) > 1
        rng = random.Random(f"{self._name} {number}" if several else self._name)
        indices, starts = self._sorted(self._blocks[number], rng)
        batches = np.split(indices, starts[1:])
        rng.shuffle(batches)
        return batches

    def _sorted(
        self, block: Sequence[int], rng: random.Random | None = None
    ) -> tuple[Offsets, list[int]]:
        """Return the indices of the examples of a block by length, and where each batch begins.

        Examples of equal lengths are shuffled if there is a generator of random numbers.
        """
        self.examples.verify(block, offsets_only=rng is None)
        chunks = np.asarray(block, np.int64)[:, None] * CHUNK_PAIRS
        indices = (chunks + np.arange(CHUNK_PAIRS)).ravel()
        indices = indices[indices < len(self.examples)]
        source, target = self.examples.select(indices).lengths.T
        noise = np.zeros(len(indices))
        if rng is not None:
            noise[:] = [rng.random() for _ in indices]
        order = _sort(source + noise, target)
        return indices[order], _divide(source[order], target[order], self.batch_tokens)


def _sort(source: npt.NDArray[Any], target: Offsets) -> Offsets:
    """Sort by target length, then by source length: ascending and descending in turn.

    So a batch that holds two target lengths has similar sources, too.
    """
    return np.lexsort((np.where(target % 2 == 1, source, -source), target))


def _divide(source: Offsets, target: Offsets, batch_tokens: int) -> list[int]:
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


def _pad(tokens: Tokens, starts: Offsets, lengths: Offsets) -> Offsets:
    """Cut sequences out of an array, padded to the longest length and one token more."""
    columns = np.arange(lengths.max() + 1)
    is_real = columns < lengths[:, None]
    padded = np.full(is_real.shape, PAD, np.int64)
    padded[is_real] = tokens[(starts[:, None] + columns)[is_real]]
    return padded


def batches_of(examples: Iterable[Example], batch_tokens: int) -> Iterator[Batch]:
    """Yield the collated batches of an evaluation, the same each time."""
    for batch in Batches(examples, batch_tokens=batch_tokens, seed=0, epoch=0):
        yield collate(batch)
