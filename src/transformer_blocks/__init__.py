"""The Transformer, one readable block at a time.

Each idea of "Attention Is All You Need" (Vaswani et al. 2017, https://arxiv.org/abs/1706.03762) has
one file: its docstring explains the idea with the equation and the section of the paper, its code
computes the equation, and its examples show a property that you can check. Three rules hold
everywhere. Sequences are batch first, of shape (B, L, d_model). A mask is boolean, and ``True``
hides a key from a query. Layers and stacks return one tensor; :func:`record_attention` collects
their attention weights.

The reading order, and the public names of each file or sub-package:

1. :mod:`~transformer_blocks.embedding`: TokenEmbedding, SinusoidalPositionalEncoding,
   sinusoidal_table, LearnedPositionalEncoding
2. :mod:`~transformer_blocks.masks`: causal_mask, padding_mask, length_mask, sliding_window_mask,
   document_mask, format_mask
3. :mod:`~transformer_blocks.attention`: scaled_dot_product_attention, attention_weights,
   AttentionFunction
4. :mod:`~transformer_blocks.multi_head`: MultiHeadAttention, SingleHeadAttention, QueryKeyTransform
5. :mod:`~transformer_blocks.feed_forward`: FeedForward
6. :mod:`~transformer_blocks.residual`: PostNorm, PreNorm, Residual
7. :mod:`~transformer_blocks.encoder`: Encoder, EncoderLayer
8. :mod:`~transformer_blocks.decoder`: Decoder, DecoderLayer
9. :mod:`~transformer_blocks.encoder_decoder`: EncoderDecoder
10. :mod:`~transformer_blocks.builders`: build_encoder, build_decoder
11. :mod:`~transformer_blocks.loss`: cross_entropy, with label smoothing
12. :mod:`~transformer_blocks.schedule`: noam_schedule, noam_rate
13. :mod:`~transformer_blocks.cache`: SelfAttentionCache, DecoderCache, KeyValueCache
14. :mod:`~transformer_blocks.variants`: parts that replace the paper's; ExplicitAttention
15. :mod:`~transformer_blocks.variants.additive`: AdditiveAttention
16. :mod:`~transformer_blocks.variants.rotary`: RotaryPositionalEncoding
17. :mod:`~transformer_blocks.variants.rotary_scaling`: PositionInterpolation, Llama3Scaling
18. :mod:`~transformer_blocks.variants.alibi`: ALiBi, alibi_slopes
19. :mod:`~transformer_blocks.variants.relative_bias`: RelativeBias
20. :mod:`~transformer_blocks.variants.query_key_norm`: QueryKeyNorm
21. :mod:`~transformer_blocks.variants.grouped_query`: GroupedQueryAttention
22. :mod:`~transformer_blocks.variants.gated_feed_forward`: GatedFeedForward
23. :mod:`~transformer_blocks.variants.sandwich_norm`: SandwichNorm
24. :mod:`~transformer_blocks.variants.pooling`: mean_pool, first_pool, last_pool
25. :mod:`~transformer_blocks.variants.lora`: add_lora, LoraLinear, merge_lora
26. :mod:`~transformer_blocks.generation`: greedy_search, beam_search, sample, Generation, left_pad,
    IncrementalDecoder, StepModel, NonFiniteLogitsError
27. :mod:`~transformer_blocks.models`: LanguageModel, Seq2Seq, build_language_model, build_seq2seq
28. :mod:`~transformer_blocks.inspection`: record_attention, record_projections, Projections,
    logit_lens, head_patterns, HeadPattern, explain_mask, MaskExplanation, trace_shapes, Trace,
    ablate, check_soundness, assert_sound, Soundness, check_causal, check_padding, check_cache,
    check_labels, check_loss, check_search, check_equivalence, Report
29. :mod:`~transformer_blocks.interop`: from_torch, to_torch, assert_equivalent, load_weights
30. :mod:`~transformer_blocks.fast`: faster forms; fused_attention, packed_mask, Dropout,
    SlidingWindowAttention, linear_cross_entropy
31. :mod:`~transformer_blocks.inference`: prepare, save_program, load_program, Program,
    PrepackedLinear, Int8Linear
32. :mod:`~transformer_blocks.explorer`: explore, Explorer, AttentionMaps,
    DecodingSteps, Arithmetic, reproduces, plot_attention, plot_heads
33. :mod:`~transformer_blocks.museum`: exhibits, examine, Exhibit, Examination

Import tools (26, 28, 29, 31 to 33) from their sub-packages, as in ``from transformer_blocks.interop
import from_torch``, ``cross_entropy`` from its file, and all other names from this package, which
also has the three searches and ``record_attention``. The examples in docstrings assume ``import
torch``, ``import torch.nn.functional as F``, ``from torch import nn``, and the public names.
"""

# The names are in reading order. There is no __all__: with one, help() would print every inherited
# method of every class, 32,000 lines, and not the page above.
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
    length_mask as length_mask,
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
from transformer_blocks.variants.pooling import (
    first_pool as first_pool,
    last_pool as last_pool,
    mean_pool as mean_pool,
)
from transformer_blocks.variants.lora import (
    LoraLinear as LoraLinear,
    add_lora as add_lora,
    merge_lora as merge_lora,
)
from transformer_blocks.generation import (
    beam_search as beam_search,
    greedy_search as greedy_search,
    sample as sample,
)
from transformer_blocks.models import (
    LanguageModel as LanguageModel,
    Seq2Seq as Seq2Seq,
    build_language_model as build_language_model,
    build_seq2seq as build_seq2seq,
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
