"""A search that ends with its first finished hypothesis.

The beam search of Joey NMT was over for a sentence as soon as its most probable hypothesis was
finished. Each further token lowers a log-probability, so that no other hypothesis can become more
probable. But hypotheses are compared after a division by their length penalty, and a longer one may
still have the best score.

The translations are good, and a little too short. A reader asked about the line in April 2021, and
a reviewer defended it by the argument above, until the length penalty was mentioned. On the data
set on which the correction was tried, it improved the translations.
"""

from typing import Any

import torch
from torch import Tensor

from transformer_blocks.generation import Generation, StepModel
from transformer_blocks.inspection import Report, check_search
from transformer_blocks.museum.exhibit import Exhibit


class Broken:
    """Beam search; finished hypotheses stay in the beam and add end tokens at no cost."""

    def is_over(self, ended: Tensor) -> bool:
        """Return whether the search may stop, given which hypotheses (N, beams) have ended."""
        # the fault: a longer hypothesis may have the better score
        return bool(ended[:, 0].all())

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
        scores = torch.full((count, beam_size), -torch.inf)
        scores[:, 0] = 0.0  # all beams begin alike: extend one of them
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
            if self.is_over((history[:, 1:] == end_id).any(1).view(count, beam_size)):
                break
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
    """Stops when all hypotheses in the beam are finished."""

    def is_over(self, ended: Tensor) -> bool:
        """Return whether the search may stop, given which hypotheses (N, beams) have ended."""
        return bool(ended.all())


def examine(search: Any) -> Report:
    """Check the search on small models, whose best sequences are known."""
    return check_search(search)


EXHIBIT = Exhibit(
    title="A search that ends with its first finished hypothesis",
    theme="decoding",
    source="https://github.com/joeynmt/joeynmt/issues/148",
    found_by="decoding",
    broken=Broken,
    mended=Mended,
    examine=examine,
)
