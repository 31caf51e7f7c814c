"""GPT-2: the model, and the names of its weights in a published file.

GPT-2 is a decoder-only Transformer ("Language Models are Unsupervised Multitask Learners", Radford
et al. 2019, https://cdn.openai.com/better-language-models/language_models.pdf, section 2.3). Layer
normalisation comes before each sublayer (:class:`~transformer_blocks.PreNorm`), the positional
embeddings are learned, the activation function is GELU, and the output layer shares the weights of
the token embedding.

Next: ``llama_family.py``, newer decoder-only models.
"""

from collections.abc import Collection
from functools import partial
from typing import ClassVar

from torch import Tensor, nn

from transformer_blocks.builders import build_encoder
from transformer_blocks.embedding import LearnedPositionalEncoding
from transformer_blocks.models import LanguageModel
from transformer_blocks.pretrained.config import ACTIVATIONS, Config
from transformer_blocks.pretrained.family import Family
from transformer_blocks.pretrained.weights import Origin
from transformer_blocks.residual import PreNorm

PARTS = ("query", "key", "value")


def third(part: int, joined: Tensor) -> Tensor:
    """Return one of three parts along dim 0."""
    return joined.unflatten(0, (3, -1))[part]


class Gpt2(Family):
    """GPT-2."""

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
    end_id = 50256

    def __init__(self, config: Config, tensors: Collection[str] = ()) -> None:
        config.expect({"tie_word_embeddings": True})
        self.vocabulary_size, self.d_model = config.size("vocab_size"), config.size("n_embd")
        self.num_layers = config.layers("n_layer")
        self.num_heads = config.heads("n_head", self.d_model)
        self.d_ff = config.size("n_inner", 4 * self.d_model)
        self.max_length: int = config.size("n_positions")
        self.activation = config.choice("activation_function", ACTIVATIONS, "gelu_new")
        self.eps = config.number("layer_norm_epsilon", 1e-5)

    def build(self) -> LanguageModel:
        """Compose the model."""
        decoder = build_encoder(
            num_layers=self.num_layers,
            d_model=self.d_model,
            num_heads=self.num_heads,
            d_ff=self.d_ff,
            dropout=0.0,
            activation=self.activation,
            residual=lambda d_model, dropout: PreNorm(
                d_model, norm=nn.LayerNorm(d_model, eps=self.eps)
            ),
        )
        positions = LearnedPositionalEncoding(self.d_model, max_length=self.max_length)
        embedding = nn.Embedding(self.vocabulary_size, self.d_model)
        return LanguageModel(embedding, decoder, positions=positions)

    def origin(self, name: str) -> Origin:
        """Return the tensor that a parameter is read from.

        GPT-2's linear layers compute x W instead of torch's x W^T, so their weights are transposed.
        """
        if name == "output.weight":
            return Origin((*self.origin("embedding.weight").names, "lm_head.weight"))
        origin = super().origin(name)
        if name.endswith("projection.weight"):
            origin = origin.then(Tensor.t)
        for part, kind in enumerate(PARTS):  # one below the other in one tensor
            if f".{kind}_projection" in name:
                return origin.then(partial(third, part))
        return origin
