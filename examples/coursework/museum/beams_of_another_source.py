"""Beams that continue the translation of another sentence.

A beam search repeats the state of each sentence, such as the keys and values of its source, once
for each beam. With Tensor.repeat, the rows have the order 1, 2, 3, 1, 2, 3. An early Transformer in
PyTorch did so, while its search kept the beams of a sentence together: 1, 1, 2, 2, 3, 3.

The shapes agree, and each output is a fluent sentence, translated from the source of another one. A
sentence that is alone in its batch is translated correctly, so that a demonstration shows nothing.
A reader of the code reported it in October 2017.

:theme: caches
:source: https://github.com/jadore801120/attention-is-all-you-need-pytorch/issues/28
:found by: decoding
"""

import torch
from torch import Tensor

from coursework.museum.decoding import BeamSearch
from transformer_blocks.inspection import check_search


class Broken(BeamSearch):
    """Repeats all rows of the batch, one after the other."""

    def repeat(self, count: int, beam_size: int) -> Tensor:
        """Return the row of the model's state that each beam begins with."""
        # the fault: the beams of a sentence are adjacent
        return torch.arange(count).repeat(beam_size)


class Mended(Broken):
    """Repeats each row where it stands."""

    def repeat(self, count: int, beam_size: int) -> Tensor:
        """Return the row of the model's state that each beam begins with."""
        return torch.arange(count).repeat_interleave(beam_size)


examine = check_search
