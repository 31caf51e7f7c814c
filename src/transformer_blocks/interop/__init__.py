"""Interop: weights come from torch's own modules, and go back.

These blocks compute what ``torch.nn``'s Transformer computes; only the names of the parts and the
packing of the weights differ. :func:`from_torch` turns a module of torch's, trained or not, into
these blocks, and :func:`to_torch` turns blocks into torch's modules. What has no equivalent on the
other side is refused, by name. :func:`assert_equivalent` shows for any two models how far apart
they are, gradients included. :func:`load_weights` takes all of a state or nothing.

Next chapter: :mod:`transformer_blocks.explorer`, all attention of a model on one page.
"""

# ruff: noqa: I001  (in teaching order)
from transformer_blocks.interop.from_torch import from_torch
from transformer_blocks.interop.to_torch import to_torch
from transformer_blocks.interop.equivalence import assert_equivalent
from transformer_blocks.interop.weights import load_weights

__all__ = ["assert_equivalent", "from_torch", "load_weights", "to_torch"]
