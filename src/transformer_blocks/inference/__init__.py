"""Packing: a finished model, laid out for speed.

A step of decoding multiplies a few rows with all the weights of the model. Its time goes less into
arithmetic than into fetching weights, so it matters how they lie in memory: a processor with wide
registers wants them in blocks, not in rows. Training, which rewrites the weights at each update,
cannot afford to sort them; a finished model can, once.

:func:`pack` copies a model and exchanges parts for equal but faster ones, which is what modules are
for. It computes the same numbers, up to rounding.

What is left of a step's time goes into the calls themselves, hundreds of them for one word. A
compiler makes one call of them: with ``prepare(model, compiled=True)``, ``torch.export`` writes down
the steps that encoders and decoders take, through the same modules that one reads here, and torch's
AOTInductor makes machine code of what is written. That takes half a minute for each kind of step;
:func:`compile_steps` does it before the first request of a server, not within it.

Next chapter: :mod:`transformer_blocks.generation`, from scores for the next word to a sentence.
"""

from transformer_blocks.inference.compiled import compile_steps
from transformer_blocks.inference.linear import PrepackedLinear
from transformer_blocks.inference.prepare import prepare

__all__ = ["PrepackedLinear", "compile_steps", "prepare"]
