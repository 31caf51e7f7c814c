"""A search that ends with its first finished hypothesis.

The beam search of Joey NMT was over for a sentence as soon as its most probable hypothesis was
finished. Each further token lowers a log-probability, so that no other hypothesis can become more
probable. But hypotheses are compared after a division by their length penalty, and a longer one may
still have the best score.

The translations are good, and a little too short. A reader asked about the line in April 2021, and
a reviewer defended it by the argument above, until the length penalty was mentioned. On the data
set on which the correction was tried, it improved the translations.

:theme: decoding
:source: https://github.com/joeynmt/joeynmt/issues/148
:found by: decoding
"""

from torch import Tensor

from coursework.museum.decoding import BeamSearch
from transformer_blocks.inspection import check_search


class Broken(BeamSearch):
    """Stops when the most probable hypothesis of each sentence is finished."""

    def is_over(self, ended: Tensor) -> bool:
        """Return whether the search may stop, given which hypotheses (N, beams) have ended."""
        # the fault: a longer hypothesis may have the better score
        return bool(ended[:, 0].all())


class Mended(Broken):
    """Stops when all hypotheses in the beam are finished."""

    def is_over(self, ended: Tensor) -> bool:
        """Return whether the search may stop, given which hypotheses (N, beams) have ended."""
        return bool(ended.all())


examine = check_search
