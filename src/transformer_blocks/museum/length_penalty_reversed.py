"""A length penalty in the wrong direction.

A beam search divides the log-probability of a hypothesis by a power of its length. A
log-probability is negative, so that dividing it makes it larger: a large exponent favours long
sequences. The name suggests the opposite, and for some months of 2022, until September, the
documentation of transformers said the opposite. A search that follows that documentation, like this
one, has the wrong sign.

The outputs are fluent sequences, only shorter or longer than intended. The first issue, of June
2020, was closed without a change of the code; two of 2022 reported again that the lengths change in
the other direction.
"""

from typing import Any

import torch
from torch import Tensor

from transformer_blocks.generation import Generation, StepModel
from transformer_blocks.inspection import Report, check_search
from transformer_blocks.museum.exhibit import Exhibit


class Broken:
    """Beam search; finished hypotheses stay in the beam and add end tokens at no cost."""

    def rank(self, scores: Tensor, lengths: Tensor, exponent: float) -> Tensor:
        """Score finished hypotheses by log-probability and length; both (N, beams)."""
        # the fault: log-probabilities are negative, so longer sequences become worse
        return scores * lengths**exponent

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
        real = (history[:, 1:] == end_id).cumsum(1) == 0  # before the first end token
        lengths = (real.sum(1) + 1).clamp(max=real.shape[1]).view(count, beam_size)
        rows = (self.rank(scores, lengths, length_penalty)).argmax(1) + beam_size * torch.arange(
            count
        )
        return [
            Generation(
                tokens=history[row, 1:][real[row]].tolist(),
                score=float(scores.flatten()[row]),
                finished=not bool(real[row].all()),
            )
            for row in rows.tolist()
        ]


class Mended(Broken):
    """Divides, so that a larger exponent favours longer sequences."""

    def rank(self, scores: Tensor, lengths: Tensor, exponent: float) -> Tensor:
        """Score finished hypotheses by log-probability and length; both (N, beams)."""
        return scores / lengths**exponent


def examine(search: Any) -> Report:
    """Check the search on small models, whose best sequences are known."""
    return check_search(search)


EXHIBIT = Exhibit(
    title="A length penalty in the wrong direction",
    theme="decoding",
    source="https://github.com/huggingface/transformers/issues/4915",
    found_by="decoding",
    broken=Broken,
    mended=Mended,
    examine=examine,
)
