"""Inference: a copy of a trained model that computes the same outputs in less time.

Decoding with a cache has two phases. The *prefill* computes the keys and values of the whole source
or prompt at once; its matrix products have many rows, and arithmetic dominates their cost. Each
*decoding step* then adds one position to every sequence. A few rows are multiplied by all weights
of the model, so that reading the weights and the overhead of hundreds of small operator calls
dominate the cost. (See "Efficiently Scaling Transformer Inference", Pope et al. 2022,
https://arxiv.org/abs/2211.05102.)

:func:`prepare` copies a trained model and replaces its parts by faster ones. Each of them equals a
plain computation, up to rounding:

- **Prepacked weights.** :class:`PrepackedLinear` computes ``torch.nn.functional.linear`` from a
  weight that is stored in the blocked layout in which oneDNN's matrix product reads it. In
  training, the weights change at each update and would have to be reordered each time; those of a
  trained model are reordered once.
- **Fused projections.** The query, key and value projections of a self-attention are one matrix
  product with their concatenated weights.
- **No computation for padding.** An :class:`~transformer_blocks.Encoder` computes the tokens of a
  padded batch as one sequence without padding, if that saves time. Its output at these positions is
  that of the plain encoder; at padding positions it is then zero.

One replacement is an approximation:

- **Int8 linear layers.** With ``prepare(model, int8=True)``, each :class:`Int8Linear` stores its
  weight as 8-bit integers and quantises its input at each call, one scale per row, so that the
  output of a row does not depend on the other rows of its batch.

A program goes further. :func:`save_program` compiles a model and its search into a file, and
:func:`load_program` loads it:

- **Operators become loops.** The compiled functions call no operators from Python, and intermediate
  results of adjacent operators stay in registers.
- **The fastest product of each layer.** The compiler tries several implementations on the machine
  at hand. For one row, all that matters is how fast the weights are read.
- **Caches are not reordered.** After each step of a beam search, hypotheses continue others. Their
  keys and values stay where they were written, and an index says where that is.

No other part of :mod:`transformer_blocks` imports this one: models are built and trained without
it, and can be decoded without it.

Next: :mod:`transformer_blocks.explorer`, all attention maps of a model on one page.
"""

from transformer_blocks.inference.int8 import Int8Linear
from transformer_blocks.inference.linear import PrepackedLinear
from transformer_blocks.inference.prepare import prepare
from transformer_blocks.inference.program import Program, load_program, save_program

__all__ = ["Int8Linear", "PrepackedLinear", "Program", "load_program", "prepare", "save_program"]
