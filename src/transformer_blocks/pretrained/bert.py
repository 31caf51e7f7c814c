r"""BERT: the encoder, and the names of its weights in a published file.

BERT (Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3) is the encoder of "Attention
Is All You Need" with four changes: the positional embeddings are learned; the embeddings are
normalised instead of scaled; a segment embedding distinguishes the first from the second sentence
of a pair (here, every sequence is a first one); and the activation function is GELU.

Next: ``distilbert.py``, half of its layers.
"""

from collections.abc import Callable, Collection
from typing import ClassVar

from torch import Tensor, nn

from transformer_blocks.builders import build_encoder
from transformer_blocks.embedding import LearnedPositionalEncoding
from transformer_blocks.encoder import Encoder
from transformer_blocks.masks import padding_mask
from transformer_blocks.pretrained.config import ACTIVATIONS, Config
from transformer_blocks.pretrained.family import Family
from transformer_blocks.pretrained.weights import Origin, rename
from transformer_blocks.residual import PostNorm
from transformer_blocks.variants.pooling import mean_pool


class TextEncoder(nn.Module):
    """An encoder of texts: BERT, DistilBERT or RoBERTa.

    Args:
        token_embedding: The token embedding.
        positions: The learned positions.
        segment_embedding: Embedding of the segments, of which all tokens have the first; or None.
        norm: Normalisation of the embeddings.
        encoder: Stack of the layers.
        padding_id: Id of the padding token.
        skips_padding: Whether positions count only the tokens that are not padding.

    Attributes:
        padding_id: As above, for a :func:`~transformer_blocks.padding_mask`.
        pool: What makes one vector of the hidden states of a text, such as
            :func:`~transformer_blocks.mean_pool`.
    """

    def __init__(
        self,
        token_embedding: nn.Embedding,
        positions: LearnedPositionalEncoding,
        segment_embedding: nn.Embedding | None,
        norm: nn.LayerNorm,
        encoder: Encoder,
        *,
        padding_id: int = 0,
        skips_padding: bool = False,
    ) -> None:
        super().__init__()
        self.token_embedding, self.positions = token_embedding, positions
        self.segment_embedding, self.norm, self.encoder = segment_embedding, norm, encoder
        self.padding_id, self.skips_padding = padding_id, skips_padding
        self.pool: Callable[..., Tensor] = mean_pool

    def embed(self, tokens: Tensor) -> Tensor:
        """Embed tokens, of shape (B, L), and add their positions; return (B, L, d_model)."""
        x = self.token_embedding(tokens)
        if not self.skips_padding:
            return self.positions(x)
        encodings = self.positions(x.new_zeros(1, *x.shape[1:]))[0]  # (L, d_model)
        numbers = (tokens != self.padding_id).cumsum(1) - 1
        return x + encodings[numbers.clamp(min=0)]

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


class Bert(Family):
    """BERT."""

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
    # Position numbers, the pooler over [CLS] and the heads, which hidden states do not need.
    left_out = r"(bert\.)?(embeddings\.position_ids|pooler\..*)|(cls|classifier|qa_outputs)\..*"
    sizes: ClassVar[tuple[str, ...]] = (
        *("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size"),
        "hidden_act",
    )
    skips_padding = False
    default_padding = 0

    def __init__(self, config: Config, tensors: Collection[str] = ()) -> None:
        config.expect({"is_causal": False})
        size, layers, heads, inner, activation = self.sizes
        self.vocabulary_size, self.d_model = config.size("vocab_size"), config.size(size)
        self.num_layers, self.num_heads = config.layers(layers), config.heads(heads, self.d_model)
        self.d_ff, self.activation = config.size(inner), config.choice(activation, ACTIVATIONS)
        self.max_length: int = config.size("max_position_embeddings")
        self.num_segments = config.size("type_vocab_size", 2)
        self.eps = config.number("layer_norm_eps", 1e-12)
        self.padding_id = config.size("pad_token_id", self.default_padding, least=0)

    def norm(self) -> nn.LayerNorm:
        """Make a normalisation."""
        return nn.LayerNorm(self.d_model, eps=self.eps)

    def build(self) -> TextEncoder:
        """Compose the encoder."""
        return TextEncoder(
            nn.Embedding(self.vocabulary_size, self.d_model),
            LearnedPositionalEncoding(self.d_model, max_length=self.max_length),
            nn.Embedding(self.num_segments, self.d_model) if self.num_segments else None,
            self.norm(),
            build_encoder(
                num_layers=self.num_layers,
                d_model=self.d_model,
                num_heads=self.num_heads,
                d_ff=self.d_ff,
                dropout=0.0,
                activation=self.activation,
                residual=lambda d_model, dropout: PostNorm(d_model, norm=self.norm()),
            ),
            padding_id=self.padding_id,
            skips_padding=self.skips_padding,
        )

    def origin(self, name: str) -> Origin:
        """Return the tensor that a parameter is read from; older files have other names."""
        names = super().origin(name).names
        old = (rename(each, self.old_names) for each in names)
        return Origin(tuple(dict.fromkeys((*names, *old))))
