r"""BERT's encoder, and where its weights stand in a published file.

BERT (Devlin et al. 2019, https://arxiv.org/abs/1810.04805, section 3) is the paper's encoder with a
few other parts: positions are learned, embeddings are not scaled but normalised, a third embedding
tells first from second sentences (there is only a first one here), and the feed-forward networks
bend by GELU.

Next: ``wordpiece.py``, how BERT reads, and ``bert.py``, what it is good for.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pretrained.loading import WEIGHTS, Config, Origin, load_model
from transformer_blocks import (
    Encoder,
    EncoderLayer,
    FeedForward,
    LearnedPositionalEncoding,
    MultiHeadAttention,
    PostNorm,
    padding_mask,
)

OUTSIDE = {
    "words": "embeddings.word_embeddings",
    "positions": "embeddings.position_embeddings",
    "kinds": "embeddings.token_type_embeddings",
    "norm": "embeddings.LayerNorm",
}
INSIDE = {
    "self_attention.query_projection": "attention.self.query",
    "self_attention.key_projection": "attention.self.key",
    "self_attention.value_projection": "attention.self.value",
    "self_attention.output_projection": "attention.output.dense",
    "self_attention_residual.norm": "attention.output.LayerNorm",
    "feed_forward.up_projection": "intermediate.dense",
    "feed_forward.down_projection": "output.dense",
    "feed_forward_residual.norm": "output.LayerNorm",
}
"""What our modules are called in a published file: those outside the layers, those of a layer."""

LEFT_OUT = r"(bert\.)?(embeddings\.position_ids|pooler\..*)|cls\..*"
"""Numbers from 0 up, a layer over [CLS], and what guesses words: sentence vectors need none."""


class Bert(nn.Module):
    """BERT's encoder.

    Args:
        vocabulary_size: Number of token ids.
        d_model: Width of the model.
        num_layers: How many layers are stacked.
        num_heads: Heads of each attention.
        d_ff: Inner width of the feed-forward networks.
        max_length: Most tokens of a text.
        num_kinds: How many kinds of sentence the model tells apart.
        activation: The bend of the feed-forward networks.
        eps: What the layer normalisations add to the variance.
        padding_id: The token that stands for nothing.
    """

    def __init__(
        self,
        *,
        vocabulary_size: int,
        d_model: int,
        num_layers: int,
        num_heads: int,
        d_ff: int,
        max_length: int,
        num_kinds: int = 2,
        activation: Callable[[Tensor], Tensor] = F.gelu,
        eps: float = 1e-12,
        padding_id: int = 0,
    ) -> None:
        super().__init__()
        self.max_length = max_length
        self.padding_id = padding_id
        self.words = nn.Embedding(vocabulary_size, d_model)
        self.positions = LearnedPositionalEncoding(d_model, max_length=max_length)
        self.kinds = nn.Embedding(num_kinds, d_model)
        self.norm = nn.LayerNorm(d_model, eps=eps)
        self.encoder = Encoder(
            EncoderLayer(
                MultiHeadAttention(d_model, num_heads),
                FeedForward(d_model, d_ff, activation=activation),
                residual=lambda: PostNorm(d_model, norm=nn.LayerNorm(d_model, eps=eps)),
            )
            for _ in range(num_layers)
        )

    def forward(self, tokens: Tensor) -> Tensor:
        """Read texts.

        Args:
            tokens: Padded ids. Shape (B, L).

        Returns:
            Each token in its context. Shape (B, L, d_model).
        """
        embedded = self.positions(self.words(tokens)) + self.kinds.weight[0]  # (B, L, d_model)
        return self.encoder(self.norm(embedded), mask=padding_mask(tokens, self.padding_id))

    @classmethod
    def load(cls, folder: Path, *, dtype: torch.dtype = torch.float32) -> "Bert":
        """Read a published BERT.

        Args:
            folder: Holds ``config.json`` and ``model.safetensors``.
            dtype: What to compute in.

        Returns:
            The model, in eval mode.

        Raises:
            UserError: If a file is missing or damaged, or is no BERT.
        """
        config = Config(folder / "config.json", "bert")
        config.expect(
            position_embedding_type="absolute", is_decoder=False, add_cross_attention=False
        )
        d_model, num_layers = config.size("hidden_size"), config.size("num_hidden_layers")
        make = partial(
            cls,
            vocabulary_size=config.size("vocab_size"),
            d_model=d_model,
            num_layers=num_layers,
            num_heads=config.heads("num_attention_heads", d_model),
            d_ff=config.size("intermediate_size"),
            max_length=config.size("max_position_embeddings"),
            num_kinds=config.size("type_vocab_size", 2),
            activation=config.activation("hidden_act"),
            eps=config.number("layer_norm_eps", 1e-12),
            padding_id=config.size("pad_token_id", 0, least=0),
        )
        return load_model(
            make, folder / WEIGHTS, origins(num_layers), left_out=LEFT_OUT, dtype=dtype
        )


def origins(num_layers: int) -> Iterator[tuple[str, Origin]]:
    """Tell where each of our parameters stands in a published file, layer by layer."""
    for ours, theirs in _modules(num_layers):
        is_table = theirs.endswith("_embeddings")  # which has no bias
        for name, old_name in (("weight", "gamma"), ("bias", "beta"))[: 1 if is_table else 2]:
            names = [f"{theirs}.{name}"]
            if theirs.endswith("LayerNorm"):
                names.append(f"{theirs}.{old_name}")
            # A BERT that was saved with what guesses words stands one level deeper.
            yield f"{ours}.{name}", Origin((*names, *(f"bert.{each}" for each in names)))


def _modules(num_layers: int) -> Iterator[tuple[str, str]]:
    yield from OUTSIDE.items()
    for layer in range(num_layers):
        for ours, theirs in INSIDE.items():
            yield f"encoder.layers.{layer}.{ours}", f"encoder.layer.{layer}.{theirs}"
