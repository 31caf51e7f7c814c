"""Interop: convert these blocks from and to the modules of ``torch.nn``.

These blocks compute what ``torch.nn``'s Transformer computes; only the names of the parameters and
their layout differ. :func:`from_torch` converts a module of torch, trained or not, to these blocks,
and :func:`to_torch` converts blocks to torch's modules. For a part without an equivalent on the
other side, they raise an error that names it. In a whole model, :func:`from_torch` replaces the
modules of torch and names those that it leaves.
:func:`~transformer_blocks.inspection.assert_equivalent` compares the outputs and gradients of the
two. :func:`load_weights` loads a whole state dict or nothing of it.

Next: :mod:`transformer_blocks.fast`, faster forms of standard operations.
"""

from transformer_blocks.interop.from_torch import from_torch
from transformer_blocks.interop.to_torch import to_torch
from transformer_blocks.interop.weights import load_weights

__all__ = ["from_torch", "load_weights", "to_torch"]
