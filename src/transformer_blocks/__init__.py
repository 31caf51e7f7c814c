"""The Transformer, one readable block at a time.

Each idea of "Attention Is All You Need" (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762) has
one file: its docstring explains the idea with the equation and the section of the paper, its code
computes the equation, and its examples show a property that you can check. The code that you read
is the code that you train and run.

Three rules hold everywhere. Sequences are batch first, of shape (B, L, d_model). A mask is boolean,
and ``True`` hides a key from a query. Layers and stacks return one tensor;
:func:`record_attention` collects their attention weights.

The reading order:

1. :mod:`~transformer_blocks.embedding`: token embeddings and positional encodings
2. :mod:`~transformer_blocks.masks`: which positions must not be attended to
3. :mod:`~transformer_blocks.attention`: scaled dot-product attention
4. :mod:`~transformer_blocks.multi_head`: learned projections and several heads
5. :mod:`~transformer_blocks.feed_forward`: the position-wise feed-forward network
6. :mod:`~transformer_blocks.residual`: residual connections, pre-norm and post-norm
7. :mod:`~transformer_blocks.encoder`: the encoder
8. :mod:`~transformer_blocks.decoder`: the decoder
9. :mod:`~transformer_blocks.encoder_decoder`: the whole Transformer
10. :mod:`~transformer_blocks.builders`: whole stacks built from a few sizes
11. :mod:`~transformer_blocks.loss`: cross-entropy with label smoothing
12. :mod:`~transformer_blocks.schedule`: the learning-rate schedule
13. :mod:`~transformer_blocks.cache`: keys and values cached for decoding
14. :mod:`~transformer_blocks.variants`: parts that replace those of the paper
15. :mod:`~transformer_blocks.variants.additive`: additive attention
16. :mod:`~transformer_blocks.variants.rotary`: rotary positional encoding
17. :mod:`~transformer_blocks.variants.rotary_scaling`: slower rotations for longer sequences
18. :mod:`~transformer_blocks.variants.alibi`: score biases proportional to the distance
19. :mod:`~transformer_blocks.variants.relative_bias`: learned biases of the distances
20. :mod:`~transformer_blocks.variants.query_key_norm`: normalised queries and keys
21. :mod:`~transformer_blocks.variants.grouped_query`: heads that share keys and values
22. :mod:`~transformer_blocks.variants.gated_feed_forward`: the feed-forward network with a gate
23. :mod:`~transformer_blocks.variants.sandwich_norm`: normalisation before and after a sublayer
24. :mod:`~transformer_blocks.variants.lora`: low-rank adaptation, fine-tuning of few weights
25. :mod:`~transformer_blocks.generation`: greedy decoding, sampling and beam search
26. :mod:`~transformer_blocks.inspection`: attention weights, checks and ablations
27. :mod:`~transformer_blocks.interop`: conversion from and to torch's modules
28. :mod:`~transformer_blocks.fast`: faster forms of standard operations
29. :mod:`~transformer_blocks.inference`: a trained model prepared for fast decoding
30. :mod:`~transformer_blocks.explorer`: all attention maps of a model on one page
31. :mod:`~transformer_blocks.museum`: published faults and the checks that find them

The most frequent names are exported here; tools are imported from their sub-packages, for example
``from transformer_blocks.inspection import check_causal``. The examples assume ``import torch``,
``import torch.nn.functional as F``, ``from torch import nn``, and the names of this package and of
its sub-packages.
"""

# The names are in reading order.
# isort: skip_file

from transformer_blocks._version import __version__ as __version__
from transformer_blocks.embedding import (
    LearnedPositionalEncoding as LearnedPositionalEncoding,
    SinusoidalPositionalEncoding as SinusoidalPositionalEncoding,
    TokenEmbedding as TokenEmbedding,
    sinusoidal_table as sinusoidal_table,
)
from transformer_blocks.masks import (
    causal_mask as causal_mask,
    document_mask as document_mask,
    format_mask as format_mask,
    padding_mask as padding_mask,
    sliding_window_mask as sliding_window_mask,
)
from transformer_blocks.attention import (
    AttentionFunction as AttentionFunction,
    attention_weights as attention_weights,
    scaled_dot_product_attention as scaled_dot_product_attention,
)
from transformer_blocks.multi_head import (
    MultiHeadAttention as MultiHeadAttention,
    QueryKeyTransform as QueryKeyTransform,
    SingleHeadAttention as SingleHeadAttention,
)
from transformer_blocks.feed_forward import (
    FeedForward as FeedForward,
)
from transformer_blocks.residual import (
    PostNorm as PostNorm,
    PreNorm as PreNorm,
    Residual as Residual,
)
from transformer_blocks.encoder import (
    Encoder as Encoder,
    EncoderLayer as EncoderLayer,
)
from transformer_blocks.decoder import (
    Decoder as Decoder,
    DecoderLayer as DecoderLayer,
)
from transformer_blocks.encoder_decoder import (
    EncoderDecoder as EncoderDecoder,
)
from transformer_blocks.builders import (
    build_decoder as build_decoder,
    build_encoder as build_encoder,
)
from transformer_blocks.schedule import (
    noam_rate as noam_rate,
    noam_schedule as noam_schedule,
)
from transformer_blocks.cache import (
    DecoderCache as DecoderCache,
    KeyValueCache as KeyValueCache,
    SelfAttentionCache as SelfAttentionCache,
)
from transformer_blocks.variants.explicit import (
    ExplicitAttention as ExplicitAttention,
)
from transformer_blocks.variants.additive import (
    AdditiveAttention as AdditiveAttention,
)
from transformer_blocks.variants.rotary import (
    RotaryPositionalEncoding as RotaryPositionalEncoding,
)
from transformer_blocks.variants.rotary_scaling import (
    Llama3Scaling as Llama3Scaling,
    PositionInterpolation as PositionInterpolation,
)
from transformer_blocks.variants.alibi import (
    ALiBi as ALiBi,
    alibi_slopes as alibi_slopes,
)
from transformer_blocks.variants.relative_bias import (
    RelativeBias as RelativeBias,
)
from transformer_blocks.variants.query_key_norm import (
    QueryKeyNorm as QueryKeyNorm,
)
from transformer_blocks.variants.grouped_query import (
    GroupedQueryAttention as GroupedQueryAttention,
)
from transformer_blocks.variants.gated_feed_forward import (
    GatedFeedForward as GatedFeedForward,
)
from transformer_blocks.variants.sandwich_norm import (
    SandwichNorm as SandwichNorm,
)
from transformer_blocks.variants.lora import (
    LoraLinear as LoraLinear,
    add_lora as add_lora,
    load_lora as load_lora,
    lora_weights as lora_weights,
    merge_lora as merge_lora,
)
from transformer_blocks.generation import (
    beam_search as beam_search,
    greedy_search as greedy_search,
    sample as sample,
)
from transformer_blocks.inspection import (
    record_attention as record_attention,
)
from transformer_blocks.fast.attention import (
    fused_attention as fused_attention,
)
from transformer_blocks.fast.intervals import (
    packed_mask as packed_mask,
)
from transformer_blocks.fast.sliding_window import (
    SlidingWindowAttention as SlidingWindowAttention,
)
from transformer_blocks.fast.cross_entropy import (
    linear_cross_entropy as linear_cross_entropy,
)
from transformer_blocks.fast.dropout import (
    Dropout as Dropout,
)
