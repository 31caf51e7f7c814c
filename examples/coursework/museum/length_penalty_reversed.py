"""A length penalty in the wrong direction.

A beam search divides the log-probability of a hypothesis by a power of its length. A
log-probability is negative, so that dividing it makes it larger: a large exponent favours long
sequences. The name suggests the opposite, and for some months of 2022, until September, the
documentation of transformers said the opposite. A search that follows that documentation, like this
one, has the wrong sign.

The outputs are fluent sequences, only shorter or longer than intended. The first issue, of June
2020, was closed without a change of the code; two of 2022 reported again that the lengths change in
the other direction.

:theme: decoding
:source: https://github.com/huggingface/transformers/issues/4915
:found by: decoding
"""

from torch import Tensor

from coursework.museum.decoding import BeamSearch
from transformer_blocks.inspection import check_search


class Broken(BeamSearch):
    """Multiplies by the length, so that a larger exponent favours shorter sequences."""

    def rank(self, scores: Tensor, lengths: Tensor, exponent: float) -> Tensor:
        """Score hypotheses by log-probability and length; both (N, beams)."""
        # the fault: log-probabilities are negative, so longer sequences become worse
        return scores * lengths**exponent


class Mended(Broken):
    """Divides, so that a larger exponent favours longer sequences."""

    def rank(self, scores: Tensor, lengths: Tensor, exponent: float) -> Tensor:
        """Score hypotheses by log-probability and length; both (N, beams)."""
        return scores / lengths**exponent


examine = check_search
