"""Decoding: the cache, the decoding steps and the beam search that several exhibits share."""

import torch
from torch import Tensor, nn

from transformer_blocks.generation import Generation, StepModel


class Cache:
    """The keys and values of earlier tokens, each of shape (B, S, 16); empty at first."""

    def __init__(self) -> None:
        self.keys_and_values: list[Tensor] = []

    @property
    def length(self) -> int:
        """The number of earlier tokens S."""
        return self.keys_and_values[0].shape[1] if self.keys_and_values else 0

    def append(self, key: Tensor, value: Tensor) -> list[Tensor]:
        """Append new keys and values (B, L, 16), and return all of them."""
        new = [key, value]
        if self.keys_and_values:
            new = [torch.cat(pair, dim=1) for pair in zip(self.keys_and_values, new, strict=True)]
        self.keys_and_values = new
        return new

    def reorder(self, rows: Tensor) -> None:
        """Reorder the cache along the batch dimension."""
        self.keys_and_values = [each[rows] for each in self.keys_and_values]


class Steps:
    """Decoding steps of a model that takes new tokens (B, L) and a cache of their predecessors."""

    def __init__(self, model: nn.Module, cache: Cache | None = None) -> None:
        self.model, self.cache = model, cache or Cache()

    def step(self, tokens: Tensor) -> Tensor:
        """Append the newest tokens (N,); compute the next logits (N, V)."""
        return self.model(tokens[:, None], self.cache)[:, 0]

    def reorder(self, rows: Tensor) -> None:
        """Reorder the cache along the batch dimension."""
        self.cache.reorder(rows)


class BeamSearch:
    """Beam search; finished hypotheses stay in the beam and add end tokens at no cost."""

    def repeat(self, count: int, beam_size: int) -> Tensor:
        """Return the row of the model's state that each beam begins with."""
        return torch.arange(count).repeat_interleave(beam_size)

    def first_scores(self, count: int, beam_size: int) -> Tensor:
        """Return the log-probabilities (N, beams) before the first step: one beam counts."""
        scores = torch.full((count, beam_size), -torch.inf)
        scores[:, 0] = 0.0
        return scores

    def close(self, log_probabilities: Tensor, ended: Tensor, end_id: int) -> Tensor:
        """Give hypotheses that have ended the end token only; the first is (N * beams, V)."""
        log_probabilities[ended] = -torch.inf
        log_probabilities[ended, end_id] = 0.0
        return log_probabilities

    def is_over(self, ended: Tensor) -> bool:
        """Return whether the search may stop, given which hypotheses (N, beams) have ended."""
        return bool(ended.all())

    def rank(self, scores: Tensor, lengths: Tensor, exponent: float) -> Tensor:
        """Score hypotheses by log-probability and length; both (N, beams)."""
        return scores / lengths**exponent

    @torch.no_grad()
    def __call__(
        self,
        model: StepModel,
        start: Tensor,
        *,
        beam_size: int,
        end_id: int,
        max_length: int,
        length_penalty: float,
    ) -> list[Generation]:
        """Return the best sequence for each start token (N,)."""
        count = len(start)
        first_rows = beam_size * torch.arange(count)
        model.reorder(self.repeat(count, beam_size))
        history = start.repeat_interleave(beam_size)[:, None]  # (N * beams, 1)
        scores = self.first_scores(count, beam_size)
        for _ in range(max_length):
            log_probabilities = model.step(history[:, -1]).log_softmax(-1)  # (N * beams, V)
            ended = (history[:, 1:] == end_id).any(1)
            log_probabilities = self.close(log_probabilities, ended, end_id)
            candidates = (scores.view(-1, 1) + log_probabilities).view(count, -1)
            scores, best = candidates.topk(beam_size)
            parents = (best // log_probabilities.shape[1] + first_rows[:, None]).flatten()
            tokens = best % log_probabilities.shape[1]
            history = torch.cat([history[parents], tokens.view(-1, 1)], dim=1)
            model.reorder(parents)
            if self.is_over((history[:, 1:] == end_id).any(1).view(count, beam_size)):
                break
        real = (history[:, 1:] == end_id).cumsum(1) == 0  # before the first end token
        lengths = (real.sum(1) + 1).clamp(max=real.shape[1]).view(count, beam_size)
        rows = self.rank(scores, lengths, length_penalty).argmax(1) + first_rows
        return [
            Generation(
                tokens=history[row, 1:][real[row]].tolist(),
                score=float(scores.flatten()[row]),
                finished=not bool(real[row].all()),
            )
            for row in rows.tolist()
        ]
