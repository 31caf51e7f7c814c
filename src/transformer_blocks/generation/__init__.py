"""Generation: from a model that scores the next word to a whole sentence.

Nothing in here knows a model. A search drives a :class:`StepModel`: given the newest token of each
row it answers with scores for the next, and on request keeps, repeats or drops rows. A recurrent
network, an encoder-decoder Transformer and a language model all can do that.

Next chapter: :mod:`transformer_blocks.inspection`, a look at what the model looked at.
"""

from transformer_blocks.generation.beam import beam_search
from transformer_blocks.generation.greedy import greedy_search
from transformer_blocks.generation.protocol import Generation, StepModel
from transformer_blocks.generation.sampling import sample

__all__ = ["Generation", "StepModel", "beam_search", "greedy_search", "sample"]
