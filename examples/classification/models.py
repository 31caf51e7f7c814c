"""Models: an encoder that reads a text, and a bag that only counts its words.

Both give a score to each label. The encoder puts a mark before the text, lets every position look
at all others, and asks what the mark has learnt: it is the one place that has nothing to say of its
own. The bag takes the mean of the words' vectors. That mean is the same in any order, and so is
what it answers.
"""

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
    """Reads a text with an encoder.

    Args:
        vocabulary: Number of token ids; id 0 is padding.
        classes: Number of labels.
        num_layers: Layers of the encoder.
        d_model: Width of the model.
        num_heads: Heads of each attention.
        d_ff: Inner width of the feed-forward networks.
        dropout: Of sublayer outputs and of embedded tokens.
        max_length: Most tokens of a text.

    Example:
        >>> sizes = dict(num_layers=1, d_model=16, num_heads=2, d_ff=32, dropout=0.1)
        >>> model = EncoderClassifier(50, 3, **sizes, max_length=20).eval()
        >>> text, padded = torch.tensor([[2, 7, 8]]), torch.tensor([[2, 7, 8, 0, 0]])
        >>> torch.allclose(model(text), model(padded), atol=1e-5)  # padding says nothing ...
        True
        >>> torch.allclose(model(text), model(torch.tensor([[2, 8, 7]])))  # ... the order does
        False
    """

    def __init__(
        self,
        vocabulary: int,
        classes: int,
        *,
        num_layers: int,
        d_model: int,
        num_heads: int,
        d_ff: int,
        dropout: float,
        max_length: int,
    ) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(vocabulary, d_model)
        self.positions = SinusoidalPositionalEncoding(d_model, max_length=max_length)
        self.dropout = Dropout(dropout)
        self.encoder = build_encoder(
            num_layers=num_layers,
            d_model=d_model,
            num_heads=num_heads,
            d_ff=d_ff,
            dropout=dropout,
            residual=PreNorm,
        )
        self.output = nn.Linear(d_model, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Score the labels.

        Args:
            tokens: Ids, a mark first, padded with 0. Shape (B, L).

        Returns:
            Logits. Shape (B, classes).
        """
        x = self.dropout(self.positions(self.embedding(tokens)))  # (B, L, d_model)
        read = self.encoder(x, mask=padding_mask(tokens))
        return self.output(read[:, 0])  # (B, classes)


class BagClassifier(nn.Module):
    """Counts words: the baseline, which shows what the order is worth.

    Args:
        vocabulary: Number of token ids; id 0 is padding.
        classes: Number of labels.
        d_model: Width of the words' vectors.

    Example:
        >>> model = BagClassifier(50, 3, d_model=16)
        >>> text, turned = torch.tensor([[2, 7, 8, 0]]), torch.tensor([[2, 8, 7, 0]])
        >>> torch.allclose(model(text), model(turned))
        True
    """

    def __init__(self, vocabulary: int, classes: int, *, d_model: int) -> None:
        super().__init__()
        self.mean = nn.EmbeddingBag(vocabulary, d_model, mode="mean", padding_idx=0)
        self.output = nn.Linear(d_model, classes)

    def forward(self, tokens: Tensor) -> Tensor:
        """Score the labels; the arguments are those of :class:`EncoderClassifier`."""
        return self.output(self.mean(tokens))
