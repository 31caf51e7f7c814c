"""Beams that are all alike.

Before the first step of a beam search, all beams hold the start token. If all of them are extended,
the best candidates are one and the same token, once for each beam. From then on the beams are
equal, and the search is greedy decoding, done several times.

In ParlAI, this came with a refactoring that removed the special case of the first step. Its author
had compared the outputs before and after, with one model. A user noticed in September 2019 that a
search for several sentences returned one sentence several times.
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
