"""Variants: parts that replace those of the paper.

A layer is composed of parts, so a part can be replaced without a change to the layer. In multi-head
attention, there are four:

- **The attention function** computes attention from queries, keys and values. Any function with the
  arguments of :class:`~transformer_blocks.AttentionFunction` can be passed as
  ``MultiHeadAttention(attention_function=...)``. It may compute the same output faster, as
  :func:`~transformer_blocks.fused_attention` does, or other attention weights. To compute other
  scores, derive a class from :class:`~transformer_blocks.ExplicitAttention`, which masks the scores
  and applies the softmax: :mod:`~transformer_blocks.variants.additive`,
  :mod:`~transformer_blocks.variants.alibi` and :mod:`~transformer_blocks.variants.relative_bias` do
  so. For other weights of the same scores, override its method ``normalise``, as
  :mod:`~transformer_blocks.variants.sinks` does.
- **A transform** is applied to queries and keys, before keys enter the cache and before the
  attention function is called: :mod:`~transformer_blocks.variants.rotary`,
  :mod:`~transformer_blocks.variants.query_key_norm`, or both, one after the other, as
  ``MultiHeadAttention(transforms=[...])``.
- **The projections** to keys and values can have fewer heads than the projection to queries, as
  ``MultiHeadAttention(num_key_value_heads=...)``: :mod:`transformer_blocks.multi_head`.
- **The output** of the heads is concatenated and projected by
  :meth:`~transformer_blocks.MultiHeadAttention.project_output`, which a derived class extends:
  :mod:`~transformer_blocks.variants.gated_attention`.

The feed-forward network has variants too, :mod:`~transformer_blocks.variants.gated_feed_forward`
and :mod:`~transformer_blocks.variants.mixture_of_experts`, and so has the residual connection,
:mod:`~transformer_blocks.variants.sandwich_norm`. A model of whole sequences has a
:mod:`~transformer_blocks.variants.pooling` in place of the decoder. Linear layers anywhere in a
trained model are replaced by :mod:`~transformer_blocks.variants.lora`, which trains few weights in
place of all. With each of these parts, the mask rule of :mod:`transformer_blocks.masks` holds, and
``causal`` is aligned to the bottom right.

Next: :mod:`transformer_blocks.variants.additive`, attention before the Transformer.
"""
