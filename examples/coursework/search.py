"""Unit 11: a cache, greedy decoding and beam search."""

from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from coursework.grader import Unit, normal

SIZE, END, START = 4, 0, 3  # of the vocabulary; the token that ends; the one that begins


class Table:
    """A model whose logits depend on all tokens so far; each state is the sum of its tokens."""

    def __init__(self, seed: int, end: float = 0.0) -> None:
        self.logits = 2 * normal(50, SIZE, seed=seed)
        self.logits[:, END] += end
        self.states, self.steps = [0], 0

    def step(self, tokens: Tensor) -> Tensor:
        """Compute the logits of the next tokens."""
        self.steps += 1
        if self.steps > 30:
            raise RuntimeError("the search does not stop: max_length limits the number of steps")
        old = [self.states[i % len(self.states)] for i in range(len(tokens))]
        pairs = zip(old, tokens.tolist(), strict=True)
        self.states = [(3 * state + token + 1) % 50 for state, token in pairs]
        return self.logits[self.states]

    def reorder(self, rows: Tensor) -> None:
        """Continue other hypotheses."""
        self.states = [self.states[row % len(self.states)] for row in rows.tolist()]


UNIT = Unit(__name__, "cached greedy and beam search")


@UNIT.law("KeyValueCache", "batch head position feature")
def the_cache_returns_all_positions_so_far(my: Any) -> Any:
    """Keys and values side by side, after four positions and one more."""
    cache, keys, values = my.KeyValueCache(), normal(2, 3, 5, 7), normal(2, 3, 5, 7, seed=1)
    cache.append(keys[:, :, :4], values[:, :, :4])
    return torch.cat(cache.append(keys[:, :, 4:], values[:, :, 4:]), -1)


@UNIT.law("KeyValueCache", "batch head position feature")
def a_reordered_cache_continues_other_rows(my: Any) -> Any:
    """Keys and values after reorder(tensor([1, 1, 2])) and one more position."""
    cache, keys, values = my.KeyValueCache(), normal(3, 2, 5, 7), normal(3, 2, 5, 7, seed=1)
    cache.append(keys, values)
    cache.reorder(torch.tensor([1, 1, 2]))
    return torch.cat(cache.append(keys[:, :, :1], values[:, :, :1]), -1)


QUERY, KEY, VALUE = (normal(2, 3, 5, 7, seed=seed) for seed in range(3))


@UNIT.law(
    "KeyValueCache",
    "batch head position feature",
    expected=lambda: F.scaled_dot_product_attention(QUERY, KEY, VALUE, is_causal=True),
)
def steps_with_the_cache_equal_a_full_causal_pass(my: Any) -> Any:
    """The attention of each newest query to the cache."""
    cache, steps = my.KeyValueCache(), []
    for i in range(5):
        keys, values = cache.append(KEY[:, :, i : i + 1], VALUE[:, :, i : i + 1])
        steps.append(F.scaled_dot_product_attention(QUERY[:, :, i : i + 1], keys, values))
    return torch.cat(steps, 2)


@UNIT.law("greedy_search")
def greedy_search_takes_the_most_probable_token_until_the_end_token(my: Any) -> Any:
    """The tokens for twenty models, max_length=8."""
    return [my.greedy_search(Table(seed, end=2.0), START, END, 8) for seed in range(20)]


@UNIT.law("greedy_search")
def greedy_search_stops_at_the_maximum_length(my: Any) -> Any:
    """The tokens where the end token is improbable, max_length=5."""
    return my.greedy_search(Table(1, end=-9.0), START, END, 5)


def _best_of_all() -> list[list[int]]:
    """Score every sequence of at most three tokens."""
    found = []
    for seed in range(10):
        scored = []
        for tokens in product(range(SIZE), repeat=3):
            length = tokens.index(END) + 1 if END in tokens else 3
            model, score = Table(seed), 0.0
            for last, token in zip((START, *tokens), tokens[:length], strict=False):
                logits = model.step(torch.tensor([last]))[0]
                score += float(logits.log_softmax(-1)[token])
            kept = [token for token in tokens[:length] if token != END]
            scored.append((score / ((5 + length) / 6) ** 0.6, kept))
        found.append(max(scored)[1])
    return found


@UNIT.law("beam_search", expected=_best_of_all)
def as_many_beams_as_sequences_find_the_best_of_all_sequences(my: Any) -> Any:
    """The tokens for ten models, beam_size=64, max_length=3."""
    return [my.beam_search(Table(seed), START, END, SIZE**3, 3)[0] for seed in range(10)]


@UNIT.law("beam_search")
def two_beams_find_what_the_docstring_describes(my: Any) -> Any:
    """The tokens for thirty models, beam_size=2, max_length=6."""
    return [list(my.beam_search(Table(seed), START, END, 2, 6)[0]) for seed in range(30)]


@UNIT.law("beam_search", "model")
def the_score_is_divided_by_the_length_penalty(my: Any) -> Any:
    """The scores for ten models, length_penalty=1.5."""
    found = [my.beam_search(Table(seed), START, END, 3, 5, 1.5)[1] for seed in range(10)]
    return torch.tensor(found)
