"""GPT-2: the model, and the names of its weights in a published file.

GPT-2 is a decoder-only Transformer ("Language Models are Unsupervised Multitask Learners", Radford
et al. 2019, https://cdn.openai.com/better-language-models/language_models.pdf, section 2.3). Layer
normalisation comes before each sublayer (:class:`~transformer_blocks.PreNorm`), the positional
embeddings are learned, the activation function is GELU, and the output layer shares the weights of
the token embedding.

Next: ``llama_family.py``, newer decoder-only models.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from transformer_blocks import (
    Encoder,
    EncoderLayer,
    FeedForward,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    PreNorm,
)
from transformer_blocks.pretrained.language_model import PublishedLanguageModel
from transformer_blocks.pretrained.loading import ACTIVATIONS, Config
from transformer_blocks.pretrained.weights import Origin


class Gpt2(PublishedLanguageModel):
    """GPT-2: a language model with learned positions.

    Args:
        vocabulary_size: Number of token ids, V.
        d_model: Hidden size.
        num_layers: Number of layers.
        num_heads: Number of attention heads of each layer.
        d_ff: Inner size of the feed-forward networks; 4 * d_model if not given.
        max_length: Maximum number of tokens of a text, for each of which a position is learned.
        activation: Activation function of the feed-forward networks.
        eps: Constant that the layer normalisations add to the variance.
        end_id: Id of the token that separates texts.
    """

    model_type = "gpt2"
    expected: ClassVar[dict[str, Any]] = {
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "add_cross_attention": False,
        "tie_word_embeddings": True,
        "is_causal": True,
    }
    names: ClassVar[dict[str, str]] = {
        "embedding": "wte",
        "positions": "wpe",
        "decoder.norm": "ln_f",
        "decoder.layers": "h",
        "self_attention_residual.norm": "ln_1",
        "feed_forward_residual.norm": "ln_2",
        # The three input projections of the attention are published as one tensor.
        "self_attention.query_projection": "attn.c_attn",
        "self_attention.key_projection": "attn.c_attn",
        "self_attention.value_projection": "attn.c_attn",
        "self_attention.output_projection": "attn.c_proj",
        "feed_forward.up_projection": "mlp.c_fc",
        "feed_forward.down_projection": "mlp.c_proj",
    }
    prefixes = ("", "transformer.")
    left_out = r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)"  # causal masks

    def __init__(
        self,
        *,
        vocabulary_size: int,
        d_model: int,
        num_layers: int,
        num_heads: int,
        d_ff: int | None = None,
        max_length: int,
        activation: Callable[[Tensor], Tensor] = ACTIVATIONS["gelu_new"],
        eps: float = 1e-5,
        end_id: int,
    ) -> None:
        layers = [
            EncoderLayer(
                MultiHeadAttention(d_model, num_heads),
                FeedForward(d_model, d_ff or 4 * d_model, activation=activation),
                residual=lambda: PreNorm(d_model, norm=nn.LayerNorm(d_model, eps=eps)),
            )
            for _ in range(num_layers)
        ]
        super().__init__(
            nn.Embedding(vocabulary_size, d_model),
            Encoder(layers, norm=nn.LayerNorm(d_model, eps=eps)),
            positions=LearnedPositionalEncoding(d_model, max_length=max_length),
            max_length=max_length,
            end_ids=[end_id],
        )

    @classmethod
    def read(cls, folder: Path, config: Config) -> dict[str, Any]:
        """Read the arguments of the class from a ``config.json``."""
        sizes = config.sizes(
            vocabulary_size="vocab_size",
            d_model="n_embd",
            num_layers="n_layer",
            num_heads="n_head",
            max_length="n_positions",
        )
        config.expect(num_hidden_layers=sizes["num_layers"], num_attention_heads=sizes["num_heads"])
        return {
            **sizes,
            "d_ff": config.size("n_inner", 4 * sizes["d_model"]),
            "activation": config.choice("activation_function", ACTIVATIONS),
            "eps": config.number("layer_norm_epsilon", 1e-5),
            "end_id": config.size("eos_token_id", least=0),
        }

    def origin(self, name: str) -> Origin:
        """Return the tensor that a parameter is read from.

        GPT-2's linear layers compute x W instead of torch's x W^T, so their weights are transposed.
        """
        origin = super().origin(name)
        for part, kind in enumerate(("query", "key", "value")):  # side by side in one tensor
            if f"{kind}_projection" in name:
                origin = replace(origin, part=part, parts=3)
        return replace(origin, transposed=name.endswith("projection.weight"))
