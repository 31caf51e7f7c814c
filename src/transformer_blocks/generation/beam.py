r"""Beam search: several hypotheses are extended at once, and the best finished ones returned.

Greedy decoding keeps only the most probable token of each step, but the most probable sequence need
not begin with the most probable token. Beam search keeps the K most probable *hypotheses* of a
sequence, its *beams*. At each step it extends every hypothesis by every token of the vocabulary,
and of these candidates keeps the K most probable. A candidate that ends with the end token is a
*finished hypothesis*; it is no longer extended. The search is over once K hypotheses are finished.

Every further token lowers the log-probability, which therefore favours short sequences. Hypotheses
of different lengths are compared by their log-probability divided by a *length penalty* ("Google's
Neural Machine Translation System", Wu et al. 2016, https://arxiv.org/abs/1609.08144, equation 14):

.. math:: lp(Y) = \left(\frac{5 + |Y|}{6}\right)^\alpha

where :math:`|Y|` is the length of the hypothesis, including the end token. With :math:`\alpha = 0`
the log-probabilities are compared as they are. "Attention Is All You Need" uses 4 beams and
:math:`\alpha = 0.6` (section 6.1).

Once K hypotheses are finished, an unfinished one may still reach a better score than theirs. Some
implementations stop nevertheless, as this one does by default; others continue ("A Call for Clarity
in Beam Search", Kasai et al. 2022, https://arxiv.org/abs/2204.05424, compares both). The argument
``lookahead`` of :func:`~transformer_blocks.beam_search` selects the rule.
"""

import math
from collections.abc import Set
from dataclasses import dataclass, field
from typing import Annotated

import torch

from transformer_blocks._contracts import Count, Size, checked, in_range
from transformer_blocks.generation.protocol import Generation
from transformer_blocks.generation.stepping import (
    CheckedModel,
    EndId,
    MaxLength,
    Start,
    best_extensions,
    check_not_nan,
    limits_and_ends,
    step_log_probabilities,
)

Beam = tuple[float, int, int]
"""An extended hypothesis: its score, the index of the beam that it extends, and the new token."""

Alpha = Annotated[float, in_range(float, "in [0, 10]", lambda alpha: 0.0 <= alpha <= 10.0)]


@checked
@torch.inference_mode()
def beam_search(
    model: CheckedModel,
    start: Start,
    *,
    beam_size: Size,
    end_id: EndId | None,
    max_length: MaxLength,
    length_penalty: Alpha = 0.6,
    lookahead: Count | None = None,
    n_best: Size = 1,
) -> list[list[Generation]]:
    """Generate sequences by beam search.

    The sequences of a batch do not affect each other. A sequence whose search is over is removed
    from the batch.

    Args:
        model: Model that computes the logits of the next token. Its state must hold everything that
            precedes ``start``: the source or the prompt. Its batch grows to ``beam_size`` rows per
            sequence, which are adjacent.
        start: First token of each sequence, of shape (N,).
        beam_size: K, the number of hypotheses per sequence. With 1 and without ``lookahead``, the
            search is greedy decoding, up to ties between equally probable tokens.
        end_id: Id of the end token, which finishes a hypothesis; or several such ids; None if there
            is none.
        max_length: Maximum number of tokens to generate, including the end token; or a list with
            one such number for each sequence.
        length_penalty: The exponent alpha above, in [0, 10]; larger values favour longer sequences.
        lookahead: The rule by which the search of a sequence stops. If None, it stops as soon as
            ``beam_size`` hypotheses are finished. If a number, it stops once the best unfinished
            hypothesis, even if it grew by that number of tokens (at most to ``max_length``) without
            losing log-probability, would score no better than the worst of the best ``beam_size``
            finished ones. None, 0 and ``max_length`` correspond to ``early_stopping=True``,
            ``False`` and ``"never"`` in Hugging Face transformers; with the last, no better
            hypothesis can be missed.
        n_best: Number of sequences to return for each start; at most ``beam_size``.

    Returns:
        For each start token, the best sequences, best first: finished ones before those that were
        cut at ``max_length``, each in order of log-probability divided by length penalty. There are
        fewer than ``n_best`` if the search found no more.

    Raises:
        TypeError: If ``start`` does not hold ids, or an argument is of the wrong type.
        ValueError: If an argument is out of range, ``end_id`` is not in the model's vocabulary, or
            the model's logits are NaN or infinite.

    Example:
        >>> import torch
        >>> from transformer_blocks import beam_search, greedy_search
        >>> class Garden:  # token 1 is the more probable at first, but 2 leads to a certain 3
        ...     def step(self, tokens):
        ...         rows = [[0, 0.6, 0.4, 0, 0], [0.3, 0, 0, 0.3, 0.4], [0, 0, 0, 1, 0]]
        ...         probabilities = torch.tensor([*rows, [1, 0, 0, 0, 0], [1, 0, 0, 0, 0]])
        ...         return probabilities[tokens].log()
        ...
        ...     def reorder(self, rows): ...
        >>> start = torch.tensor([0])
        >>> greedy_search(Garden(), start, end_id=0, max_length=5)[0].tokens
        [1, 4]
        >>> beam_search(Garden(), start, beam_size=2, end_id=0, max_length=5)[0][0].tokens
        [2, 3]
    """
    check_n_best(n_best, beam_size)
    limits, ends = limits_and_ends(start, max_length, end_id)
    searches = [BeamSearch(beam_size, length_penalty, lookahead, limit) for limit in limits]
    unfinished = searches
    tokens, count = start, (1 + max(1, len(ends))) * beam_size
    for step in range(max(limits, default=0)):
        if not unfinished:
            break
        # A beam has one finished extension for each end token: of 2 K candidates, or more if there
        # are several end tokens, at least K are not finished.
        rows = [[score for score, _, _ in search.beams] for search in unfinished]
        scores = torch.tensor(rows, dtype=torch.float64, device="cpu")  # (sequences, beams)
        log_probabilities = step_log_probabilities(model, tokens, ends)
        vocabulary_size = log_probabilities.shape[1]
        check_beams(beam_size, vocabulary_size)
        best, indices = best_extensions(log_probabilities, scores, count)
        parents, next_tokens = indices // vocabulary_size, indices % vocabulary_size
        columns = best.tolist(), parents.tolist(), next_tokens.tolist()
        check_not_nan([row[0] for row in columns[0]], step)  # top_k returns NaN first
        for search, *found in zip(unfinished, *columns, strict=True):
            search.extend(list(zip(*found, strict=True)), ends)
        num_beams = scores.shape[1]  # 1 in the first step, then K
        order = [i for i, search in enumerate(unfinished) if not search.is_over]
        origins = [i * num_beams + parent for i in order for _, parent, _ in unfinished[i].beams]
        unfinished = [unfinished[i] for i in order]
        tokens = start.new_tensor([token for each in unfinished for _, _, token in each.beams])
        if unfinished and origins != list(range(scores.numel())):
            model.reorder(torch.tensor(origins, device="cpu"))
    return [search.results()[:n_best] for search in searches]


def check_n_best(n_best: int, beam_size: int) -> None:
    """Raise ``ValueError`` if there are fewer hypotheses than asked for."""
    if n_best > beam_size:
        raise ValueError(
            f"n_best must not exceed beam_size, got n_best={n_best} and beam_size={beam_size}"
        )


def check_beams(beam_size: int, vocabulary_size: int) -> None:
    """Raise ``ValueError`` if there are fewer tokens than beams."""
    if beam_size > vocabulary_size:
        raise ValueError(
            f"beam_size must not exceed the vocabulary size, got beam_size={beam_size} "
            f"and {vocabulary_size} tokens"
        )


@dataclass
class BeamSearch:
    """The beam search of one sequence.

    Attributes:
        beams: The unfinished hypotheses; the index is that of a beam one step before.
        hypotheses: All tokens of each.
        length: The number of tokens of each; at most ``max_length``.
        finished: The best finished hypotheses, at most ``beam_size``, best first.
    """

    beam_size: int
    length_penalty: float
    lookahead: int | None
    max_length: int
    beams: list[Beam] = field(default_factory=lambda: [(0.0, 0, -1)])
    hypotheses: list[list[int]] = field(default_factory=lambda: [[]])
    length: int = 0
    finished: list[Generation] = field(default_factory=list)

    @property
    def is_over(self) -> bool:
        """Whether the search is over, so that no hypothesis will be extended."""
        return self.length == self.max_length or self.is_decided

    @property
    def is_decided(self) -> bool:
        """Whether the stopping rule rejects all unfinished hypotheses, or there are none."""
        best = max(self.beams)[0] if self.beams else -math.inf
        is_full = len(self.finished) == self.beam_size
        return self.rejects(best, self.rank(self.finished[-1]) if is_full else -math.inf)

    def rejects(self, best: float, worst: float) -> bool:
        """Return whether the stopping rule rejects all unfinished hypotheses.

        Args:
            best: The largest score of an unfinished hypothesis; negative infinity if there is none.
            worst: The penalised score of the last of ``beam_size`` finished hypotheses; negative
                infinity if there are fewer.
        """
        if best == -math.inf or worst == -math.inf:
            return best == -math.inf
        if self.lookahead is None:
            return True
        length = min(self.length + self.lookahead, self.max_length)
        return best / self.penalty(length) <= worst

    def extend(self, candidates: list[Beam], ends: Set[int]) -> None:
        """Replace the hypotheses by the best candidates.

        Args:
            candidates: Extensions of the hypotheses, best first.
            ends: The ids of the end tokens.
        """
        possible = [each for each in candidates if each[0] > -math.inf]
        finished = [
            Generation([*self.hypotheses[parent]], score, finished=True)
            for score, parent, token in possible[: self.beam_size]
            if token in ends
        ]
        if finished:
            ranked = sorted(self.finished + finished, key=self.rank, reverse=True)
            self.finished = ranked[: self.beam_size]
        unfinished = [each for each in possible if each[2] not in ends]
        self.beams = unfinished[: self.beam_size]
        if self.beams:  # too few: the best one is repeated with a probability of 0
            self.beams += [(-math.inf, *self.beams[0][1:])] * (self.beam_size - len(self.beams))
        self.hypotheses = [[*self.hypotheses[parent], token] for _, parent, token in self.beams]
        self.length += 1

    def results(self) -> list[Generation]:
        """Return the finished hypotheses, and those cut at ``max_length``, best first."""
        if self.is_decided:
            return self.finished
        cut = [
            Generation(tokens, score, finished=False)
            for tokens, (score, _, _) in zip(self.hypotheses, self.beams, strict=True)
            if score > -math.inf
        ]
        return self.finished + sorted(cut, key=self.rank, reverse=True)

    def rank(self, hypothesis: Generation) -> float:
        """Return the penalised score of a hypothesis."""
        return hypothesis.score / self.penalty(len(hypothesis.tokens) + hypothesis.finished)

    def penalty(self, length: int) -> float:
        """Compute the length penalty of a hypothesis."""
        return ((5 + length) / 6) ** self.length_penalty
