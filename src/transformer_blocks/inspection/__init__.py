"""Inspection: a look inside a model while it works.

The weights of attention are the one part of a Transformer that a person can read: which word looked
at which. :func:`record_attention` shows them for any model made of these blocks.

This was the last chapter: every block now stands. ``examples/translation/transformer.py`` assembles
figure 1 of the paper from them.
"""

from transformer_blocks.inspection.recorder import record_attention

__all__ = ["record_attention"]
