"""Generation: autoregressive decoding of sequences, one token at a time.

A decoding algorithm depends on no particular model. It calls a :class:`StepModel`: a decoding step
takes the newest token of each sequence in the batch and returns the logits of the next one, and
between steps the batch can be reordered. A recurrent network can be a step model, and so can a
Transformer: :class:`IncrementalDecoder` combines a decoder, or a decoder-only model, with its
cache. Its prompts may have unequal lengths (:func:`left_pad`).

Three algorithms choose the tokens. :func:`~transformer_blocks.greedy_search` takes the most
probable token at each step, :func:`~transformer_blocks.beam_search` extends several hypotheses at
once, and :func:`~transformer_blocks.sample` draws tokens at random from the model's distribution.

Next: :mod:`transformer_blocks.inspection`, which shows what a model attends to.
"""

from transformer_blocks.generation.beam import beam_search
from transformer_blocks.generation.greedy import greedy_search
from transformer_blocks.generation.incremental import IncrementalDecoder
from transformer_blocks.generation.prompts import left_pad
from transformer_blocks.generation.protocol import (
    Generation,
    NonFiniteLogitsError,
    StepModel,
    TopKStepModel,
)
from transformer_blocks.generation.sampling import sample

__all__ = [
    "Generation",
    "IncrementalDecoder",
    "NonFiniteLogitsError",
    "StepModel",
    "TopKStepModel",
    "beam_search",
    "greedy_search",
    "left_pad",
    "sample",
]
