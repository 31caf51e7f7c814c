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

# The names are in reading order. `X as X` says to type checkers that X is public.
# isort: skip_file

import types
import typing

from transformer_blocks._version import __version__ as __version__
from transformer_blocks.embedding import LearnedPositionalEncoding as LearnedPositionalEncoding
from transformer_blocks.embedding import (
    SinusoidalPositionalEncoding as SinusoidalPositionalEncoding,
)
from transformer_blocks.embedding import TokenEmbedding as TokenEmbedding
from transformer_blocks.embedding import sinusoidal_table as sinusoidal_table
from transformer_blocks.masks import causal_mask as causal_mask
from transformer_blocks.masks import document_mask as document_mask
from transformer_blocks.masks import format_mask as format_mask
from transformer_blocks.masks import length_mask as length_mask
from transformer_blocks.masks import padding_mask as padding_mask
from transformer_blocks.masks import sliding_window_mask as sliding_window_mask
from transformer_blocks.attention import AttentionFunction as AttentionFunction
from transformer_blocks.attention import attention_weights as attention_weights
from transformer_blocks.attention import (
    scaled_dot_product_attention as scaled_dot_product_attention,
)
from transformer_blocks.multi_head import MultiHeadAttention as MultiHeadAttention
from transformer_blocks.multi_head import QueryKeyTransform as QueryKeyTransform
from transformer_blocks.multi_head import SingleHeadAttention as SingleHeadAttention
from transformer_blocks.feed_forward import FeedForward as FeedForward
from transformer_blocks.residual import PostNorm as PostNorm
from transformer_blocks.residual import PreNorm as PreNorm
from transformer_blocks.residual import Residual as Residual
from transformer_blocks.encoder import Encoder as Encoder
from transformer_blocks.encoder import EncoderLayer as EncoderLayer
from transformer_blocks.decoder import Decoder as Decoder
from transformer_blocks.decoder import DecoderLayer as DecoderLayer
from transformer_blocks.encoder_decoder import EncoderDecoder as EncoderDecoder
from transformer_blocks.builders import build_decoder as build_decoder
from transformer_blocks.builders import build_encoder as build_encoder
from transformer_blocks.loss import ModelWithLoss as ModelWithLoss
from transformer_blocks.schedule import noam_rate as noam_rate
from transformer_blocks.cache import DecoderCache as DecoderCache
from transformer_blocks.cache import KeyValueCache as KeyValueCache
from transformer_blocks.cache import SelfAttentionCache as SelfAttentionCache
from transformer_blocks.variants.explicit import ExplicitAttention as ExplicitAttention
from transformer_blocks.variants.additive import AdditiveAttention as AdditiveAttention
from transformer_blocks.variants.rotary import RotaryPositionalEncoding as RotaryPositionalEncoding
from transformer_blocks.variants.rotary_scaling import Llama3Scaling as Llama3Scaling
from transformer_blocks.variants.rotary_scaling import (
    PositionInterpolation as PositionInterpolation,
)
from transformer_blocks.variants.rotary_scaling import YarnScaling as YarnScaling
from transformer_blocks.variants.alternate import alternate as alternate
from transformer_blocks.variants.alibi import ALiBi as ALiBi
from transformer_blocks.variants.alibi import alibi_slopes as alibi_slopes
from transformer_blocks.variants.relative_bias import RelativeBias as RelativeBias
from transformer_blocks.variants.query_key_norm import QueryKeyNorm as QueryKeyNorm
from transformer_blocks.variants.sinks import SinkAttention as SinkAttention
from transformer_blocks.variants.gated_attention import GatedAttention as GatedAttention
from transformer_blocks.variants.latent_attention import LatentAttention as LatentAttention
from transformer_blocks.variants.gated_feed_forward import GatedFeedForward as GatedFeedForward
from transformer_blocks.variants.routing import Routing as Routing
from transformer_blocks.variants.routing import SigmoidRouting as SigmoidRouting
from transformer_blocks.variants.routing import balancing_loss as balancing_loss
from transformer_blocks.variants.routing import softmax_over_all as softmax_over_all
from transformer_blocks.variants.routing import softmax_over_chosen as softmax_over_chosen
from transformer_blocks.variants.mixture_of_experts import MixtureOfExperts as MixtureOfExperts
from transformer_blocks.variants.mixture_of_experts import (
    record_router_logits as record_router_logits,
)
from transformer_blocks.variants.sandwich_norm import SandwichNorm as SandwichNorm
from transformer_blocks.variants.pooling import first_pool as first_pool
from transformer_blocks.variants.pooling import last_pool as last_pool
from transformer_blocks.variants.pooling import mean_pool as mean_pool
from transformer_blocks.variants.lora import LoraLinear as LoraLinear
from transformer_blocks.variants.lora import add_lora as add_lora
from transformer_blocks.variants.lora import merge_lora as merge_lora
from transformer_blocks.generation import beam_search as beam_search
from transformer_blocks.generation import greedy_search as greedy_search
from transformer_blocks.generation import sample as sample
from transformer_blocks.models import LanguageModel as LanguageModel
from transformer_blocks.models import Seq2Seq as Seq2Seq
from transformer_blocks.models import build_language_model as build_language_model
from transformer_blocks.models import build_seq2seq as build_seq2seq
from transformer_blocks.fast.attention import fused_attention as fused_attention
from transformer_blocks.fast.intervals import packed_mask as packed_mask
from transformer_blocks.fast.sliding_window import SlidingWindowAttention as SlidingWindowAttention
from transformer_blocks.fast.cross_entropy import linear_cross_entropy as linear_cross_entropy
from transformer_blocks.fast.dropout import Dropout as Dropout

if typing.TYPE_CHECKING:
    from transformer_blocks.inspection import record_attention as record_attention

__all__ = sorted(
    [
        "record_attention",
        *(
            name
            for name, thing in vars().items()
            if not name.startswith("_") and not isinstance(thing, types.ModuleType)
        ),
    ]
)


def __getattr__(name: str) -> object:
    """Import ``record_attention`` at its first use: it is a tool, and tools import the blocks."""
    if name != "record_attention":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    from transformer_blocks import inspection

    globals()[name] = inspection.record_attention
    return inspection.record_attention
