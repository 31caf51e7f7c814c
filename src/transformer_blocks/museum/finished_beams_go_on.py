"""Finished hypotheses that are extended.

A hypothesis with the end token is finished. The search of ParlAI extended it like all others. What
follows the end token is not printed, but it lowers the score of the hypothesis, and hypotheses that
differ only after the end token fill the beam.

No output looks wrong, but the effective beam size is smaller than the one that was set. In October
2019, a developer printed the list of hypotheses and saw that many had several end tokens. In
Sockeye, a similar fault was found in 2017 in a drawing of the beam, which was made for another
purpose.
"""

from typing import Any

import torch
from torch import Tensor

from transformer_blocks.generation import Generation, StepModel
from transformer_blocks.inspection import Report, check_search
from transformer_blocks.museum.exhibit import Exhibit


class Broken:
    """Beam search; finished hypotheses stay in the beam and add end tokens at no cost."""

    def close(self, log_probabilities: Tensor, ended: Tensor, end_id: int) -> Tensor:
        """Change the log-probabilities (N * beams, V) of hypotheses that have ended."""
        # the fault: they are extended by any token
        return log_probabilities

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
            log_probabilities = self.close(log_probabilities, ended, end_id)
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
    """Lets a finished hypothesis add the end token only, with probability 1."""

    def close(self, log_probabilities: Tensor, ended: Tensor, end_id: int) -> Tensor:
        """Change the log-probabilities (N * beams, V) of hypotheses that have ended."""
        log_probabilities[ended] = -torch.inf
        log_probabilities[ended, end_id] = 0.0
        return log_probabilities


def examine(search: Any) -> Report:
    """Check the search on small models, whose best sequences are known."""
    return check_search(search)


EXHIBIT = Exhibit(
    title="Finished hypotheses that are extended",
    theme="decoding",
    source="https://github.com/facebookresearch/ParlAI/issues/2058",
    found_by="decoding",
    broken=Broken,
    mended=Mended,
    examine=examine,
)
