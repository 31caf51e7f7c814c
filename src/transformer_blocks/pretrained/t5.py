"""T5: the encoder and the decoder, and the names of their weights in published files.

T5 ("Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", Raffel et
al. 2020, https://arxiv.org/abs/1910.10683, section 2.1) is the paper's Transformer with these
changes:

- In place of positional encodings, learned biases are added to the attention scores, one for each
  head and each bucket of distances (:class:`~transformer_blocks.RelativeBias`). All layers of a
  stack share them.
- RMSNorm comes before each sublayer, and linear layers have no biases.
- Scores are not divided by the square root of the head size. The fused kernel of the
  cross-attention does divide them, so its query projection is multiplied by that root when it is
  loaded.
- In the first T5, the output layer shares the weights of the embedding, and the hidden states are
  divided by the square root of the hidden size before it. Later versions (T5 1.1, Flan-T5) have an
  output layer of their own, and a gated feed-forward network ("GLU Variants Improve Transformer",
  Shazeer 2020, https://arxiv.org/abs/2002.05202).

Next: ``gpt2.py``, a decoder alone.
"""

import math
import re
from collections.abc import Collection
from functools import partial
from typing import Any, ClassVar

from torch import Tensor, nn

from transformer_blocks.attention import AttentionFunction
from transformer_blocks.decoder import Decoder, DecoderLayer
from transformer_blocks.encoder import Encoder, EncoderLayer
from transformer_blocks.fast.attention import fused_attention
from transformer_blocks.feed_forward import FeedForward
from transformer_blocks.models import Seq2Seq, TiedLinear
from transformer_blocks.multi_head import MultiHeadAttention
from transformer_blocks.pretrained.config import ACTIVATIONS, LARGEST, Config
from transformer_blocks.pretrained.family import Family
from transformer_blocks.pretrained.weights import Origin, rename
from transformer_blocks.residual import PreNorm
from transformer_blocks.variants.gated_feed_forward import GatedFeedForward
from transformer_blocks.variants.relative_bias import RelativeBias

SHARED = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
OUTPUT = "lm_head.weight"
NETWORKS = {
    **{name: (name, False) for name in ACTIVATIONS},
    **{f"gated-{name}": (name, True) for name in ACTIVATIONS},
    "gated-gelu": ("gelu_new", True),
}
"""Values of ``feed_forward_proj``: the activation function, and whether there is a gate."""


class Scale(nn.Module):
    """Multiplies hidden states by a number.

    Args:
        factor: The number.
    """

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = factor

    def forward(self, x: Tensor) -> Tensor:
        """Return the product, of the same shape."""
        return x * self.factor


class T5(Family):
    """T5."""

    names: ClassVar[dict[str, str]] = {
        "encoder.layers": "encoder.block",
        "decoder.layers": "decoder.block",
        "norm": "final_layer_norm",
        "self_attention_residual.norm": "layer.0.layer_norm",
        "self_attention.attention_function": "layer.0.SelfAttention.relative_attention_bias",
        "self_attention.query_projection": "layer.0.SelfAttention.q",
        "self_attention.key_projection": "layer.0.SelfAttention.k",
        "self_attention.value_projection": "layer.0.SelfAttention.v",
        "self_attention.output_projection": "layer.0.SelfAttention.o",
        "cross_attention_residual.norm": "layer.1.layer_norm",
        "cross_attention.query_projection": "layer.1.EncDecAttention.q",
        "cross_attention.key_projection": "layer.1.EncDecAttention.k",
        "cross_attention.value_projection": "layer.1.EncDecAttention.v",
        "cross_attention.output_projection": "layer.1.EncDecAttention.o",
        "feed_forward_residual.norm": "layer.2.layer_norm",
        "feed_forward.gate_projection": "layer.2.DenseReluDense.wi_0",
        "feed_forward.up_projection": "layer.2.DenseReluDense.wi",
        "feed_forward.down_projection": "layer.2.DenseReluDense.wo",
    }
    # Biases of the cross-attention, which the first files hold and no layer uses.
    left_out = r"decoder\.block\.0\.layer\.1\.EncDecAttention\.relative_attention_bias\.weight"
    end_id = 1

    def __init__(self, config: Config, tensors: Collection[str] = ()) -> None:
        config.expect({"is_causal": None, "is_encoder_decoder": True})
        self.vocabulary_size, self.d_model = config.size("vocab_size"), config.size("d_model")
        self.num_heads = config.size("num_heads")
        self.d_k = config.size("d_kv", most=LARGEST // self.num_heads)
        layers = config.layers("num_layers")
        self.num_layers = layers, config.layers("num_decoder_layers", layers)
        buckets = config.size("relative_attention_num_buckets", 32)
        distance = config.size("relative_attention_max_distance", 128)
        if buckets < 4 or buckets % 2 or distance <= buckets // 2:
            rule = f"be even, at least 4, less than 2 * relative_attention_max_distance={distance}"
            raise config.error("relative_attention_num_buckets", rule, buckets)
        self.buckets = {"num_buckets": buckets, "max_distance": distance}
        activation, self.gated = config.choice("feed_forward_proj", NETWORKS, "relu")
        config.expect({"dense_act_fn": activation, "is_gated_act": self.gated})
        self.feed_forward = partial(
            GatedFeedForward if self.gated else FeedForward,
            self.d_model,
            config.size("d_ff"),
            activation=ACTIVATIONS[activation],
            bias=False,
        )
        self.eps = config.number("layer_norm_epsilon", 1e-6)
        is_scaled = config.flag("tie_word_embeddings", default=True)
        is_scaled = config.flag("scale_decoder_outputs", is_scaled)
        self.scale, self.tied = self.d_model**-0.5 if is_scaled else 1.0, OUTPUT not in tensors
        token_id = partial(config.size, least=0, most=self.vocabulary_size - 1)
        self.padding_id = token_id("pad_token_id", 0)
        self.start_id = token_id("decoder_start_token_id", self.padding_id)

    def norm(self) -> nn.RMSNorm:
        """Make a normalisation."""
        return nn.RMSNorm(self.d_model, eps=self.eps)

    def residual(self) -> PreNorm:
        """Make the connection of a sublayer."""
        return PreNorm(self.d_model, dropout=0.0, norm=self.norm())

    def bias(self, *, bidirectional: bool) -> RelativeBias:
        """Make the attention function that all layers of a stack share."""
        return RelativeBias(self.num_heads, **self.buckets, bidirectional=bidirectional, scale=1.0)

    def attention(self, function: AttentionFunction) -> MultiHeadAttention:
        """Make the attention of a layer."""
        return MultiHeadAttention(
            self.d_model, self.num_heads, d_k=self.d_k, bias=False, attention_function=function
        )

    def build(self) -> Seq2Seq:
        """Compose the model."""
        embedding = nn.Embedding(self.vocabulary_size, self.d_model)
        output: nn.Module = TiedLinear(embedding, "target_embedding")
        if not self.tied:
            output = nn.Linear(self.d_model, self.vocabulary_size, bias=False)
        bias, decoder_bias = (self.bias(bidirectional=each) for each in (True, False))
        encoder_layers = [
            EncoderLayer(self.attention(bias), self.feed_forward(), residual=self.residual)
            for _ in range(self.num_layers[0])
        ]
        decoder_layers = [
            DecoderLayer(
                self.attention(decoder_bias),
                self.attention(fused_attention),
                self.feed_forward(),
                residual=self.residual,
            )
            for _ in range(self.num_layers[1])
        ]
        encoder = Encoder(encoder_layers, norm=self.norm())
        decoder = Decoder(decoder_layers, norm=self.norm())
        output = nn.Sequential(Scale(self.scale), output)
        ids: dict[str, Any] = {"padding_id": self.padding_id, "begin_id": self.start_id}
        return Seq2Seq(embedding, embedding, encoder, decoder, output=output, **ids)

    def origin(self, name: str) -> Origin:
        """Return the tensor that a parameter is read from."""
        is_output = name.startswith("output.")
        if is_output or name.endswith("embedding.weight"):
            return Origin((OUTPUT,) if is_output and not self.tied else SHARED)
        published = rename(name, self.names)
        if name.startswith("encoder"):  # has no cross-attention
            published = published.replace(".layer.2.", ".layer.1.")
        if self.gated:
            published = published.replace(".wi.", ".wi_1.")
        if "attention_function" in name:
            published = re.sub(r"block\.\d+", "block.0", published)
        origin = Origin((published,))
        is_query = "cross_attention.query" in name  # the fused kernel divides its scores
        return origin.then(lambda weight: weight * math.sqrt(self.d_k)) if is_query else origin
