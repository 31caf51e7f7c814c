"""Beams that continue the translation of another sentence.

A beam search repeats the state of each sentence, such as the keys and values of its source, once
for each beam. With Tensor.repeat, the rows have the order 1, 2, 3, 1, 2, 3. An early Transformer in
PyTorch did so, while its search kept the beams of a sentence together: 1, 1, 2, 2, 3, 3.

The shapes agree, and each output is a fluent sentence, translated from the source of another one. A
sentence that is alone in its batch is translated correctly, so that a demonstration shows nothing.
A reader of the code reported it in October 2017.
"""

from typing import Any

import torch
from torch import Tensor

from transformer_blocks.generation import Generation, StepModel
from transformer_blocks.inspection import Report, check_search
from transformer_blocks.museum.exhibit import Exhibit


class Broken:
    """Beam search without a length penalty; finished hypotheses stay in the beam."""

    def repeat(self, count: int, beam_size: int) -> Tensor:
        """Return the row of the model's state that each beam begins with."""
        # the fault: the beams of a sentence are adjacent
        return torch.arange(count).repeat(beam_size)

    @torch.no_grad()
    def __call__(
        self, model: StepModel, start: Tensor, *, beam_size: int, end_id: int, max_length: int
    ) -> list[Generation]:
        """Return the best sequence for each start token (N,)."""
        count = len(start)
        scores, best = model.step(start).log_softmax(-1).topk(beam_size)  # (N, beams)
        history = best.view(-1, 1)  # (N * beams, 1)
        model.reorder(self.repeat(count, beam_size))
        for _ in range(max_length - 1):
            log_probabilities = model.step(history[:, -1]).log_softmax(-1)  # (N * beams, V)
            ended = (history == end_id).any(1)
            log_probabilities[ended] = -torch.inf
            log_probabilities[ended, end_id] = 0.0
            candidates = (scores.view(-1, 1) + log_probabilities).view(count, -1)
            scores, best = candidates.topk(beam_size)
            parents = best // log_probabilities.shape[1] + beam_size * torch.arange(count)[:, None]
            tokens = best % log_probabilities.shape[1]
            history = torch.cat([history[parents.flatten()], tokens.view(-1, 1)], dim=1)
            model.reorder(parents.flatten())
        real = (history == end_id).cumsum(1) == 0  # before the first end token
        return [
            Generation(
                tokens=history[row][real[row]].tolist(),
                score=float(scores.flatten()[row]),
                finished=not bool(real[row].all()),
            )
            for row in range(0, len(history), beam_size)  # the best hypothesis is the first
        ]


class Mended(Broken):
    """Repeats each row where it stands."""

    def repeat(self, count: int, beam_size: int) -> Tensor:
        """Return the row of the model's state that each beam begins with."""
        return torch.arange(count).repeat_interleave(beam_size)


def examine(search: Any) -> Report:
    """Check the search on small models, whose best sequences are known."""
    return check_search(search)


EXHIBIT = Exhibit(
    title="Beams that continue the translation of another sentence",
    theme="caches",
    source="https://github.com/jadore801120/attention-is-all-you-need-pytorch/issues/28",
    found_by="decoding",
    broken=Broken,
    mended=Mended,
    examine=examine,
)
