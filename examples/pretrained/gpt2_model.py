"""GPT-2: the model, and the names of its weights in a published file.

GPT-2 is a decoder-only Transformer ("Language Models are Unsupervised Multitask Learners", Radford
et al. 2019, https://cdn.openai.com/better-language-models/language_models.pdf, section 2.3). Layer
normalisation comes before each sublayer (:class:`~transformer_blocks.PreNorm`), the positional
embeddings are learned, the activation function is GELU, and the output layer shares the weights of
the token embedding.

Next: ``byte_pairs.py``, its tokenizer.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
from torch import Tensor, nn

from pretrained.language_model import LanguageModel
from pretrained.loading import ACTIVATIONS, Config
from pretrained.weights import Origin, load_model
from transformer_blocks import (
    Encoder,
    EncoderLayer,
    FeedForward,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    PreNorm,
)

LAYER = {
    "self_attention_residual.norm": "ln_1",
    "feed_forward_residual.norm": "ln_2",
    "self_attention.output_projection": "attn.c_proj",
    "feed_forward.up_projection": "mlp.c_fc",
    "feed_forward.down_projection": "mlp.c_proj",
}
"""Published names of the modules of a layer. The three input projections of the attention are
published as one tensor."""

LEFT_OUT = r"(transformer\.)?h\.\d+\.attn\.(bias|masked_bias)"
"""Causal masks, which are computed here."""


class Gpt2(LanguageModel):
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
            Encoder(layers, norm=nn.LayerNorm(d_model, eps=eps)),
            vocabulary_size=vocabulary_size,
            d_model=d_model,
            max_length=max_length,
            end_ids=[end_id],
        )
        self.positions = LearnedPositionalEncoding(d_model, max_length=max_length)

    def embed(self, tokens: Tensor, offset: int | Tensor) -> Tensor:
        """Embed tokens, of shape (B, L), and add the embeddings of their positions.

        If the rows have different positions, ``offset``, that of the first token, has the shape
        (B,).

        Returns:
            Vectors with positions, of shape (B, L, d_model).
        """
        return self.positions(self.token_embedding(tokens), offset=offset)

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype = torch.float32) -> "Gpt2":
        """Load a published GPT-2.

        Args:
            folder: Folder that holds ``config.json`` and ``model.safetensors``.
            dtype: Data type of the parameters, in which the model computes.

        Returns:
            The model, in evaluation mode.

        Raises:
            UserError: If a file is missing or damaged, or belongs to another model.
        """
        config = Config(folder / "config.json", "gpt2")
        config.expect(
            scale_attn_weights=True,
            scale_attn_by_inverse_layer_idx=False,
            add_cross_attention=False,
            tie_word_embeddings=True,
            is_causal=True,
        )
        d_model, num_layers = config.size("n_embd"), config.size("n_layer")
        num_heads = config.heads("n_head", d_model)
        config.expect(num_hidden_layers=num_layers, num_attention_heads=num_heads)
        make = partial(
            cls,
            vocabulary_size=config.size("vocab_size"),
            d_model=d_model,
            num_layers=num_layers,
            num_heads=num_heads,
            d_ff=config.size("n_inner", 4 * d_model),
            max_length=config.size("n_positions"),
            activation=config.activation("activation_function"),
            eps=config.number("layer_norm_epsilon", 1e-5),
            end_id=config.size("eos_token_id", least=0),
        )
        return load_model(make, folder, origins(num_layers), left_out=LEFT_OUT, dtype=dtype)


def origins(num_layers: int) -> Iterator[tuple[str, Origin]]:
    """Yield the name of each parameter and its origin in a published file, layer by layer.

    GPT-2's linear layers compute x W instead of torch's x W^T, so their weights are transposed.
    """

    def origin(name: str, part: int = 0, parts: int = 1) -> Origin:
        is_matrix = name.endswith("weight") and ".ln_" not in name
        names = name, f"transformer.{name}"
        return Origin(names, transposed=is_matrix, part=part, parts=parts)

    table = Origin(("wte.weight", "transformer.wte.weight", "lm_head.weight"))
    yield "token_embedding.weight", table
    yield "output.weight", table
    yield "positions.weight", Origin(("wpe.weight", "transformer.wpe.weight"))
    yield "decoder.norm.weight", Origin(("ln_f.weight", "transformer.ln_f.weight"))
    yield "decoder.norm.bias", Origin(("ln_f.bias", "transformer.ln_f.bias"))
    for layer in range(num_layers):
        for kind in ("weight", "bias"):
            here, there = f"decoder.layers.{layer}", f"h.{layer}"
            for ours, theirs in LAYER.items():
                yield f"{here}.{ours}.{kind}", origin(f"{there}.{theirs}.{kind}")
            for part, ours in enumerate(("query", "key", "value")):  # side by side in one tensor
                name = f"{here}.self_attention.{ours}_projection.{kind}"
                yield name, origin(f"{there}.attn.c_attn.{kind}", part=part, parts=3)
