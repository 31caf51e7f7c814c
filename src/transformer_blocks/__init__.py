"""The Transformer, one readable block at a time.

Every idea of "Attention Is All You Need" (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762) is
one file here, and every file is a chapter: its docstring tells the idea, the equation and the
section of the paper, its code is the equation, and its examples show a property that you can check.
What you read is what you train and run; where a finished model takes a shorter way, one chapter
shows it. The reading order:

1. :mod:`~transformer_blocks.embedding`: from words to vectors that know their place
2. :mod:`~transformer_blocks.masks`: what must not be seen
3. :mod:`~transformer_blocks.attention`: every query takes a weighted sum of what it finds
4. :mod:`~transformer_blocks.kernels`: what computes attention can be exchanged
5. :mod:`~transformer_blocks.variants.additive`: the first way to compare, before the dot product
6. :mod:`~transformer_blocks.multi_head`: the same as a layer, with several heads
7. :mod:`~transformer_blocks.fast.dropout`: numbers lost on purpose
8. :mod:`~transformer_blocks.feed_forward`: what every position does on its own
9. :mod:`~transformer_blocks.residual`: how parts are stacked without standing in the way
10. :mod:`~transformer_blocks.encoder`: the half that reads
11. :mod:`~transformer_blocks.decoder`: the half that writes
12. :mod:`~transformer_blocks.encoder_decoder`: the two together
13. :mod:`~transformer_blocks.builders`: whole stacks from a few sizes
14. :mod:`~transformer_blocks.loss`: how wrong the next word was
15. :mod:`~transformer_blocks.schedule`: the learning rate that trains them
16. :mod:`~transformer_blocks.cache`: what decoding need not compute again
17. :mod:`~transformer_blocks.variants.rotary`: positions that turn queries and keys
18. :mod:`~transformer_blocks.variants.alibi`: distance as a price
19. :mod:`~transformer_blocks.variants.query_key_norm`: scores that cannot run away
20. :mod:`~transformer_blocks.variants.grouped_query`: heads that share what they look up
21. :mod:`~transformer_blocks.inference`: a finished model, laid out for speed
22. :mod:`~transformer_blocks.generation`: from scores for the next word to a sentence
23. :mod:`~transformer_blocks.inspection`: a look at what the model looked at
24. :mod:`~transformer_blocks.interop`: weights from torch's modules and back
25. :mod:`~transformer_blocks.explorer`: all of it on one page

Three rules hold everywhere. Sequences are batch first, (B, L, d_model). A mask is boolean and
``True`` hides. Modules return one tensor; attention weights are seen with :func:`record_attention`.

The examples assume ``import torch, torch.nn.functional as F``, ``from torch import nn`` and
``from transformer_blocks import *``.
"""

# isort: skip_file  (the names stand in teaching order)
from transformer_blocks.attention import (
    attention_weights as attention_weights,
)
from transformer_blocks.attention import (
    fused_attention as fused_attention,
)
from transformer_blocks.attention import (
    scaled_dot_product_attention as scaled_dot_product_attention,
)
from transformer_blocks.builders import (
    build_decoder as build_decoder,
)
from transformer_blocks.builders import (
    build_encoder as build_encoder,
)
from transformer_blocks.cache import (
    DecoderCache as DecoderCache,
)
from transformer_blocks.cache import (
    KeyValueCache as KeyValueCache,
)
from transformer_blocks.cache import (
    SelfAttentionCache as SelfAttentionCache,
)
from transformer_blocks.decoder import (
    Decoder as Decoder,
)
from transformer_blocks.decoder import (
    DecoderLayer as DecoderLayer,
)
from transformer_blocks.embedding import (
    LearnedPositionalEncoding as LearnedPositionalEncoding,
)
from transformer_blocks.embedding import (
    SinusoidalPositionalEncoding as SinusoidalPositionalEncoding,
)
from transformer_blocks.embedding import (
    TokenEmbedding as TokenEmbedding,
)
from transformer_blocks.embedding import (
    sinusoidal_table as sinusoidal_table,
)
from transformer_blocks.encoder import (
    Encoder as Encoder,
)
from transformer_blocks.encoder import (
    EncoderLayer as EncoderLayer,
)
from transformer_blocks.encoder_decoder import (
    EncoderDecoder as EncoderDecoder,
)
from transformer_blocks.fast.cross_entropy import (
    linear_cross_entropy as linear_cross_entropy,
)
from transformer_blocks.fast.dropout import (
    Dropout as Dropout,
)
from transformer_blocks.feed_forward import (
    FeedForward as FeedForward,
)
from transformer_blocks.generation import (
    beam_search as beam_search,
)
from transformer_blocks.generation import (
    greedy_search as greedy_search,
)
from transformer_blocks.generation import (
    sample as sample,
)
from transformer_blocks.inspection import (
    record_attention as record_attention,
)
from transformer_blocks.kernels import (
    AttentionFunction as AttentionFunction,
)
from transformer_blocks.kernels import (
    ExplicitAttention as ExplicitAttention,
)
from transformer_blocks.kernels import (
    PreparingKernel as PreparingKernel,
)
from transformer_blocks.masks import (
    causal_mask as causal_mask,
)
from transformer_blocks.masks import (
    document_mask as document_mask,
)
from transformer_blocks.masks import (
    format_mask as format_mask,
)
from transformer_blocks.masks import (
    padding_mask as padding_mask,
)
from transformer_blocks.masks import (
    sliding_window_mask as sliding_window_mask,
)
from transformer_blocks.multi_head import (
    MultiHeadAttention as MultiHeadAttention,
)
from transformer_blocks.multi_head import (
    SingleHeadAttention as SingleHeadAttention,
)
from transformer_blocks.residual import (
    PostNorm as PostNorm,
)
from transformer_blocks.residual import (
    PreNorm as PreNorm,
)
from transformer_blocks.residual import (
    Residual as Residual,
)
from transformer_blocks.schedule import (
    noam_rate as noam_rate,
)
from transformer_blocks.schedule import (
    noam_schedule as noam_schedule,
)
from transformer_blocks.variants.additive import (
    AdditiveAttention as AdditiveAttention,
)
from transformer_blocks.variants.alibi import (
    ALiBi as ALiBi,
)
from transformer_blocks.variants.alibi import (
    alibi_slopes as alibi_slopes,
)
from transformer_blocks.variants.gated_feed_forward import (
    GatedFeedForward as GatedFeedForward,
)
from transformer_blocks.variants.grouped_query import (
    GroupedQueryAttention as GroupedQueryAttention,
)
from transformer_blocks.variants.query_key_norm import (
    QueryKeyNorm as QueryKeyNorm,
)
from transformer_blocks.variants.rotary import (
    RotaryPositionalEncoding as RotaryPositionalEncoding,
)
