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

from transformer_blocks import Residual, TokenEmbedding
from transformer_blocks.pretrained import build_llama
from transformer_blocks.pretrained.language_model import PublishedLanguageModel
from transformer_blocks.pretrained.llama_family import Sizes, pair_neighbours
from transformer_blocks.pretrained.loading import Config
from transformer_blocks.pretrained.weights import Origin


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
    query_key_norm: ClassVar[bool] = False
    embedding_class: ClassVar[type[nn.Embedding | TokenEmbedding]] = nn.Embedding
    left_out = r"(model\.)?layers\.\d+\.self_attn\.rotary_emb\.inv_freq"  # computed here

    def __init__(self, sizes: Sizes) -> None:
        built = build_llama(
            sizes.vocabulary_size,
            num_layers=len(sizes.windows),
            d_model=sizes.d_model,
            num_heads=sizes.num_heads,
            num_key_value_heads=sizes.num_key_value_heads,
            d_k=sizes.d_k,
            d_ff=sizes.d_ff,
            activation=sizes.activation,
            feed_forward=self.feed_forward(sizes),
            rotary=sizes.rotary,
            windows=sizes.windows,
            window_rotary=sizes.window_rotary,
            query_key_norm=self.query_key_norm,
            bias=sizes.bias,
            feed_forward_bias=sizes.feed_forward_bias,
            residual=self.residual(sizes),
            eps=sizes.eps,
        )
        embedding: Any = built.embedding
        if self.embedding_class is not nn.Embedding:
            embedding = self.embedding_class(sizes.vocabulary_size, sizes.d_model)
        super().__init__(
            embedding,
            built.decoder,
            max_length=sizes.max_length,
            end_ids=sizes.end_ids,
            tied=sizes.tied,
        )
        self.d_k = sizes.d_k

    @classmethod
    def feed_forward(cls, sizes: Sizes) -> Callable[[], nn.Module] | None:
        """Return a function that makes the network of a layer, if it is another than Llama's."""
        return None

    @classmethod
    def residual(cls, sizes: Sizes) -> Callable[..., Residual] | None:
        """Return a function that makes the connection of a sublayer, if it is another one."""
        return None

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
