r"""Generation: autoregressive decoding of sequences, one token at a time.

A decoding algorithm depends on no particular model. It calls a :class:`StepModel`: a decoding step
takes the newest token of each sequence in the batch and returns the logits of the next one, and
between steps the batch can be reordered. A recurrent network can be a step model, and so can a
Transformer: :class:`IncrementalDecoder` combines a decoder, or a decoder-only model, with its
cache. Its prompts may have unequal lengths (:func:`left_pad`).

The model gives the probability of a sequence as a product, each factor from one step:

.. math:: p(y_1, \ldots, y_T) = \prod_{t=1}^{T} p(y_t \mid y_1, \ldots, y_{t-1})

Three algorithms choose the tokens. :func:`~transformer_blocks.greedy_search` takes the most
probable token at each step, which need not lead to the most probable sequence.
:func:`~transformer_blocks.beam_search` looks for that sequence, by extending several hypotheses at
once. :func:`~transformer_blocks.sample` draws each token at random from the model's distribution.

Example:
    >>> import torch
    >>> from transformer_blocks import beam_search, greedy_search
    >>> class Table:
    ...     "Predicts from the newest token alone. Token 0 ends a sequence, token 3 begins it."
    ...
    ...     probabilities = torch.tensor(
    ...         [
    ...             [0.25, 0.25, 0.25, 0.25],
    ...             [0.5, 0.25, 0.125, 0.125],  # after token 1, nothing is certain
    ...             [0.97, 0.01, 0.01, 0.01],  # after token 2, the sequence ends
    ...             [0.01, 0.53, 0.45, 0.01],
    ...         ]
    ...     )
    ...
    ...     def step(self, tokens):  # (N,) -> logits (N, V)
    ...         return self.probabilities[tokens].log()
    ...
    ...     def reorder(self, rows):
    ...         "Nothing to reorder: the model stores nothing."
    >>> start = torch.tensor([3])
    >>> (greedy,) = greedy_search(Table(), start, end_id=0, max_length=5)
    >>> ((best,),) = beam_search(
    ...     Table(), start, end_id=0, max_length=5, beam_size=2, length_penalty=0.0
    ... )
    >>> greedy.tokens, best.tokens
    ([1], [2])
    >>> round(0.53 * 0.5, 2), round(0.45 * 0.97, 2)  # their probabilities
    (0.27, 0.44)

Next: :mod:`transformer_blocks.models`, whole models that are trained and decoded with.
"""

from transformer_blocks.generation.beam import beam_search
from transformer_blocks.generation.greedy import greedy_search
from transformer_blocks.generation.incremental import IncrementalDecoder
from transformer_blocks.generation.prompts import left_pad
from transformer_blocks.generation.protocol import Generation, NonFiniteLogitsError, StepModel
from transformer_blocks.generation.sampling import sample

__all__ = [
    "Generation",
    "IncrementalDecoder",
    "NonFiniteLogitsError",
    "StepModel",
    "beam_search",
    "greedy_search",
    "left_pad",
    "sample",
]
