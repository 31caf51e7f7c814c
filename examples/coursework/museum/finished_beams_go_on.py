"""Finished hypotheses that are extended.

A hypothesis with the end token is finished. The search of ParlAI extended it like all others. What
follows the end token is not printed, but it lowers the score of the hypothesis, and hypotheses that
differ only after the end token fill the beam.

No output looks wrong, but the effective beam size is smaller than the one that was set. In October
2019, a developer printed the list of hypotheses and saw that many had several end tokens. In
Sockeye, a similar fault was found in 2017 in a drawing of the beam, which was made for another
purpose.

:theme: decoding
:source: https://github.com/facebookresearch/ParlAI/issues/2058
:found by: decoding
"""

import torch
from torch import Tensor

from coursework.museum.decoding import BeamSearch
from transformer_blocks.inspection import check_search


class Broken(BeamSearch):
    """Extends finished hypotheses as it does the others."""

    def close(self, log_probabilities: Tensor, ended: Tensor, end_id: int) -> Tensor:
        """Change the log-probabilities (N * beams, V) of hypotheses that have ended."""
        # the fault: they are extended by any token
        return log_probabilities


class Mended(Broken):
    """Lets a finished hypothesis add the end token only, with probability 1."""

    def close(self, log_probabilities: Tensor, ended: Tensor, end_id: int) -> Tensor:
        """Change the log-probabilities (N * beams, V) of hypotheses that have ended."""
        log_probabilities[ended] = -torch.inf
        log_probabilities[ended, end_id] = 0.0
        return log_probabilities


examine = check_search
