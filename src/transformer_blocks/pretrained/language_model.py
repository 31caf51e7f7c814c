"""Language model: what published decoder-only models have in common.

They are the library's :class:`~transformer_blocks.LanguageModel`. The families differ in the parts
of their layers, in how tokens and positions are embedded, and in the names of their published
tensors; each has a file of its own.

Next: ``gpt2_model.py``, the first of them.
"""

import math
from collections.abc import Collection, Sequence

import torch
from torch import Tensor, nn

from transformer_blocks import Encoder, LanguageModel, LearnedPositionalEncoding, TokenEmbedding
from transformer_blocks.models import TokenModel
from transformer_blocks.pretrained.weights import Origin, PublishedModel


class PublishedLanguageModel(PublishedModel, LanguageModel):
    """A decoder-only language model, which predicts the next token of a text.

    Args:
        embedding: The token embedding.
        decoder: Stack of the layers, with the final normalisation.
        max_length: Maximum number of tokens of a text.
        end_ids: Ids of the tokens that end a text.
        positions: Positional encoding that is added to the embeddings, if there is one.
        tied: Whether the output layer shares the weights of the token embedding.
    """

    embedding: nn.Embedding | TokenEmbedding

    def __init__(
        self,
        embedding: nn.Embedding | TokenEmbedding,
        decoder: Encoder,
        *,
        max_length: int,
        end_ids: Sequence[int],
        positions: LearnedPositionalEncoding | None = None,
        tied: bool = True,
    ) -> None:
        vocabulary_size, d_model = embedding.weight.shape
        output = None if tied else nn.Linear(d_model, vocabulary_size, bias=False)
        super().__init__(embedding, decoder, positions=positions, output=output)
        self.max_length, self.end_ids, self.tied = max_length, tuple(end_ids), tied

    def origin(self, name: str) -> Origin:
        """Return the tensor that a parameter is read from; a tied one may have several names."""
        is_output = name.startswith("output.")
        if not self.tied or not (is_output or name == "embedding.weight"):
            return Origin(("lm_head.weight",)) if is_output else super().origin(name)
        return Origin((*super().origin("embedding.weight").names, "lm_head.weight"))


class LogitBias(nn.Module):
    """Adds a bias to logits; a token whose bias is negative infinity is never generated.

    Args:
        bias: The bias, of a shape that can be broadcast to (..., V).
    """

    bias: Tensor

    def __init__(self, bias: Tensor) -> None:
        super().__init__()
        self.register_buffer("bias", bias)

    def forward(self, logits: Tensor) -> Tensor:
        """Return the sum, of shape (..., V)."""
        return logits + self.bias


def suppress_unused(model: TokenModel, embedding: Tensor, ids: Collection[int]) -> None:
    """Never generate tokens beyond the vocabulary, which an embedding may have rows for.

    Args:
        model: The model, whose output layer is changed.
        embedding: The weight of the embedding, of shape (V, d_model).
        ids: The ids of the vocabulary.
    """
    unused = [number for number in range(len(embedding)) if number not in ids]
    if unused:
        bias = torch.zeros_like(embedding[:, 0])
        bias[unused] = -math.inf
        model.output = nn.Sequential(model.output, LogitBias(bias))
