from collections import Counter
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from common.batching import group_by_length
from common.errors import UserError
from common.tokenizer import BOS, EOS, PAD
from translation.batches import Example, collate, encode_pairs, make_batches
from translation.pairs import Pair

sentences = st.lists(st.integers(4, 9), max_size=12)
examples = st.lists(st.builds(Example, sentences, sentences), min_size=1, max_size=60)


@given(st.lists(st.integers(0, 9), max_size=40), st.integers(1, 40))
@example([2, 2, 2, 2], 4)  # exactly the budget
def test_sequences_of_similar_length_fill_batches_up_to_the_budget(
    lengths: list[int], budget: int
) -> None:
    batches = list(group_by_length(lengths, budget))
    assert sorted(index for batch in batches for index in batch) == [
        i for i, length in enumerate(lengths) if length
    ]
    padded = [len(batch) * max(lengths[i] for i in batch) for batch in batches]
    for size, batch in zip(padded, batches, strict=True):
        assert size <= budget or len(batch) == 1
    for batch, after in pairwise(batches):  # the first of the next batch had no room
        assert (len(batch) + 1) * lengths[after[0]] > budget
        assert max(lengths[i] for i in batch) <= min(lengths[i] for i in after)


@given(examples, st.integers(1, 60), st.integers(0, 3))
def test_an_epoch_has_every_pair_once_within_the_bound(
    examples: list[Example], budget: int, epoch: int
) -> None:
    made = make_batches(examples, batch_tokens=budget, seed=0, epoch=epoch)
    assert Counter(map(str, examples)) == Counter(str(each) for batch in made for each in batch)
    for batch in made:
        collated = collate(batch)
        assert max(collated.source.numel(), collated.target.numel()) <= budget or len(batch) == 1


def test_batches_depend_on_seed_and_epoch_alone() -> None:
    examples = [Example([5] * (i % 7), [6] * (i % 5)) for i in range(100)]
    first = make_batches(examples, batch_tokens=30, seed=1, epoch=1)
    assert [*first] == [*make_batches(examples, batch_tokens=30, seed=1, epoch=1)]
    assert [*first] != [*make_batches(examples, batch_tokens=30, seed=1, epoch=2)]
    assert [*first] != [*make_batches(examples, batch_tokens=30, seed=2, epoch=1)]


def test_sentences_of_equal_lengths_are_divided_anew_in_each_epoch() -> None:
    examples = [Example([i + 4], [5]) for i in range(40)]
    first, second = (
        {str(sorted(batch)) for batch in make_batches(examples, batch_tokens=8, seed=1, epoch=each)}
        for each in (1, 2)
    )
    assert first != second


def test_a_long_sentence_takes_no_room_in_later_batches() -> None:
    examples = [Example([5] * 8, [6]), *[Example([5], [6, 6])] * 4]
    batches = make_batches(examples, batch_tokens=12, seed=0, epoch=1)
    assert sorted(len(batch) for batch in batches) == [1, 4]


def test_sorting_leaves_little_padding_on_both_sides() -> None:
    lengths = torch.randint(3, 12, (4000, 2)).tolist()
    examples = [Example([5] * source, [6] * target) for source, target in lengths]
    batches = [collate(b) for b in make_batches(examples, batch_tokens=400, seed=0, epoch=1)]
    for side in ("source", "target"):
        cells = torch.cat([getattr(batch, side).flatten() for batch in batches])
        assert (cells == PAD).float().mean() < 0.06


def test_the_decoder_is_given_the_translation_one_place_late() -> None:
    batch = collate([Example([7, 8], [9, 10, 11]), Example([7], [9])])
    assert batch.source.tolist() == [[7, 8, EOS], [7, EOS, PAD]]
    assert batch.target.tolist() == [[BOS, 9, 10, 11], [BOS, 9, PAD, PAD]]
    assert batch.next_token.tolist() == [[9, 10, 11, EOS], [9, EOS, PAD, PAD]]


class Letters:
    """A tokenizer with a token for each letter."""

    def encode_many(self, texts: list[str]) -> list[list[int]]:
        return [[4] * len(text) for text in texts]


def test_a_pair_is_left_out_where_a_side_and_its_end_token_exceed_the_models_length() -> None:
    letters: Any = Letters()
    lengths = [(7, 7), (8, 1), (1, 8), (9, 9), (7, 1)]
    pairs = [Pair("a" * source, "b" * target, "") for source, target in lengths]
    kept = encode_pairs(pairs, letters, letters, max_length=8)
    assert [tuple(map(len, each)) for each in kept] == [(7, 7), (7, 1)]
    assert collate(kept).source.shape == (2, 8)  # as long as the model's positions
    with pytest.raises(UserError, match="no sentence pair is shorter than 8 tokens"):
        encode_pairs(pairs[1:4], letters, letters, max_length=8)
