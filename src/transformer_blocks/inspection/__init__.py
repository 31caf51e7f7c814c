"""Inspection: a look inside a model while it works.

The weights of attention are the one part of a Transformer that a person can read: which word looked
at which. :func:`record_attention` shows them for any model made of these blocks.
"""

from transformer_blocks.inspection.recorder import record_attention

__all__ = ["record_attention"]
