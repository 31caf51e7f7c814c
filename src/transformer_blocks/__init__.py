"""The Transformer, readable block by block: what to import for what.

From ``transformer_blocks``:

  whole models       LanguageModel, Seq2Seq, build_language_model, build_seq2seq
  stacks             build_encoder, build_decoder, Encoder, Decoder, EncoderDecoder, alternate
  layers             EncoderLayer, DecoderLayer, FeedForward, GatedFeedForward
  mixture of experts MixtureOfExperts, Routing, softmax_over_chosen, softmax_over_all,
                     SigmoidRouting, balancing_loss, record_router_logits
  attention layers   MultiHeadAttention, GatedAttention, LatentAttention,
                     SingleHeadAttention
  attention          fused_attention, scaled_dot_product_attention, attention_weights,
                     AttentionFunction, ExplicitAttention, AdditiveAttention,
                     SinkAttention, SlidingWindowAttention
  residual, dropout  PostNorm, PreNorm, SandwichNorm, Residual, Dropout
  tokens, positions  TokenEmbedding, sinusoidal_table, SinusoidalPositionalEncoding,
                     LearnedPositionalEncoding, ALiBi, alibi_slopes, RelativeBias
  queries and keys   RotaryPositionalEncoding, PositionInterpolation, Llama3Scaling,
                     YarnScaling, QueryKeyNorm, QueryKeyTransform
  masks              padding_mask, length_mask, causal_mask, sliding_window_mask,
                     document_mask, packed_mask, format_mask
  pooling            mean_pool, first_pool, last_pool
  training           ModelWithLoss, linear_cross_entropy, noam_rate
  fine-tuning        add_lora, merge_lora, LoraLinear
  decoding           greedy_search, beam_search, sample
  caches             SelfAttentionCache, DecoderCache, KeyValueCache
  recording          record_attention

From its sub-packages and files, as ``transformer_blocks.generation``:

  generation         decoding of other models: IncrementalDecoder, left_pad
  inspection         check_soundness, explain_mask, trace_shapes, ablate
  pretrained         from_pretrained: published models; build_llama: a Llama from sizes
  interop            from_torch, to_torch, load_weights
  inference          prepare, save_program, load_program
  explorer           explore: all attention maps on one page
  loss               cross_entropy

Batch first: (B, L, d_model). A mask is boolean; True hides. A layer returns one tensor.
``docs/reference`` describes every name, in reading order from ``embedding.py``. ``help()``
continues with every class, as for any package; ``transformer_blocks.__doc__`` is this page.
"""

# The names are in reading order.
# isort: skip_file

from transformer_blocks._version import __version__ as __version__
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
    length_mask,
    padding_mask,
    sliding_window_mask,
)
from transformer_blocks.attention import (
    AttentionFunction,
    attention_weights,
    scaled_dot_product_attention,
)
from transformer_blocks.multi_head import MultiHeadAttention, QueryKeyTransform, SingleHeadAttention
from transformer_blocks.feed_forward import FeedForward
from transformer_blocks.residual import PostNorm, PreNorm, Residual
from transformer_blocks.encoder import Encoder, EncoderLayer
from transformer_blocks.decoder import Decoder, DecoderLayer
from transformer_blocks.encoder_decoder import EncoderDecoder
from transformer_blocks.builders import build_decoder, build_encoder
from transformer_blocks.loss import ModelWithLoss
from transformer_blocks.schedule import noam_rate
from transformer_blocks.cache import DecoderCache, KeyValueCache, SelfAttentionCache
from transformer_blocks.variants.explicit import ExplicitAttention
from transformer_blocks.variants.additive import AdditiveAttention
from transformer_blocks.variants.rotary import RotaryPositionalEncoding
from transformer_blocks.variants.rotary_scaling import (
    Llama3Scaling,
    PositionInterpolation,
    YarnScaling,
)
from transformer_blocks.variants.alternate import alternate
from transformer_blocks.variants.alibi import ALiBi, alibi_slopes
from transformer_blocks.variants.relative_bias import RelativeBias
from transformer_blocks.variants.query_key_norm import QueryKeyNorm
from transformer_blocks.variants.sinks import SinkAttention
from transformer_blocks.variants.gated_attention import GatedAttention
from transformer_blocks.variants.latent_attention import LatentAttention
from transformer_blocks.variants.gated_feed_forward import GatedFeedForward
from transformer_blocks.variants.routing import (
    Routing,
    SigmoidRouting,
    balancing_loss,
    softmax_over_all,
    softmax_over_chosen,
)
from transformer_blocks.variants.mixture_of_experts import MixtureOfExperts, record_router_logits
from transformer_blocks.variants.sandwich_norm import SandwichNorm
from transformer_blocks.variants.pooling import first_pool, last_pool, mean_pool
from transformer_blocks.variants.lora import LoraLinear, add_lora, merge_lora
from transformer_blocks.generation import beam_search, greedy_search, sample
from transformer_blocks.models import LanguageModel, Seq2Seq, build_language_model, build_seq2seq
from transformer_blocks.inspection import record_attention
from transformer_blocks.fast.attention import fused_attention
from transformer_blocks.fast.intervals import packed_mask
from transformer_blocks.fast.sliding_window import SlidingWindowAttention
from transformer_blocks.fast.cross_entropy import linear_cross_entropy
from transformer_blocks.fast.dropout import Dropout

__all__ = [
    "ALiBi",
    "AdditiveAttention",
    "AttentionFunction",
    "Decoder",
    "DecoderCache",
    "DecoderLayer",
    "Dropout",
    "Encoder",
    "EncoderDecoder",
    "EncoderLayer",
    "ExplicitAttention",
    "FeedForward",
    "GatedAttention",
    "GatedFeedForward",
    "KeyValueCache",
    "LanguageModel",
    "LatentAttention",
    "LearnedPositionalEncoding",
    "Llama3Scaling",
    "LoraLinear",
    "MixtureOfExperts",
    "ModelWithLoss",
    "MultiHeadAttention",
    "PositionInterpolation",
    "PostNorm",
    "PreNorm",
    "QueryKeyNorm",
    "QueryKeyTransform",
    "RelativeBias",
    "Residual",
    "RotaryPositionalEncoding",
    "Routing",
    "SandwichNorm",
    "SelfAttentionCache",
    "Seq2Seq",
    "SigmoidRouting",
    "SingleHeadAttention",
    "SinkAttention",
    "SinusoidalPositionalEncoding",
    "SlidingWindowAttention",
    "TokenEmbedding",
    "YarnScaling",
    "add_lora",
    "alibi_slopes",
    "alternate",
    "attention_weights",
    "balancing_loss",
    "beam_search",
    "build_decoder",
    "build_encoder",
    "build_language_model",
    "build_seq2seq",
    "causal_mask",
    "document_mask",
    "first_pool",
    "format_mask",
    "fused_attention",
    "greedy_search",
    "last_pool",
    "length_mask",
    "linear_cross_entropy",
    "mean_pool",
    "merge_lora",
    "noam_rate",
    "packed_mask",
    "padding_mask",
    "record_attention",
    "record_router_logits",
    "sample",
    "scaled_dot_product_attention",
    "sinusoidal_table",
    "sliding_window_mask",
    "softmax_over_all",
    "softmax_over_chosen",
]
