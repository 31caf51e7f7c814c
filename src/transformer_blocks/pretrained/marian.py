"""Marian: the model, and the names of its weights in a published file.

Marian's encoder-decoder differs from figure 1 of the paper in a few points, each a line below:

- source, target and output layer share one embedding;
- in the positional encoding, all sines come before all cosines instead of alternating;
- the activation function is swish (``F.silu``);
- a bias is added to the logits;
- the padding token is the start token of every translation, and is never generated.

Next: ``sentence_pieces.py``, Marian's tokenizer, and ``marian_translator.py``.
"""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks import (
    Seq2Seq,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_decoder,
    build_encoder,
)
from transformer_blocks.pretrained.language_model import LogitBias
from transformer_blocks.pretrained.loading import ACTIVATIONS, Config, expect
from transformer_blocks.pretrained.weights import Origin, PublishedModel

SHARED = (
    *("model.shared.weight", "model.encoder.embed_tokens.weight"),
    *("model.decoder.embed_tokens.weight", "lm_head.weight"),
)
"""Published names of the embedding, which the output layer shares."""


class SinesThenCosines(SinusoidalPositionalEncoding):
    """The paper's positional encoding with its columns in another order: 0, 2, 4, ... 1, 3, 5, ...

    Args:
        d_model: Hidden size.
        max_length: Maximum number of positions.

    Example:
        >>> encoding = SinesThenCosines(4, max_length=8)(torch.zeros(1, 8, 4))
        >>> torch.allclose(encoding[0, :, 0], torch.arange(8.0).sin(), atol=1e-6)
        True
        >>> torch.allclose(encoding[0, :, 2], torch.arange(8.0).cos(), atol=1e-6)
        True
    """

    def __init__(self, d_model: int, *, max_length: int) -> None:
        super().__init__(d_model, max_length=max_length)
        self._reorder_columns()

    def _apply(
        self, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> "SinusoidalPositionalEncoding":
        super()._apply(fn, recurse)  # recomputes the table
        self._reorder_columns()
        return self

    def _reorder_columns(self) -> None:
        self.table = torch.cat((self.table[:, 0::2], self.table[:, 1::2]), dim=1)


class Marian(PublishedModel, Seq2Seq):
    """Marian's encoder and decoder, which share their embedding with the output layer.

    Args:
        vocabulary_size: Number of token ids of both languages together, V.
        d_model: Hidden size.
        num_layers: Number of layers of the encoder, and of the decoder.
        num_heads: Number of attention heads of each encoder layer, and of each decoder layer.
        d_ff: Inner size of the encoder's feed-forward networks, and of the decoder's.
        max_length: Maximum number of tokens of a sentence.
        activation: Activation function of the feed-forward networks.
        padding_id: Id of the padding token, which is also the start token of every translation.
        end_id: Id of the token that ends a sentence.
    """

    model_type = "marian"
    expected: ClassVar[dict[str, Any]] = {
        "static_position_embeddings": True,
        "share_encoder_decoder_embeddings": True,
        "tie_word_embeddings": True,
        "normalize_before": False,
        "normalize_embedding": False,
        "add_final_layer_norm": False,
        "is_causal": True,
    }
    names: ClassVar[dict[str, str]] = {
        "self_attention.query_projection": "self_attn.q_proj",
        "self_attention.key_projection": "self_attn.k_proj",
        "self_attention.value_projection": "self_attn.v_proj",
        "self_attention.output_projection": "self_attn.out_proj",
        "self_attention_residual.norm": "self_attn_layer_norm",
        "cross_attention.query_projection": "encoder_attn.q_proj",
        "cross_attention.key_projection": "encoder_attn.k_proj",
        "cross_attention.value_projection": "encoder_attn.v_proj",
        "cross_attention.output_projection": "encoder_attn.out_proj",
        "cross_attention_residual.norm": "encoder_attn_layer_norm",
        "feed_forward.up_projection": "fc1",
        "feed_forward.down_projection": "fc2",
        "feed_forward_residual.norm": "final_layer_norm",
    }
    target_embedding: TokenEmbedding
    prefixes = ("model.",)
    left_out = r"model\.(encoder|decoder)\.embed_positions\.weight"  # computed here

    def __init__(
        self,
        *,
        vocabulary_size: int,
        d_model: int,
        num_layers: tuple[int, int],
        num_heads: tuple[int, int],
        d_ff: tuple[int, int],
        max_length: int,
        padding_id: int,
        end_id: int = 0,
        activation: Callable[[Tensor], Tensor] = F.silu,
    ) -> None:
        embedding = TokenEmbedding(vocabulary_size, d_model)
        output = nn.Linear(d_model, vocabulary_size, bias=False)
        output.weight = embedding.weight
        of_encoder, of_decoder = (
            dict[str, Any](num_layers=layers, num_heads=heads, d_ff=inner_size)
            for layers, heads, inner_size in zip(num_layers, num_heads, d_ff, strict=True)
        )
        options: dict[str, Any] = {"d_model": d_model, "dropout": 0.0, "activation": activation}
        super().__init__(
            embedding,
            embedding,
            build_encoder(**of_encoder, **options),
            build_decoder(**of_decoder, **options),
            positions=SinesThenCosines(d_model, max_length=max_length),
            output=nn.Sequential(output, LogitBias(torch.zeros(1, vocabulary_size))),
            padding_id=padding_id,
            begin_id=padding_id,
        )
        self.end_id, self.max_length = end_id, max_length

    @classmethod
    def read(cls, folder: Path, config: Config) -> dict[str, Any]:
        """Read the arguments of the class from a ``config.json``."""
        scaled = config.values.get("scale_embedding", False)  # the default of transformers
        expect(config.path, "scale_embedding", scaled, True)
        # Limited, because the positional encoding is computed before the tensors are compared.
        vocabulary_size, d_model = config.size("vocab_size"), config.size("d_model", most=2**13)
        padding_id = config.size("pad_token_id", least=0)
        encoder, decoder = (
            config.sizes(
                num_layers=f"{stack}_layers",
                num_heads=f"{stack}_attention_heads",
                d_ff=f"{stack}_ffn_dim",
                d_model="d_model",
            )
            for stack in ("encoder", "decoder")
        )
        config.expect(
            decoder_vocab_size=vocabulary_size,
            decoder_start_token_id=padding_id,
            num_hidden_layers=encoder["num_layers"],
            num_attention_heads=encoder["num_heads"],
        )
        return {
            **{name: (encoder[name], decoder[name]) for name in encoder},
            "vocabulary_size": vocabulary_size,
            "d_model": d_model,
            "max_length": config.size("max_position_embeddings", most=2**12),
            "padding_id": padding_id,
            "end_id": config.size("eos_token_id", least=0),
            "activation": config.choice("activation_function", ACTIVATIONS),
        }

    def origin(self, name: str) -> Origin:
        """Return the tensor that a parameter is read from."""
        if name == "output.1.bias":
            return Origin(("final_logits_bias",), convert=self.suppress_padding)
        if name == "output.0.weight" or name.endswith("embedding.weight"):
            return Origin(SHARED)
        return super().origin(name)

    def suppress_padding(self, bias: Tensor) -> Tensor:
        """Give the padding the probability 0, as in training, where its weights do not change."""
        return bias.index_fill(1, torch.tensor([self.padding_id]), -math.inf)
