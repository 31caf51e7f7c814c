"""Table 3 of the paper: the model of each row, built and counted.

    python examples/paper/table3.py

Each row names what differs from the base model. The models are built on torch's meta device, which
allocates no memory, with the paper's sharing: one matrix of 37,000 tokens is source embedding,
target embedding and output layer. The attention projections have no biases, as in section 3.2.2.

The counts differ from the paper's column, which is rounded to millions. Without its embeddings, the
base model has 44.1 million parameters; the paper's 65 million leave 20.9 million for the matrix,
that is about 40,800 rows and not "about 37,000" (section 5.1). The last column shows this number
for each row, as a range, because of the rounding. A matrix of 41,100 rows would fit all rows but
the last; no size fits all.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from transformer_blocks import (
    LearnedPositionalEncoding,
    MultiHeadAttention,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_decoder,
    build_encoder,
)

VOCABULARY = 37_000
"""Size of the shared vocabulary (section 5.1: "about 37000 tokens")."""
MAX_LENGTH = 512
"""Number of learned positions in row (E); the paper does not state it."""


class KeySizeAttention(MultiHeadAttention):
    """Multi-head attention whose queries and keys have another size than its values: rows (B).

    Args:
        d_model: Size of the input and output vectors.
        num_heads: Number of attention heads H.
        d_k: Size of a query or key of one head; a value has d_model / num_heads.
    """

    def __init__(self, d_model: int, num_heads: int, d_k: int) -> None:
        super().__init__(d_model, num_heads, bias=False)
        self.query_projection = nn.Linear(d_model, num_heads * d_k, bias=False)
        self.key_projection = nn.Linear(d_model, num_heads * d_k, bias=False)
        for projection in (self.query_projection, self.key_projection):
            nn.init.xavier_uniform_(projection.weight)

    def split_heads(self, x: Tensor) -> Tensor:  # noqa: D102
        return x.unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # d_k or d_v is inferred


@dataclass(frozen=True)
class Row:
    """A row of table 3; what is not given is as in the base model.

    Attributes:
        num_layers: N.
        d_model: Size of the vectors between the layers.
        d_ff: Inner size of the feed-forward networks.
        num_heads: h. As in all rows but (B), d_k = d_v = d_model / h.
        d_k: Size of a query or key of one head; d_model / h if None.
        dropout: P_drop.
        label_smoothing: epsilon_ls.
        learned_positions: Whether positional encodings are learned.
        millions: The paper's number of parameters in millions; None where its column is empty.
    """

    num_layers: int = 6
    d_model: int = 512
    d_ff: int = 2048
    num_heads: int = 8
    d_k: int | None = None
    dropout: float = 0.1
    label_smoothing: float = 0.1
    learned_positions: bool = False
    millions: int | None = None


ROWS = {
    "base": Row(millions=65),
    "A: h = 1": Row(num_heads=1),
    "A: h = 4": Row(num_heads=4),
    "A: h = 16": Row(num_heads=16),
    "A: h = 32": Row(num_heads=32),
    "B: d_k = 16": Row(d_k=16, millions=58),
    "B: d_k = 32": Row(d_k=32, millions=60),
    "C: N = 2": Row(num_layers=2, millions=36),
    "C: N = 4": Row(num_layers=4, millions=50),
    "C: N = 8": Row(num_layers=8, millions=80),
    "C: d_model = 256": Row(d_model=256, millions=28),
    "C: d_model = 1024": Row(d_model=1024, millions=168),
    "C: d_ff = 1024": Row(d_ff=1024, millions=53),
    "C: d_ff = 4096": Row(d_ff=4096, millions=90),
    "D: dropout 0.0": Row(dropout=0.0),
    "D: dropout 0.2": Row(dropout=0.2),
    "D: smoothing 0.0": Row(label_smoothing=0.0),
    "D: smoothing 0.2": Row(label_smoothing=0.2),
    "E: learned positions": Row(learned_positions=True),
    "big": Row(d_model=1024, d_ff=4096, num_heads=16, dropout=0.3, millions=213),
}
"""The rows of the table."""


def build(row: Row) -> nn.ModuleDict:
    """Build the encoder, the decoder, the shared embedding and the positions of a row."""
    attention: Callable[[], MultiHeadAttention] = partial(
        MultiHeadAttention, row.d_model, row.num_heads, bias=False
    )
    if row.d_k is not None:
        attention = partial(KeySizeAttention, row.d_model, row.num_heads, row.d_k)
    names = "num_layers", "d_model", "d_ff", "dropout"
    sizes: dict[str, Any] = {name: getattr(row, name) for name in names}
    encoder = build_encoder(**sizes, attention=attention)
    decoder = build_decoder(**sizes, attention=attention, cross_attention=attention)
    embedding = TokenEmbedding(VOCABULARY, row.d_model)
    positions: nn.Module = SinusoidalPositionalEncoding(row.d_model, max_length=MAX_LENGTH)
    if row.learned_positions:
        positions = LearnedPositionalEncoding(row.d_model, max_length=MAX_LENGTH)
    parts = {"encoder": encoder, "decoder": decoder, "embedding": embedding}
    return nn.ModuleDict({**parts, "positions": positions})


def count_parameters(row: Row) -> int:
    """Count the parameters of the model of a row."""
    with torch.device("meta"):
        return sum(weight.numel() for weight in build(row).parameters())


def implied_vocabulary(row: Row, parameters: int) -> tuple[float, float]:
    """Compute for which sizes of the vocabulary the model has the paper's number of parameters.

    Args:
        row: A row with ``millions``.
        parameters: Number of parameters with :data:`VOCABULARY`.

    Returns:
        The smallest and the largest size that are rounded to the paper's number.
    """
    if row.millions is None:
        raise ValueError("the paper gives no number of parameters for this row")
    others = parameters - VOCABULARY * row.d_model
    low, high = ((row.millions + half) * 1e6 for half in (-0.5, 0.5))
    return (low - others) / row.d_model, (high - others) / row.d_model


def main() -> None:
    """Print our number of parameters beside the paper's."""
    print(f"{'row':<22} {'parameters':>12} {'paper':>6}  {'vocabulary that fits':<20}")
    for name, row in ROWS.items():
        parameters = count_parameters(row)
        paper, fitting = "", ""
        if row.millions is not None:
            low, high = implied_vocabulary(row, parameters)
            paper, fitting = f"{row.millions} M", f"{low:,.0f} to {high:,.0f}"
        print(f"{name:<22} {parameters:>12,} {paper:>6}  {fitting}".rstrip())


if __name__ == "__main__":
    main()
