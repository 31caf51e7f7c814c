"""Generation: sequences, one token at a time, from a model of the next token.

A search algorithm knows no model. It drives a :class:`StepModel`: a step takes the newest token of
each sequence in the batch and returns the logits of the next one, and between steps the batch can
be reordered. A recurrent network can be such a model, and so can a Transformer:
:class:`IncrementalDecoder` makes one of any decoder, or decoder-only model, with its cache.

Three algorithms choose the tokens. :func:`greedy_search` takes the most probable token at each
step, :func:`beam_search` follows several hypotheses at once, and :func:`sample` draws tokens at
random from the model's distribution.

Next chapter: :mod:`transformer_blocks.inspection`, which shows what a model attends to.
"""

from transformer_blocks.generation.beam import beam_search
from transformer_blocks.generation.greedy import greedy_search
from transformer_blocks.generation.incremental import IncrementalDecoder
from transformer_blocks.generation.protocol import Generation, StepModel
from transformer_blocks.generation.sampling import sample

__all__ = [
    "Generation",
    "IncrementalDecoder",
    "StepModel",
    "beam_search",
    "greedy_search",
    "sample",
]
