"""Beams that are all alike.

ParlAI, issue 2007 and pull request 2047 (September and October 2019). At the first step, all beams
hold the start token alone. If all of them are extended, the best token is chosen once for each
beam; from then on the beams are equal, and so they remain: the search computes greedy decoding K
times. A refactoring had removed the special case of the first step, although its author had
compared the outputs before and after it, with one model. Greedy decoding is often nearly as good as
a beam search; what gave it away was that the K best sequences were one and the same.
"""

from typing import Any

import torch
from torch import Tensor

from transformer_blocks.generation import Generation, StepModel
from transformer_blocks.inspection import Report, check_search
from transformer_blocks.museum.exhibit import Exhibit


class Broken:
    """Beam search; finished hypotheses stay in the beam and add end tokens at no cost."""

    def first_scores(self, count: int, beam_size: int) -> Tensor:
        """Return the log-probabilities (N, beams) before the first step."""
        # the fault: the beams are equal, and each of them has the same best token
        return torch.zeros(count, beam_size)

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
        model.reorder(torch.arange(count).repeat_interleave(beam_size))
        tokens = start.repeat_interleave(beam_size)  # (N * beams,)
        history = tokens[:, None]
        scores = self.first_scores(count, beam_size)
        for _ in range(max_length):
            log_probabilities = model.step(tokens).log_softmax(-1)  # (N * beams, V)
            ended = (history[:, 1:] == end_id).any(1)
            log_probabilities[ended] = -torch.inf
            log_probabilities[ended, end_id] = 0.0
            candidates = (scores.view(-1, 1) + log_probabilities).view(count, -1)
            scores, best = candidates.topk(beam_size)
            parents = best // log_probabilities.shape[1] + beam_size * torch.arange(count)[:, None]
            tokens = (best % log_probabilities.shape[1]).flatten()
            history = torch.cat([history[parents.flatten()], tokens[:, None]], dim=1)
            model.reorder(parents.flatten())
        real = (history[:, 1:] == end_id).cumsum(1) == 0  # before the first end token
        lengths = (real.sum(1) + 1).clamp(max=real.shape[1]).view(count, beam_size)
        rows = (scores / lengths**length_penalty).argmax(1) + beam_size * torch.arange(count)
        return [
            Generation(
                tokens=history[row, 1:][real[row]].tolist(),
                score=float(scores.flatten()[row]),
                finished=not bool(real[row].all()),
            )
            for row in rows.tolist()
        ]


class Mended(Broken):
    """Gives all beams but the first the probability 0."""

    def first_scores(self, count: int, beam_size: int) -> Tensor:
        """Return the log-probabilities (N, beams) before the first step."""
        scores = torch.full((count, beam_size), -torch.inf)
        scores[:, 0] = 0.0
        return scores


def examine(search: Any) -> Report:
    """Check the search on small models, whose best sequences are known."""
    return check_search(search)


EXHIBIT = Exhibit(
    title="Beams that are all alike",
    theme="decoding",
    source="https://github.com/facebookresearch/ParlAI/issues/2007",
    found_by="decoding",
    broken=Broken,
    mended=Mended,
    examine=examine,
)
