"""Faster forms of standard operations.

The chapters before this one are written to be read. A few of their operations have a faster form
that computes the same; each of these files names the torch call that it equals, and where the two
differ. All that exists only for speed is here: measured thresholds, custom backward passes, and
special cases for compiled code.

- :mod:`~transformer_blocks.fast.attention`: attention by a fused kernel, without storing the
  weights. It is the default of :class:`~transformer_blocks.MultiHeadAttention`.
- :mod:`~transformer_blocks.fast.dropout`: dropout with faster random numbers on a CPU.

Next chapter: :mod:`transformer_blocks.inference`, a trained model prepared for fast decoding.
"""
