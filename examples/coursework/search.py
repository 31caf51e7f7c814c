"""Unit 11: a cache, greedy decoding and beam search."""

from itertools import product
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from coursework.grader import Mistake, Unit, normal

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


def answer(
    *,
    keep_keys: Any = lambda keys, rows: keys[rows],
    keep_values: Any = lambda values, rows: values[rows],
    has_end: bool = False,
    is_reordered: bool = True,
    are_ended: bool = True,
    stops_early: bool = False,
    penalty: Any = lambda length, alpha: ((5 + length) / 6) ** -alpha,
    of_end: int = 1,
    logarithm: Any = lambda logits: logits.log_softmax(-1),
    are_cut: bool = True,
) -> dict[str, Any]:
    """Keep tensors in two lists, and hypotheses in lists of tokens."""

    class KeyValueCache:
        """Two tensors."""

        def __init__(self) -> None:
            self.both: list[Tensor] = []

        def append(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
            """Append."""
            old = self.both or [keys[:, :, :0], values[:, :, :0]]
            self.both = [torch.cat([old[0], keys], 2), torch.cat([old[1], values], 2)]
            return self.both[0], self.both[1]

        def reorder(self, rows: Tensor) -> None:
            """Choose rows."""
            self.both = [keep_keys(self.both[0], rows), keep_values(self.both[1], rows)]

    def greedy_search(model: Any, start: int, end_id: int, max_length: int) -> list[int]:
        tokens = [start]
        for _ in range(max_length):
            tokens.append(int(model.step(torch.tensor(tokens[-1:]))[0].argmax()))
            if tokens[-1] == end_id:
                return tokens[1:] if has_end else tokens[1:-1]
        return tokens[1:]

    def beam_search(
        model: Any,
        start: int,
        end_id: int,
        beam_size: int,
        max_length: int,
        length_penalty: float = 0.6,
    ) -> tuple[list[int], float]:
        beams: list[tuple[float, list[int]]] = [(0.0, [start])]
        finished: list[tuple[float, list[int]]] = []

        def finish(score: float, tokens: list[int], length: int) -> None:
            finished.append((score * penalty(length, length_penalty), tokens))

        for _ in range(max_length):
            scores = logarithm(model.step(torch.tensor([tokens[-1] for _, tokens in beams])))
            scores = scores + torch.tensor([[score] for score, _ in beams])
            order = scores.flatten().argsort(descending=True).tolist()
            found = [(scores.flatten()[i].item(), i // SIZE, i % SIZE) for i in order]
            for score, row, token in found[:beam_size]:
                if token == end_id:
                    tokens = beams[row][1][1:]
                    finish(score, tokens + [end_id] * has_end, len(tokens) + of_end)
            if stops_early and finished:
                break
            kept = [each for each in found if each[2] != end_id or not are_ended][:beam_size]
            if is_reordered:
                model.reorder(torch.tensor([row for _, row, _ in kept]))
            beams = [(score, [*beams[row][1], token]) for score, row, token in kept]
        else:
            for score, tokens in beams if are_cut or not finished else []:
                finish(score, tokens[1:], len(tokens) - 1)
        score, tokens = max(finished)
        return tokens, score

    return {
        "KeyValueCache": KeyValueCache,
        "greedy_search": greedy_search,
        "beam_search": beam_search,
    }


def _same(tensor: Tensor, rows: Tensor) -> Tensor:
    return tensor


UNIT = Unit(
    "cached greedy and beam search",
    answer,
    [
        Mistake(
            "the cache is not reordered",
            {"keep_keys": _same, "keep_values": _same},
            "cache_not_reordered",
        ),
        Mistake("only the keys are reordered", {"keep_values": _same}, "cache_not_reordered"),
        Mistake("the end token is returned", {"has_end": True}),
        Mistake(
            "the beams of the model are not reordered",
            {"is_reordered": False},
            "cache_not_reordered",
        ),
        Mistake("finished beams are extended", {"are_ended": False}, "finished_beams_go_on"),
        Mistake(
            "the search ends with its first finished hypothesis",
            {"stops_early": True},
            "search_stopped_early",
        ),
        Mistake(
            "the length penalty is reversed",
            {"penalty": lambda length, alpha: ((5 + length) / 6) ** alpha},
            "length_penalty_reversed",
        ),
        Mistake("no length penalty", {"penalty": lambda length, alpha: 1.0}),
        Mistake("divided by the length", {"penalty": lambda length, alpha: length**-alpha}),
        Mistake("the length does not count the end token", {"of_end": 0}),
        Mistake("logits are summed, not log-probabilities", {"logarithm": lambda logits: logits}),
        Mistake("unfinished hypotheses are dropped at the end", {"are_cut": False}),
    ],
)


@UNIT.law("KeyValueCache", "batch head position feature")
def the_cache_returns_all_positions_so_far(my: Any) -> Any:
    """Three positions, then one; keys and values side by side."""
    cache, keys, values = my.KeyValueCache(), normal(2, 2, 4, 3), normal(2, 2, 4, 3, seed=1)
    cache.append(keys[:, :, :3], values[:, :, :3])
    return torch.cat(cache.append(keys[:, :, 3:], values[:, :, 3:]), -1)


@UNIT.law("KeyValueCache", "batch head position feature")
def a_reordered_cache_continues_other_rows(my: Any) -> Any:
    """Row 1 twice, row 0 not at all."""
    cache, keys, values = my.KeyValueCache(), normal(3, 2, 4, 3), normal(3, 2, 4, 3, seed=1)
    cache.append(keys, values)
    cache.reorder(torch.tensor([1, 1, 2]))
    return torch.cat(cache.append(keys[:, :, :1], values[:, :, :1]), -1)


QUERY, KEY, VALUE = normal(2, 2, 5, 3), normal(2, 2, 5, 3, seed=1), normal(2, 2, 5, 3, seed=2)


@UNIT.law(
    "KeyValueCache",
    "batch head position feature",
    expected=lambda: F.scaled_dot_product_attention(QUERY, KEY, VALUE, is_causal=True),
)
def steps_with_the_cache_equal_a_full_causal_pass(my: Any) -> Any:
    """Attention of each newest query to the cache."""
    cache, steps = my.KeyValueCache(), []
    for i in range(5):
        keys, values = cache.append(KEY[:, :, i : i + 1], VALUE[:, :, i : i + 1])
        steps.append(F.scaled_dot_product_attention(QUERY[:, :, i : i + 1], keys, values))
    return torch.cat(steps, 2)


@UNIT.law("greedy_search")
def greedy_search_takes_the_most_probable_token_until_the_end_token(my: Any) -> Any:
    """Twenty models."""
    return [my.greedy_search(Table(seed, end=2.0), START, END, 8) for seed in range(20)]


@UNIT.law("greedy_search")
def greedy_search_stops_at_the_maximum_length(my: Any) -> Any:
    """The end token is improbable."""
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
    """Ten models, three tokens."""
    return [my.beam_search(Table(seed), START, END, SIZE**3, 3)[0] for seed in range(10)]


@UNIT.law("beam_search")
def two_beams_find_what_the_docstring_describes(my: Any) -> Any:
    """Thirty models."""
    return [list(my.beam_search(Table(seed), START, END, 2, 6)[0]) for seed in range(30)]


@UNIT.law("beam_search", "model")
def the_score_is_divided_by_the_length_penalty(my: Any) -> Any:
    """Ten models, and an exponent of 1.5."""
    found = [my.beam_search(Table(seed), START, END, 3, 5, 1.5)[1] for seed in range(10)]
    return torch.tensor(found)
