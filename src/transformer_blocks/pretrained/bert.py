r"""BERT: the encoder, and the names of its weights in a published file.

BERT (Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3) is the encoder of "Attention
Is All You Need" with four changes: the positional embeddings are learned; the embeddings are
normalised instead of scaled; a segment embedding distinguishes the first from the second sentence
of a pair (here, every sequence is a first one); and the activation function is GELU.

Next: ``distilbert_model.py``, half of its layers.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks import (
    Encoder,
    EncoderLayer,
    FeedForward,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    PostNorm,
    padding_mask,
)
from transformer_blocks.pretrained.loading import ACTIVATIONS, Config
from transformer_blocks.pretrained.weights import Origin, PublishedModel, rename


class Bert(PublishedModel):
    """BERT's encoder.

    Args:
        vocabulary_size: Number of token ids.
        d_model: Hidden size.
        num_layers: Number of layers.
        num_heads: Number of attention heads of each layer.
        d_ff: Inner size of the feed-forward networks.
        max_length: Maximum number of tokens of a text, for each of which a position is learned.
        num_segments: Number of segment embeddings; 0 for a model without them.
        activation: Activation function of the feed-forward networks.
        eps: Constant that the layer normalisations add to the variance.
        padding_id: Id of the padding token.
    """

    model_type = "bert"
    expected: ClassVar[dict[str, Any]] = {
        "position_embedding_type": "absolute",
        "is_decoder": False,
        "add_cross_attention": False,
    }
    sizes: ClassVar[dict[str, str]] = {
        "vocabulary_size": "vocab_size",
        "d_model": "hidden_size",
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "d_ff": "intermediate_size",
        "max_length": "max_position_embeddings",
    }
    names: ClassVar[dict[str, str]] = {
        "token_embedding": "embeddings.word_embeddings",
        "positions": "embeddings.position_embeddings",
        "segment_embedding": "embeddings.token_type_embeddings",
        "norm": "embeddings.LayerNorm",
        "encoder.layers": "encoder.layer",
        "self_attention.query_projection": "attention.self.query",
        "self_attention.key_projection": "attention.self.key",
        "self_attention.value_projection": "attention.self.value",
        "self_attention.output_projection": "attention.output.dense",
        "self_attention_residual.norm": "attention.output.LayerNorm",
        "feed_forward.up_projection": "intermediate.dense",
        "feed_forward.down_projection": "output.dense",
        "feed_forward_residual.norm": "output.LayerNorm",
    }
    old_names: ClassVar[dict[str, str]] = {
        "LayerNorm.weight": "LayerNorm.gamma",
        "LayerNorm.bias": "LayerNorm.beta",
    }
    prefixes = ("", "bert.")  # one that was saved with its masked-language-model head has a prefix
    # Position numbers, the pooler over [CLS] and the heads, which sentence vectors do not need.
    left_out = r"(bert\.)?(embeddings\.position_ids|pooler\..*)|(cls|classifier|qa_outputs)\..*"

    def __init__(
        self,
        *,
        vocabulary_size: int,
        d_model: int,
        num_layers: int,
        num_heads: int,
        d_ff: int,
        max_length: int,
        num_segments: int = 2,
        activation: Callable[[Tensor], Tensor] = F.gelu,
        eps: float = 1e-12,
        padding_id: int = 0,
    ) -> None:
        super().__init__()
        self.max_length = max_length
        self.padding_id = padding_id
        self.token_embedding = nn.Embedding(vocabulary_size, d_model)
        self.positions = LearnedPositionalEncoding(d_model, max_length=max_length)
        self.segment_embedding = nn.Embedding(num_segments, d_model) if num_segments else None
        self.norm = nn.LayerNorm(d_model, eps=eps)
        self.encoder = Encoder(
            [
                EncoderLayer(
                    MultiHeadAttention(d_model, num_heads),
                    FeedForward(d_model, d_ff, activation=activation),
                    residual=lambda: PostNorm(d_model, norm=nn.LayerNorm(d_model, eps=eps)),
                )
                for _ in range(num_layers)
            ]
        )

    def embed(self, tokens: Tensor) -> Tensor:
        """Embed tokens, of shape (B, L), and add their positions; return (B, L, d_model)."""
        return self.positions(self.token_embedding(tokens))

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute a hidden state for each token in its context.

        Args:
            tokens: Padded token ids, of shape (B, L).

        Returns:
            Hidden states, of shape (B, L, d_model).
        """
        x = self.embed(tokens)
        if self.segment_embedding is not None:
            x = x + self.segment_embedding.weight[0]
        return self.encoder(self.norm(x), mask=padding_mask(tokens, self.padding_id))

    @classmethod
    def read(cls, folder: Path, config: Config) -> dict[str, Any]:
        """Read the arguments of the class from a ``config.json``."""
        return {
            **config.sizes(**cls.sizes),
            "num_segments": config.size("type_vocab_size", 2),
            "activation": config.choice("hidden_act", ACTIVATIONS),
            "eps": config.number("layer_norm_eps", 1e-12),
            "padding_id": config.size("pad_token_id", 0, least=0),
        }

    def origin(self, name: str) -> Origin:
        """Return the tensor that a parameter is read from; older files have other names."""
        names = super().origin(name).names
        old = (rename(each, self.old_names) for each in names if self.old_names)
        return Origin(tuple(dict.fromkeys((*names, *old))))
