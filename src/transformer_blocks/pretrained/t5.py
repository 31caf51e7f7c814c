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

Next: ``text_to_text.py``, the outputs for several texts.
"""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from transformer_blocks import (
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
    GatedFeedForward,
    MultiHeadAttention,
    PreNorm,
    RelativeBias,
    Seq2Seq,
    fused_attention,
)
from transformer_blocks.pretrained.loading import (
    ACTIVATIONS,
    LARGEST,
    MOST_LAYERS,
    Config,
    LoadError,
)
from transformer_blocks.pretrained.weights import Origin, PublishedModel, read_names, rename

SHARED = ("shared.weight", "encoder.embed_tokens.weight", "decoder.embed_tokens.weight")
OUTPUT = "lm_head.weight"
NETWORKS = {
    **{name: (name, False) for name in ACTIVATIONS},
    **{f"gated-{name}": (name, True) for name in ACTIVATIONS},
    "gated-gelu": ("gelu_new", True),
}
"""Values of ``feed_forward_proj``: the activation function, and whether there is a gate."""


@dataclass(frozen=True)
class T5Sizes:
    """The settings of a T5.

    Attributes:
        vocabulary_size: Number of token ids, V.
        d_model: Hidden size.
        d_k: Size of a head.
        d_ff: Inner size of the feed-forward networks.
        num_layers: Number of layers of the encoder, and of the decoder.
        num_heads: Number of attention heads of each layer.
        num_buckets: Number of buckets of distances.
        max_distance: Distance from which all are in the last bucket.
        eps: Constant that the normalisations add to the mean square.
        activation: Activation function of the feed-forward networks.
        gated: Whether these have a gate.
        scaled: Whether the hidden states are divided by the square root of ``d_model`` before the
            output layer.
        tied: Whether the output layer shares the weights of the embedding.
        padding_id: Id of the padding token.
        start_id: Id of the token with which every output begins.
        end_id: Id of the token that ends a text.
    """

    vocabulary_size: int
    d_model: int
    d_k: int
    d_ff: int
    num_layers: tuple[int, int]
    num_heads: int
    num_buckets: int
    max_distance: int
    eps: float
    activation: Callable[[Tensor], Tensor]
    gated: bool
    scaled: bool
    tied: bool
    padding_id: int
    start_id: int
    end_id: int

    def norm(self) -> nn.RMSNorm:
        """Make a normalisation."""
        return nn.RMSNorm(self.d_model, eps=self.eps)

    def residual(self) -> PreNorm:
        """Make a residual connection."""
        return PreNorm(self.d_model, dropout=0.0, norm=self.norm())

    def bias(self, *, bidirectional: bool) -> RelativeBias:
        """Make the attention function that all layers of a stack share."""
        return RelativeBias(
            self.num_heads,
            num_buckets=self.num_buckets,
            max_distance=self.max_distance,
            bidirectional=bidirectional,
            scale=1.0,
        )

    def attention(self, bias: RelativeBias | None = None) -> MultiHeadAttention:
        """Make a self-attention with a bias, or a cross-attention without one."""
        return MultiHeadAttention(
            self.d_model,
            self.num_heads,
            d_k=self.d_k,
            bias=False,
            attention_function=bias or fused_attention,
        )

    def feed_forward(self) -> nn.Module:
        """Make a feed-forward network."""
        kind = GatedFeedForward if self.gated else FeedForward
        return kind(self.d_model, self.d_ff, activation=self.activation, bias=False)


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


class T5(PublishedModel, Seq2Seq):
    """T5's encoder and decoder.

    Args:
        sizes: The settings of the model.
    """

    target_embedding: nn.Embedding
    model_type = "t5"
    expected: ClassVar[dict[str, Any]] = {"is_encoder_decoder": True, "is_causal": True}
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

    def __init__(self, sizes: T5Sizes) -> None:
        embedding = nn.Embedding(sizes.vocabulary_size, sizes.d_model)
        output = nn.Linear(sizes.d_model, sizes.vocabulary_size, bias=False)
        if sizes.tied:
            output.weight = embedding.weight
        bias, decoder_bias = (sizes.bias(bidirectional=each) for each in (True, False))
        encoder = Encoder(
            [
                EncoderLayer(sizes.attention(bias), sizes.feed_forward(), residual=sizes.residual)
                for _ in range(sizes.num_layers[0])
            ],
            norm=sizes.norm(),
        )
        decoder = Decoder(
            [
                DecoderLayer(
                    sizes.attention(decoder_bias),
                    sizes.attention(),
                    sizes.feed_forward(),
                    residual=sizes.residual,
                )
                for _ in range(sizes.num_layers[1])
            ],
            norm=sizes.norm(),
        )
        super().__init__(
            embedding,
            embedding,
            encoder,
            decoder,
            output=nn.Sequential(Scale(sizes.d_model**-0.5 if sizes.scaled else 1.0), output),
            padding_id=sizes.padding_id,
            begin_id=sizes.start_id,
        )
        self.sizes, self.end_id = sizes, sizes.end_id

    @classmethod
    def read(cls, folder: Path, config: Config) -> dict[str, Any]:
        """Read the arguments of the class from a folder and its ``config.json``."""
        sizes = config.sizes(
            vocabulary_size="vocab_size", d_model="d_model", d_ff="d_ff", num_layers="num_layers"
        )
        num_layers, num_heads = sizes.pop("num_layers"), config.size("num_heads")
        config.expect(num_hidden_layers=num_layers, num_attention_heads=num_heads)
        buckets = config.size("relative_attention_num_buckets", 32)
        distance = config.size("relative_attention_max_distance", 128)
        if buckets < 4 or buckets % 2 or distance <= buckets // 2:
            raise LoadError(
                f"{config.path}: relative_attention_num_buckets must be even, at least 4 and less "
                "than twice relative_attention_max_distance, "
                f"got {buckets} and {distance}"
            )
        activation, gated = config.choice("feed_forward_proj", NETWORKS, "relu")
        config.expect(dense_act_fn=activation, is_gated_act=gated)
        ties = config.flag("tie_word_embeddings", default=True)
        token_id = partial(config.size, least=0, most=sizes["vocabulary_size"] - 1)
        padding_id = token_id("pad_token_id", 0)
        found = T5Sizes(
            **sizes,
            d_k=config.size("d_kv", most=LARGEST // num_heads),
            num_layers=(
                num_layers,
                config.size("num_decoder_layers", num_layers, most=MOST_LAYERS),
            ),
            num_heads=num_heads,
            num_buckets=buckets,
            max_distance=distance,
            eps=config.number("layer_norm_epsilon", 1e-6),
            activation=ACTIVATIONS[activation],
            gated=gated,
            scaled=config.flag("scale_decoder_outputs", ties),
            tied=OUTPUT not in read_names(folder),
            padding_id=padding_id,
            start_id=token_id("decoder_start_token_id", padding_id),
            end_id=token_id("eos_token_id", 1),
        )
        return {"sizes": found}

    def origin(self, name: str) -> Origin:
        """Return the tensor that a parameter is read from."""
        is_output = name.startswith("output.")
        if is_output or name.endswith("embedding.weight"):
            return Origin((OUTPUT,) if is_output and not self.sizes.tied else SHARED)
        published = rename(name, self.names)
        if name.startswith("encoder"):  # has no cross-attention
            published = published.replace(".layer.2.", ".layer.1.")
        if self.sizes.gated:
            published = published.replace(".wi.", ".wi_1.")
        if "attention_function" in name:
            published = re.sub(r"block\.\d+", "block.0", published)
        is_query = "cross_attention.query" in name
        return Origin((published,), convert=self.unscale if is_query else None)

    def unscale(self, weight: Tensor) -> Tensor:
        """Multiply by the factor by which the fused kernel divides the scores."""
        return weight * math.sqrt(self.sizes.d_k)
