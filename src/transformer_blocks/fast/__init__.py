"""Faster forms: operations of the chapters before this one, computed in less time or memory.

The chapters before this one are written to be read. A few of their operations have a faster form
that computes the same. Each file of this package names the torch call that its function equals, and
the cases in which the two differ. Code that exists only for speed is here: measured thresholds,
custom backward passes, and special cases for compiled code.

- :mod:`~transformer_blocks.fast.attention`: attention by a fused kernel, without storing the
  attention weights. It is the default of :class:`~transformer_blocks.MultiHeadAttention`.
- :mod:`~transformer_blocks.fast.intervals`: masks of packed documents, stored as two positions for
  each query; attention skips what they mask.
- :mod:`~transformer_blocks.fast.sliding_window`: attention to the nearest positions alone, at a
  cost that grows linearly with the length.
- :mod:`~transformer_blocks.fast.dropout`: dropout with faster random numbers on a CPU.
- :mod:`~transformer_blocks.fast.cross_entropy`: the loss of a linear layer's logits, in chunks.
- :mod:`~transformer_blocks.fast.top_k`: the largest elements of long rows, block by block.
- :mod:`~transformer_blocks.fast.caching`: the growing buffer of a key-value cache.

Next: :mod:`transformer_blocks.inference`, a trained model prepared for fast decoding.
"""
