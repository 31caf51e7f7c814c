"""Variants: parts that take the place of one of the paper's.

A layer is composed of parts, so a part can be exchanged without a change to the layer. Attention
has three of them:

- **The attention function** computes attention from queries, keys and values. Any function with the
  arguments of :class:`~transformer_blocks.AttentionFunction` can be passed as
  ``MultiHeadAttention(attention_function=...)``: it may compute the same weights faster, as
  :func:`~transformer_blocks.fused_attention` does, or other weights. One that computes other scores
  is a subclass of :class:`~transformer_blocks.ExplicitAttention`, which masks them and applies the
  softmax: :mod:`~transformer_blocks.variants.additive` and
  :mod:`~transformer_blocks.variants.alibi`.
- **A transform** changes queries and keys before the attention function and before keys enter the
  cache: :mod:`~transformer_blocks.variants.rotary` and
  :mod:`~transformer_blocks.variants.query_key_norm`, or both, one after the other, as
  ``MultiHeadAttention(transforms=[...])``.
- **The projections** can make fewer keys and values:
  :mod:`~transformer_blocks.variants.grouped_query`.

The feed-forward network has a variant too: :mod:`~transformer_blocks.variants.gated_feed_forward`.
Whatever is exchanged, the mask rule of :mod:`transformer_blocks.masks` holds, and ``causal`` is
aligned to the bottom right.

Next chapter: :mod:`transformer_blocks.variants.additive`, attention before the Transformer.
"""
