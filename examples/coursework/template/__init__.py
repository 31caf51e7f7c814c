"""A Transformer of my own: twelve units, from byte-pair encoding to BLEU.

Fill the files in this order: tokens, embedding, positions, masks, attention, heads, feed_forward,
layers, loss, optimizer, search, bleu. Later units import earlier ones: ``from .masks import
causal_mask``.

Shapes: B batch size, L query length, S key length, H heads, d_k size of a head, V vocabulary size.
Batch first.
"""
