"""Model: an encoder that computes a logit for each label.

The text begins with a special token; every position attends to all others, and the output layer
reads the vector of the special token, which has no content of its own.
"""

from typing import Any

from torch import Tensor, nn

from transformer_blocks import (
    Dropout,
    PreNorm,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_encoder,
    padding_mask,
)


class EncoderClassifier(nn.Module):
    """Classifies a text with a Transformer encoder.

    Args:
        vocabulary: Number of token ids; id 0 is padding.
        classes: Number of labels.
        d_model: Hidden size.
        dropout: Dropout probability of sublayer outputs and of embeddings.
        max_length: Maximum number of tokens of a text.
        sizes: The other sizes of the encoder: ``num_layers``, ``num_heads`` and ``d_ff``.

    Example:
        >>> import torch
        >>> sizes = dict(num_layers=1, d_model=16, num_heads=2, d_ff=32, dropout=0.1)
        >>> model = EncoderClassifier(50, 3, **sizes, max_length=20).eval()
        >>> text, padded = torch.tensor([[2, 7, 8]]), torch.tensor([[2, 7, 8, 0, 0]])
        >>> torch.allclose(model(text), model(padded), atol=1e-5)  # padding has no effect ...
        True
        >>> turned = torch.tensor([[2, 8, 7]])
        >>> torch.allclose(model(text), model(turned), atol=1e-5)  # ... the order has
        False
    """

    def __init__(
        self,
        vocabulary: int,
        classes: int,
        *,
        d_model: int,
        dropout: float,
        max_length: int,
        **sizes: Any,
    ) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(vocabulary, d_model)
        self.positions = SinusoidalPositionalEncoding(d_model, max_length=max_length)
        self.dropout = Dropout(dropout)
        self.encoder = build_encoder(d_model=d_model, dropout=dropout, residual=PreNorm, **sizes)
        self.output = nn.Linear(d_model, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute the logits of the labels.

        Args:
            tokens: Token ids, begin token first, padded with 0, of shape (B, L).

        Returns:
            Logits, of shape (B, classes).
        """
        x = self.dropout(self.positions(self.embedding(tokens)))  # (B, L, d_model)
        encoded = self.encoder(x, mask=padding_mask(tokens))
        return self.output(encoded[:, 0])  # (B, classes)
