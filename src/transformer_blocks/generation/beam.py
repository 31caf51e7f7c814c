r"""Beam search: several sentences side by side, of which the best wins.

The likeliest first word need not begin the likeliest sentence. Beam search keeps the K likeliest
beginnings of a sentence, its *beams*; continues each with every word of the vocabulary; and keeps
the K likeliest of those. What ends is set aside, and once K sentences are, the search is over.

Every further word makes a sentence less likely, so plain probabilities favour short ones. Sentences
are compared by their log-probability divided by a *length penalty* ("Google's Neural Machine
Translation System", Wu et al. 2016, https://arxiv.org/abs/1609.08144, equation 14):

.. math:: lp(Y) = \left(\frac{5 + |Y|}{6}\right)^\alpha

where :math:`|Y|` counts the end token. With :math:`\alpha = 0` nothing is corrected. The paper of
the Transformer takes 4 beams and 0.6 (section 6.1).

When K hypotheses have ended, one that is still running may yet become better than all of them. By
default the search is over all the same; ``lookahead`` lets it go on while there is hope ("A Call
for Clarity in Beam Search", Kasai et al. 2022, https://arxiv.org/abs/2204.05424, compares both).
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from transformer_blocks._checks import check_callable, check_integer, check_number, check_size
from transformer_blocks.generation.protocol import Generation, StepModel
from transformer_blocks.generation.stepping import (
    check_end,
    check_numbers,
    check_search,
    compact_rows,
    to_log_probabilities,
    top_k,
)


@torch.inference_mode()
def beam_search(
    model: StepModel,
    start: Tensor,
    *,
    beam_size: int,
    end_id: int | None,
    max_length: int | Sequence[int],
    length_penalty: float | Callable[[int], float] = 0.6,
    lookahead: int | None = None,
    n_best: int = 1,
) -> list[list[Generation]]:
    """Write the best sentences that are found by following several beginnings at once.

    A sentence never meets its neighbours in the batch, and leaves it when its search is over.

    Args:
        model: What scores the next token; at its beginning. It is asked for ``beam_size`` rows
            a sentence, which stand together.
        start: First token of each sentence. Shape (N,).
        beam_size: K, how many beginnings are followed; with 1 and no ``lookahead``, the search is
            greedy (words that are equally likely may fall differently).
        end_id: The token that ends a sentence; None if there is none.
        max_length: Largest number of tokens to generate, the end token included; or a list with
            one such number for each sentence.
        length_penalty: The exponent alpha above, in [0, 10]; larger favours longer sentences. Or a
            function from a length, the end token included, to the positive number by which the
            log-probability is divided.
        lookahead: When the search of a sentence is over. If not given, as soon as ``beam_size``
            hypotheses have ended. Otherwise, once ``beam_size`` have ended and the likeliest
            running hypothesis would not be better than the worst of the best ``beam_size`` if it
            became longer by so many tokens, up to ``max_length``, at its present log-probability.
            With 0 that is a heuristic; with ``max_length`` no better hypothesis is missed. Hugging
            Face's transformers calls the three ``early_stopping=True``, ``False`` and ``"never"``.
        n_best: How many sentences to return for each start; at most ``beam_size``.

    Returns:
        For each start, the best sentences, best first: those that ended before those that were cut
        at ``max_length``, each kind by log-probability over length penalty. Fewer than ``n_best``
        if there are no more.

    Raises:
        TypeError: If ``start`` does not hold ids, or an argument is of the wrong kind.
        ValueError: If an argument is out of range, ``end_id`` is not in the model's vocabulary, or
            the model's logits are not numbers.

    Example:
        >>> class Garden:  # 1 looks best at first, but all that follows 2 is certain
        ...     def step(self, tokens):
        ...         odds = [[0, 0.6, 0.4, 0, 0], [0.3, 0, 0, 0.3, 0.4], [0, 0, 0, 1, 0]]
        ...         odds = torch.tensor([*odds, [1, 0, 0, 0, 0], [1, 0, 0, 0, 0]])
        ...         return odds[tokens].log()
        ...
        ...     def reorder(self, rows): ...
        >>> start = torch.tensor([0])
        >>> greedy_search(Garden(), start, end_id=0, max_length=5)[0].tokens
        [1, 4]
        >>> beam_search(Garden(), start, beam_size=2, end_id=0, max_length=5)[0][0].tokens
        [2, 3]
    """
    limits = check_search(model, start, end_id, max_length)
    check_size(beam_size=beam_size, n_best=n_best)
    if n_best > beam_size:
        raise ValueError(
            f"n_best must not exceed beam_size, got n_best={n_best} and beam_size={beam_size}"
        )
    if lookahead is not None:
        check_integer(lookahead=lookahead)
        if lookahead < 0:
            raise ValueError(f"lookahead must be at least 0, got lookahead={lookahead}")
    penalty = _penalty(length_penalty)
    searches = [_Search(beam_size, penalty, lookahead, limit) for limit in limits]
    alive = searches
    tokens = start
    for step in range(max(limits, default=0)):
        if not alive:
            break
        log_probabilities = to_log_probabilities(model.step(tokens), len(tokens))
        rows, vocabulary = log_probabilities.shape
        check_end(end_id, vocabulary)
        if beam_size > vocabulary:
            raise ValueError(
                f"beam_size must not exceed the vocabulary, got beam_size={beam_size} "
                f"and {vocabulary} tokens"
            )
        so_far = [score for search in alive for score in search.scores]
        log_probabilities += log_probabilities.new_tensor(so_far)[:, None]
        candidates = log_probabilities.view(len(alive), -1)  # (sentences, beams * V)
        # Of 2 K candidates at most K end a sentence, one of each beam: K others go on.
        best, places = top_k(candidates, min(2 * beam_size, candidates.shape[1]))
        parents, words = places // vocabulary, places % vocabulary
        table = best.tolist(), parents.tolist(), words.tolist()
        check_numbers([scores[0] for scores in table[0]], step)  # NaN would be the largest
        for search, *found in zip(alive, *table, strict=True):
            search.extend(*found, end_id=end_id)
        width = rows // len(alive)
        order = compact_rows([not search.is_over for search in alive])
        origins = [row * width + parent for row in order for parent in alive[row].parents]
        alive = [alive[row] for row in order]
        tokens = start.new_tensor([token for search in alive for _, token in search.paths])
        if alive and origins != list(range(rows)):
            model.reorder(torch.tensor(origins))
    return [search.results()[:n_best] for search in searches]


def _penalty(length_penalty: float | Callable[[int], float]) -> Callable[[int], float]:
    """Make the function that ``length_penalty`` stands for."""
    if callable(length_penalty):
        check_callable(length_penalty=length_penalty)
        divide_by = length_penalty

        def divisor(length: int) -> float:
            number = divide_by(length)
            if not 0.0 < number < math.inf:
                raise ValueError(
                    f"length_penalty must return positive numbers, got {number} for length {length}"
                )
            return number

        return divisor
    check_number(length_penalty=length_penalty)
    if not 0.0 <= length_penalty <= 10.0:
        raise ValueError(f"length_penalty must be in [0, 10], got length_penalty={length_penalty}")
    alpha = length_penalty
    return lambda length: ((5 + length) / 6) ** alpha


class _Search:
    """The beams of one sentence.

    Attributes:
        paths: What each beam has written, as (all but the last token, the last one), and so on.
        scores: The log-probability of each.
        parents: The beam of the step before that each goes on from.
        length: How many tokens each has written; at most ``max_length``.
        ended: The best hypotheses that have ended, at most ``beam_size``, best first.
    """

    def __init__(
        self,
        beam_size: int,
        penalty: Callable[[int], float],
        lookahead: int | None,
        max_length: int,
    ) -> None:
        self.beam_size, self.penalty = beam_size, penalty
        self.lookahead, self.max_length = lookahead, max_length
        self.paths: list[Any] = [None]
        self.scores = [0.0]
        self.parents = [0]
        self.length = 0
        self.ended: list[Generation] = []

    @property
    def is_over(self) -> bool:
        """Whether no beam goes on."""
        return self.length == self.max_length or self.is_decided

    @property
    def is_decided(self) -> bool:
        """Whether no running hypothesis counts any more."""
        if not self.scores:
            return True
        if len(self.ended) < self.beam_size:
            return False
        if self.lookahead is None:
            return True
        length = min(self.length + self.lookahead, self.max_length)
        return max(self.scores) / self.penalty(length) <= self.rank(self.ended[-1])[1]

    def extend(
        self, scores: list[float], parents: list[int], tokens: list[int], *, end_id: int | None
    ) -> None:
        """Go on with the best of the candidates, which are given best first."""
        candidates = list(zip(scores, parents, tokens, strict=True))
        if scores[-1] == -math.inf:
            candidates = [each for each in candidates if each[0] > -math.inf]
        if end_id in tokens:
            for score, parent, token in candidates[: self.beam_size]:
                if token == end_id:
                    self.ended.append(Generation(_spell(self.paths[parent]), score, ended=True))
            self.ended = sorted(self.ended, key=self.rank, reverse=True)[: self.beam_size]
            candidates = [each for each in candidates if each[2] != end_id]
        beams = _keep_places(candidates[: self.beam_size], self.beam_size) if candidates else []
        self.paths = [(self.paths[parent], token) for _, parent, token in beams]
        self.scores = [score for score, _, _ in beams]
        self.parents = [parent for _, parent, _ in beams]
        self.length += 1

    def results(self) -> list[Generation]:
        """Return what was found, best first."""
        found = list(self.ended)
        if not self.is_decided:
            beams = zip(self.paths, self.scores, strict=True)
            found += [Generation(_spell(path), score, ended=False) for path, score in beams]
        return sorted(
            (each for each in found if each.score > -math.inf), key=self.rank, reverse=True
        )

    def rank(self, sentence: Generation) -> tuple[bool, float]:
        """Tell what hypotheses are compared by: those that ended win, then the score counts."""
        length = len(sentence.tokens) + sentence.ended
        return sentence.ended, sentence.score / self.penalty(length)


def _spell(path: Any) -> list[int]:
    """List the tokens of a path, from the first."""
    tokens: list[int] = []
    while path is not None:
        path, token = path
        tokens.append(token)
    return tokens[::-1]


def _keep_places(
    beams: list[tuple[float, int, int]], beam_size: int
) -> list[tuple[float, int, int]]:
    """Put each beam where its parent stood, if nobody does yet: what stays need not be copied."""
    places: list[tuple[float, int, int] | None] = [None] * beam_size
    waiting = []
    for beam in beams:
        parent = beam[1]
        if places[parent] is None:
            places[parent] = beam
        else:
            waiting.append(beam)
    # Where too few candidates are left, one is repeated, without a chance to win.
    waiting += [(-math.inf, *beams[0][1:])] * (beam_size - len(beams))
    waiting.reverse()
    return [waiting.pop() if beam is None else beam for beam in places]
