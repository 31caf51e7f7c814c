"""A head is named by the first rule that its weights satisfy, and by the weights alone."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from transformer_blocks import causal_mask
from transformer_blocks.inspection import head_patterns
from transformer_blocks.inspection.patterns import (
    FEWEST_KEYS,
    FEWEST_MOVES,
    FEWEST_QUERIES,
    PATTERNS,
)

LENGTH = 8
WORDS = ["the", "cat", "eats", "the", "fish", "today", ".", "</s>"]


def names(weights: Tensor, **options: Any) -> list[str | None]:
    return [head.name for head in head_patterns(weights, **options)]


def one_hot(positions: list[int], size: int = LENGTH) -> Tensor:
    return torch.eye(size)[positions]


def at_distance(distance: int) -> Tensor:
    return one_hot([min(max(row + distance, 0), LENGTH - 1) for row in range(LENGTH)])


EQUAL = torch.full((LENGTH, LENGTH), 1 / LENGTH)
CONSTRUCTED = {
    "previous token": at_distance(-1),
    "itself": at_distance(0),
    "next token": at_distance(1),
    "first token": one_hot([0] * LENGTH),
    "end of sentence": 0.3 * one_hot([6] * LENGTH) + 0.7 * one_hot([7] * LENGTH),
    "broad": EQUAL,
}


@given(share=st.floats(0.56, 1.0), order=st.permutations(list(CONSTRUCTED)))
def test_constructed_weights_get_their_names_in_any_order_of_heads(
    share: float, order: list[str]
) -> None:
    weights = torch.stack([share * CONSTRUCTED[name] + (1 - share) * EQUAL for name in order])
    assert names(weights, keys=WORDS) == order


@given(share=st.floats(0.0, 0.3), name=st.sampled_from([*CONSTRUCTED][:5]))
def test_below_half_of_the_weight_a_position_names_no_head(share: float, name: str) -> None:
    weights = share * CONSTRUCTED[name] + (1 - share) * EQUAL
    assert names(weights[None], keys=WORDS) in (["broad"], [None])
    elsewhere = one_hot([(row + 3) % LENGTH for row in range(LENGTH)])
    found = names((share * CONSTRUCTED[name] + (1 - share) * elsewhere)[None], keys=WORDS)
    assert found == [None]


def test_masked_keys_and_rows_that_are_nearly_determined_do_not_count() -> None:
    mask = causal_mask(LENGTH)
    equal = (~mask).float() / (~mask).sum(-1, keepdim=True)
    assert names(equal[None], mask=mask, keys=WORDS) == ["broad"]
    wrong_at_first = at_distance(-1)
    wrong_at_first[:2] = one_hot([0, 1])
    assert names(wrong_at_first[None], mask=mask) == ["previous token"]
    assert names(torch.eye(3)[None], mask=causal_mask(3)) == [None]  # one row counts
    assert names(torch.full((1, 2, 2), 0.5)) == [None]  # two keys are too few
    assert names(torch.zeros(1, 4, 4), mask=torch.ones(4, 4, dtype=torch.bool)) == [None]
    # The weights of masked positions are not read, and such positions are not counted.
    both = torch.stack([equal, at_distance(-1), at_distance(1)]).masked_fill(mask, math.nan)
    assert names(both, mask=mask, keys=WORDS) == ["broad", "previous token", None]
    crossing = names(both, mask=mask, keys=WORDS, self_attention=False)
    assert crossing == ["broad", "diagonal", None]
    hidden = torch.zeros(6, 6, dtype=torch.bool)
    hidden[[2, 3, 4], [1, 2, 3]] = True  # three of five queries cannot attend to the previous token
    weights = at_distance(-1)[None, :6, :6]
    assert names(weights, mask=hidden) == ["previous token"]


@given(data=st.data(), self_attention=st.booleans())
def test_equal_weights_are_broad_whatever_is_masked(
    data: st.DataObject, self_attention: bool
) -> None:
    cells = data.draw(st.lists(st.booleans(), min_size=48, max_size=48))
    mask = torch.tensor(cells).view(6, 8)
    weights = (~mask).float() / (~mask).sum(-1, keepdim=True).clamp(min=1)
    counts = int(((~mask).sum(-1) >= 3).sum())
    found = names(weights[None], mask=mask, keys=WORDS, self_attention=self_attention)
    assert found == (["broad"] if counts >= 2 else [None])


def test_the_end_of_the_sentence_is_before_padding_and_needs_its_tokens() -> None:
    words = [*WORDS[:-2], "▁。", "</s>", "<pad>", "<pad>"]
    padding = torch.zeros(10, 10, dtype=torch.bool)
    padding[:, 8:] = True
    weights = one_hot([6, 7] * 5, 10)[None]
    assert names(weights, keys=words, mask=padding) == ["end of sentence"]
    crossing = names(weights, keys=words, mask=padding, self_attention=False)
    assert crossing == ["end of sentence"]
    assert names(weights, mask=padding) == [None]
    assert names(weights, keys=["a"] * 10, mask=padding) == [None]
    # Two of four keys have half of equal weights: that is broad.
    assert names(torch.full((1, 3, 4), 0.25), keys=["a", "b", ".", "</s>"]) == ["broad"]


def test_positions_name_heads_of_self_attention_and_the_diagonal_heads_of_cross_attention() -> None:
    forward = one_hot([0, 2, 3, 3, 5], 6)[None]
    assert names(forward, self_attention=False) == ["diagonal"]
    assert names(forward.flip(1), self_attention=False) == [None]
    assert names(forward[:, :3], self_attention=False) == [None]  # too few queries
    assert names(one_hot([3] * 5, 6)[None], self_attention=False) == [None]
    assert names(torch.eye(5)[None], self_attention=False) == ["diagonal"]
    assert names(torch.eye(5)[None]) == ["itself"]
    # With a cache, the last query has the position of the last key.
    assert names(one_hot([3, 4, 5, 6])[None]) == ["previous token"]


def test_the_first_of_several_rules_names_the_head() -> None:
    half = 0.5 * at_distance(-1) + 0.5 * at_distance(0)
    assert names(half[None]) == ["previous token"]
    every = [pattern.name for pattern in PATTERNS]
    assert len(set(every)) == len(every)


def test_an_induction_head_attends_to_what_followed_an_earlier_occurrence() -> None:
    words = ["<s>", *"abcd", *"abcd"]
    targets = {5: 2, 6: 3, 7: 4, 8: 5}  # what followed a, b, c and d
    weights = torch.eye(9)[[targets.get(row, 0) for row in range(9)]][None]
    mask = causal_mask(9)
    (head,) = head_patterns(weights, keys=words, mask=mask)
    assert head.name == "induction"
    assert head.scores["induction"] == 1.0
    assert head.scores["first token"] == pytest.approx(3 / 7)  # queries 2, 3 and 4 of 2 to 8
    later = weights[:, 6:]  # with a cache, the last query has the position of the last key
    assert names(later, keys=words, mask=mask[6:]) == ["induction"]
    before = torch.eye(9)[[max(targets.get(row, 1) - 1, 0) for row in range(9)]][None]
    for wrong in (before, weights.roll(1, dims=2)):  # the occurrence itself; the token after next
        assert head_patterns(wrong, keys=words, mask=mask)[0].scores["induction"] == 0.0
    assert "induction" not in head_patterns(weights, mask=mask)[0].scores
    assert "induction" not in head_patterns(weights, keys=words, self_attention=False)[0].scores
    assert "induction" not in head_patterns(weights, keys=[*"abcdefghi"])[0].scores  # no repetition
    (itself,) = head_patterns(torch.eye(9)[None], keys=[*"abcdehhhh"], mask=mask)
    assert itself.scores["induction"] == 0.0  # of one's own position there is no earlier one


def test_an_end_that_only_the_last_queries_attend_to_counts_for_them() -> None:
    weights = torch.eye(4)[None]  # the last token is the end, and masked for all other queries
    (head,) = head_patterns(weights, keys=["a", "b", "c", "."], mask=causal_mask(4))
    assert head.scores["end of sentence"] == pytest.approx(1 / 4)


def test_scores_are_those_that_are_compared_with_the_thresholds() -> None:
    weights = torch.stack([0.4 * at_distance(-1) + 0.6 * at_distance(0), EQUAL])
    first, second = head_patterns(weights, keys=WORDS)
    assert first.name == "itself"
    assert first.scores["previous token"] == pytest.approx(0.4)
    assert first.scores["itself"] == pytest.approx(0.6 + 0.4 / LENGTH)  # at the first token
    assert second.scores["broad"] == pytest.approx(1.0)
    assert second.scores["next token"] == pytest.approx(1 / LENGTH)
    few = head_patterns(torch.full((1, 2, 2), 0.5))
    assert few == [(None, {})]  # no rule can be applied


def test_every_rule_states_its_threshold_and_is_documented_in_its_order() -> None:
    text = " ".join((head_patterns.__doc__ or "").split())
    places = []
    for pattern in PATTERNS:
        assert f"at least {pattern.threshold}" in pattern.rule
        queries = FEWEST_MOVES if pattern.name == "diagonal" else FEWEST_QUERIES
        assert f"the queries ({queries} or more)" in pattern.rule
        is_share = pattern.name in ("end of sentence", "induction")
        keys = "at most a third of" if is_share else f"at least {FEWEST_KEYS}"
        assert f"{keys} unmasked keys".replace("of un", "of the un") in pattern.rule
        where = {(True, False): ", in self-attention", (False, True): ", in cross-attention"}
        use = where.get((pattern.of_self_attention, pattern.of_cross_attention), "")
        places.append(text.index(f"- *{pattern.name}*{use}: {pattern.rule}"))
    assert places == sorted(places)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weights": torch.ones(4, 4)}, r"^weights must have shape \(H, L, S\), got"),
        ({"keys": ["a"]}, r"^keys must be the S = 8 tokens of the keys, got 1$"),
        ({"mask": causal_mask(3)}, r"^mask must have shape \(L, S\) = \(8, 8\), got"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        head_patterns(**{"weights": EQUAL[None]} | change)
