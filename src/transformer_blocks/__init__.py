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
5. :mod:`~transformer_blocks.additive`: the first way to compare, before the dot product
6. :mod:`~transformer_blocks.multi_head`: the same as a layer, with several heads
7. :mod:`~transformer_blocks.dropout`: numbers lost on purpose
8. :mod:`~transformer_blocks.feed_forward`: what every position does on its own
9. :mod:`~transformer_blocks.residual`: how parts are stacked without standing in the way
10. :mod:`~transformer_blocks.encoder`: the half that reads
11. :mod:`~transformer_blocks.decoder`: the half that writes
12. :mod:`~transformer_blocks.encoder_decoder`: the two together
13. :mod:`~transformer_blocks.builders`: whole stacks from a few sizes
14. :mod:`~transformer_blocks.loss`: how wrong the next word was
15. :mod:`~transformer_blocks.schedule`: the learning rate that trains them
16. :mod:`~transformer_blocks.cache`: what decoding need not compute again
17. :mod:`~transformer_blocks.rotary`: positions that turn queries and keys
18. :mod:`~transformer_blocks.linear_bias`: distance as a price
19. :mod:`~transformer_blocks.query_key_norm`: scores that cannot run away
20. :mod:`~transformer_blocks.grouped_query`: heads that share what they look up
21. :mod:`~transformer_blocks.packing`: a finished model, laid out for speed
22. :mod:`~transformer_blocks.generation`: from scores for the next word to a sentence
23. :mod:`~transformer_blocks.inspection`: a look at what the model looked at
24. :mod:`~transformer_blocks.interop`: weights from torch's modules and back
25. :mod:`~transformer_blocks.explorer`: all of it on one page

Three rules hold everywhere. Sequences are batch first, (B, L, d_model). A mask is boolean and
``True`` hides. Modules return one tensor; attention weights are seen with :func:`record_attention`.

The examples assume ``import torch, torch.nn.functional as F``, ``from torch import nn`` and
``from transformer_blocks import *``.
"""

# isort: skip_file
# ruff: noqa: RUF022  (the names stand in teaching order)
from transformer_blocks.embedding import (
    LearnedPositionalEncoding,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    sinusoidal_table,
)
from transformer_blocks.masks import (
    causal_mask,
    document_mask,
    format_mask,
    padding_mask,
    sliding_window_mask,
)
from transformer_blocks.attention import (
    attention_weights,
    fused_attention,
    scaled_dot_product_attention,
)
from transformer_blocks.kernels import AttentionKernel, PreparingKernel, WeighingKernel
from transformer_blocks.additive import AdditiveAttention
from transformer_blocks.multi_head import MultiHeadAttention, SingleHeadAttention
from transformer_blocks.dropout import Dropout, drop
from transformer_blocks.feed_forward import FeedForward, GatedFeedForward
from transformer_blocks.residual import PostNorm, PreNorm, Residual
from transformer_blocks.encoder import Encoder, EncoderLayer
from transformer_blocks.decoder import Decoder, DecoderLayer
from transformer_blocks.encoder_decoder import EncoderDecoder
from transformer_blocks.builders import build_decoder, build_encoder
from transformer_blocks.loss import linear_cross_entropy
from transformer_blocks.schedule import paper_rate, warmup_schedule
from transformer_blocks.cache import DecoderCache, EncoderCache, KeyValueCache
from transformer_blocks.rotary import RotaryPositionalEncoding
from transformer_blocks.linear_bias import ALiBi, alibi_slopes
from transformer_blocks.query_key_norm import QueryKeyNorm
from transformer_blocks.grouped_query import GroupedQueryAttention
from transformer_blocks.packing import PackedLinear, compile_steps, pack
from transformer_blocks.generation import (
    Generation,
    StepModel,
    beam_search,
    greedy_search,
    sample,
)
from transformer_blocks.inspection import (
    MaskExplanation,
    Report,
    Trace,
    ablate,
    check_cache,
    check_causal,
    check_padding,
    explain_mask,
    record_attention,
    trace_shapes,
)
from transformer_blocks.interop import assert_equivalent, from_torch, load_weights, to_torch
from transformer_blocks.explorer import (
    AttentionBlock,
    Explorer,
    Writing,
    plot_attention,
    plot_heads,
    save_explorer,
)

__all__ = [
    "TokenEmbedding",
    "SinusoidalPositionalEncoding",
    "LearnedPositionalEncoding",
    "sinusoidal_table",
    "causal_mask",
    "padding_mask",
    "sliding_window_mask",
    "document_mask",
    "format_mask",
    "attention_weights",
    "scaled_dot_product_attention",
    "fused_attention",
    "AttentionKernel",
    "WeighingKernel",
    "PreparingKernel",
    "AdditiveAttention",
    "SingleHeadAttention",
    "MultiHeadAttention",
    "Dropout",
    "drop",
    "FeedForward",
    "GatedFeedForward",
    "Residual",
    "PostNorm",
    "PreNorm",
    "EncoderLayer",
    "Encoder",
    "DecoderLayer",
    "Decoder",
    "EncoderDecoder",
    "build_encoder",
    "build_decoder",
    "linear_cross_entropy",
    "paper_rate",
    "warmup_schedule",
    "KeyValueCache",
    "EncoderCache",
    "DecoderCache",
    "RotaryPositionalEncoding",
    "ALiBi",
    "alibi_slopes",
    "QueryKeyNorm",
    "GroupedQueryAttention",
    "PackedLinear",
    "pack",
    "compile_steps",
    "StepModel",
    "Generation",
    "greedy_search",
    "sample",
    "beam_search",
    "record_attention",
    "explain_mask",
    "MaskExplanation",
    "trace_shapes",
    "Trace",
    "ablate",
    "check_causal",
    "check_padding",
    "check_cache",
    "Report",
    "from_torch",
    "to_torch",
    "assert_equivalent",
    "load_weights",
    "AttentionBlock",
    "Writing",
    "Explorer",
    "save_explorer",
    "plot_attention",
    "plot_heads",
]
