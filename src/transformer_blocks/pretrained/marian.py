"""Marian: the model, and the names of its weights in a published file.

Marian's encoder-decoder differs from figure 1 of the paper in a few points, each a line below:

- source, target and output layer share one embedding;
- in the positional encoding, all sines come before all cosines instead of alternating;
- the activation function is swish (``F.silu``);
- a bias is added to the logits;
- the padding token is the start token of every translation, and is never generated.

Marian's tokenizer is in ``sentence_pieces.py``. Next: ``t5.py``, an encoder and a decoder for many
tasks.
"""

import math
from collections.abc import Callable, Collection
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from transformer_blocks.builders import build_decoder, build_encoder
from transformer_blocks.embedding import SinusoidalPositionalEncoding, TokenEmbedding
from transformer_blocks.models import Seq2Seq, TiedLinear
from transformer_blocks.pretrained.config import ACTIVATIONS, Config
from transformer_blocks.pretrained.family import Family, LogitBias
from transformer_blocks.pretrained.weights import Origin

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
        >>> import torch
        >>> from transformer_blocks.pretrained.marian import SinesThenCosines
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


class Marian(Family):
    """Marian."""

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
    prefixes = ("model.",)
    left_out = r"model\.(encoder|decoder)\.embed_positions\.weight"  # computed here
    end_id = 0

    def __init__(self, config: Config, tensors: Collection[str] = ()) -> None:
        # Given, it is that of both stacks.
        config.expect({"is_causal": None, "is_encoder_decoder": True, "tie_word_embeddings": True})
        if not config.flag("scale_embedding", False):  # the default of transformers
            raise config.error("scale_embedding", "be True here", False)
        self.vocabulary_size, self.d_model = config.size("vocab_size"), config.size("d_model")
        self.max_length: int = config.size("max_position_embeddings", most=2**12)
        self.padding_id = config.size("pad_token_id", least=0, most=self.vocabulary_size - 1)
        activation = config.choice("activation_function", ACTIVATIONS)
        self.encoder, self.decoder = (
            dict[str, Any](
                num_layers=config.layers(f"{stack}_layers"),
                num_heads=config.heads(f"{stack}_attention_heads", self.d_model),
                d_ff=config.size(f"{stack}_ffn_dim"),
                d_model=self.d_model,
                dropout=0.0,
                activation=activation,
            )
            for stack in ("encoder", "decoder")
        )
        config.expect(
            {
                "decoder_vocab_size": self.vocabulary_size,
                "decoder_start_token_id": self.padding_id,
                "num_hidden_layers": self.encoder["num_layers"],
                "num_attention_heads": self.encoder["num_heads"],
            }
        )

    def build(self) -> Seq2Seq:
        """Compose the model."""
        embedding = TokenEmbedding(self.vocabulary_size, self.d_model)
        output = TiedLinear(embedding, "target_embedding")
        return Seq2Seq(
            embedding,
            embedding,
            build_encoder(**self.encoder),
            build_decoder(**self.decoder),
            positions=SinesThenCosines(self.d_model, max_length=self.max_length),
            output=nn.Sequential(output, LogitBias(self.vocabulary_size)),
            padding_id=self.padding_id,
            begin_id=self.padding_id,
        )

    def origin(self, name: str) -> Origin:
        """Return the tensor that a parameter is read from."""
        if name == "output.1.bias":
            return Origin(("final_logits_bias",), self.suppress_padding)
        if name == "output.0.weight" or name.endswith("embedding.weight"):
            return Origin(SHARED)
        return super().origin(name)

    def suppress_padding(self, bias: Tensor) -> Tensor:
        """Give the padding the probability 0, as in training, where its weights do not change."""
        is_padding = torch.arange(bias.shape[-1], device=bias.device) == self.padding_id
        return bias.masked_fill(is_padding, -math.inf)
