"""Beams that are all alike.

Before the first step of a beam search, all beams hold the start token. If all of them are extended,
the best candidates are one and the same token, once for each beam. From then on the beams are
equal, and the search is greedy decoding, done several times.

In ParlAI, this came with a refactoring that removed the special case of the first step. Its author
had compared the outputs before and after, with one model. A user noticed in September 2019 that a
search for several sentences returned one sentence several times.

:theme: decoding
:source: https://github.com/facebookresearch/ParlAI/issues/2007
:found by: decoding
"""

import torch
from torch import Tensor

from coursework.museum.decoding import BeamSearch
from transformer_blocks.inspection import check_search


class Broken(BeamSearch):
    """Extends all beams in the first step."""

    def first_scores(self, count: int, beam_size: int) -> Tensor:
        """Return the log-probabilities (N, beams) before the first step."""
        # the fault: the beams are equal, and each of them has the same best token
        return torch.zeros(count, beam_size)


class Mended(Broken):
    """Gives all beams but the first the probability 0."""

    def first_scores(self, count: int, beam_size: int) -> Tensor:
        """Return the log-probabilities (N, beams) before the first step."""
        scores = torch.full((count, beam_size), -torch.inf)
        scores[:, 0] = 0.0
        return scores


examine = check_search
