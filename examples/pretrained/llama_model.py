"""Llama: the model, and the names of its weights in published files.

Llama ("LLaMA: Open and Efficient Foundation Language Models", Touvron et al. 2023,
https://arxiv.org/abs/2302.13971, section 2.2; "The Llama 3 Herd of Models", 2024,
https://arxiv.org/abs/2407.21783, section 3.2) differs from GPT-2 in these parts: RMSNorm in place
of layer normalisation, a gated feed-forward network (SwiGLU), rotary positions in the attention in
place of learned ones, and no biases. Grouped-query attention came with the larger models of Llama 2
and is in all of Llama 3. Llama 3.1 also scales the rotary frequencies, for longer texts.

Next: ``qwen3_model.py``, which normalises queries and keys.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

from torch import Tensor, nn

from pretrained.language_model import PublishedLanguageModel
from pretrained.llama_family import Sizes, pair_neighbours
from pretrained.loading import Config
from pretrained.weights import Origin
from transformer_blocks import (
    Encoder,
    EncoderLayer,
    GatedFeedForward,
    MultiHeadAttention,
    PreNorm,
    QueryKeyTransform,
    Residual,
    SlidingWindowAttention,
    TokenEmbedding,
    fused_attention,
)


class Llama(PublishedLanguageModel):
    """Llama: a language model with rotary positions, grouped query heads and SwiGLU.

    Args:
        sizes: The settings of the model.
    """

    model_type = "llama"
    expected: ClassVar[dict[str, Any]] = {"is_causal": True}
    names: ClassVar[dict[str, str]] = {
        "embedding": "embed_tokens",
        "decoder.norm": "norm",
        "decoder.layers": "layers",
        "self_attention.query_projection": "self_attn.q_proj",
        "self_attention.key_projection": "self_attn.k_proj",
        "self_attention.value_projection": "self_attn.v_proj",
        "self_attention.output_projection": "self_attn.o_proj",
        "feed_forward.gate_projection": "mlp.gate_proj",
        "feed_forward.up_projection": "mlp.up_proj",
        "feed_forward.down_projection": "mlp.down_proj",
        "self_attention_residual.norm": "input_layernorm",
        "feed_forward_residual.norm": "post_attention_layernorm",
    }
    prefixes = ("model.", "")
    embedding_class: ClassVar[type[nn.Embedding | TokenEmbedding]] = nn.Embedding
    left_out = r"(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq"  # computed here

    def __init__(self, sizes: Sizes) -> None:
        layers = [self.make_layer(sizes, window) for window in sizes.windows]
        super().__init__(
            self.embedding_class(sizes.vocabulary_size, sizes.d_model),
            Encoder(layers, norm=sizes.norm()),
            max_length=sizes.max_length,
            end_ids=sizes.end_ids,
            tied=sizes.tied,
        )
        self.d_k = sizes.d_k

    @classmethod
    def make_layer(cls, sizes: Sizes, window: int | None) -> EncoderLayer:
        """Make a layer, with a window or without."""
        attention = MultiHeadAttention(
            sizes.d_model,
            sizes.num_heads,
            num_key_value_heads=sizes.num_key_value_heads,
            d_k=sizes.d_k,
            bias=sizes.bias,
            attention_function=fused_attention
            if window is None
            else SlidingWindowAttention(window),
            transforms=cls.transforms(sizes, window),
        )
        feed_forward = GatedFeedForward(
            sizes.d_model, sizes.d_ff, activation=sizes.activation, bias=sizes.feed_forward_bias
        )
        return EncoderLayer(attention, feed_forward, residual=cls.residual(sizes))

    @classmethod
    def transforms(cls, sizes: Sizes, window: int | None) -> list[QueryKeyTransform]:
        """Make what transforms the queries and keys of a layer."""
        return [sizes.rotary() if window is None else (sizes.window_rotary or sizes.rotary)()]

    @classmethod
    def residual(cls, sizes: Sizes) -> Callable[[], Residual]:
        """Return a function that makes the residual connection of a sublayer."""
        return lambda: PreNorm(sizes.d_model, norm=sizes.norm())

    @classmethod
    def read(cls, folder: Path, config: Config) -> dict[str, Any]:
        """Read the arguments of the class from a ``config.json``."""
        return {"sizes": Sizes.read(folder, config)}

    def origin(self, name: str) -> Origin:
        """Return the tensor that a parameter is read from."""
        return replace(super().origin(name), convert=partial(self.convert, name))

    def convert(self, name: str, published: Tensor) -> Tensor:
        """Make a parameter of a published tensor; reorder what is rotated in pairs."""
        is_rotated = re.search(r"(query|key)_(projection|norm)\.", name)
        return pair_neighbours(published, self.d_k) if is_rotated else published
