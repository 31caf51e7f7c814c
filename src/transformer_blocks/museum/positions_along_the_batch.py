"""Positional encodings along the batch.

The positional encoding of a tutorial of torch has the shape (max_length, 1, d_model), for inputs
whose first axis is the sequence. Its forward method takes as many encodings as the first axis is
long. C.Origami, a model of genomes, copied it into an encoder whose first axis is the batch: the
encoding of position i was added to all positions of the i-th sequence.

Broadcasting hides it, as long as no batch is longer than the table. All positions of a sequence
have the same encoding, which depends on the place of the sequence in the batch. A reader reported
it in April 2024. Another project had the same line until 2023; there, a user had first taken the
rising validation loss for overfitting.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks.embedding import sinusoidal_table
from transformer_blocks.inspection import Soundness, check_soundness
from transformer_blocks.museum.exhibit import Exhibit, seeded

TOKENS = torch.tensor([[3, 1, 4, 1, 5, 9], [2, 7, 1, 8, 0, 0], [1, 4, 1, 0, 0, 0]])


class Broken(nn.Module):
    """An encoder of one layer; token 0 is padding."""

    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 16)
        self.inputs, self.output = nn.Linear(16, 48), nn.Linear(16, 16)
        self.register_buffer("table", sinusoidal_table(100, 16).float()[:, None])  # (100, 1, 16)

    def encodings(self, x: Tensor) -> Tensor:
        """Select the positional encodings of vectors (B, L, 16)."""
        # the fault: the positions are the second dimension
        return self.table[: x.shape[0]]

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute a vector for each token."""
        x = self.embedding(tokens)
        x = x + self.encodings(x)
        query, key, value = self.inputs(x).chunk(3, dim=-1)
        real = (tokens != 0)[:, None]  # (B, 1, L)
        return self.output(F.scaled_dot_product_attention(query, key, value, attn_mask=real))


class Mended(Broken):
    """Selects as many encodings as there are positions."""

    def encodings(self, x: Tensor) -> Tensor:
        """Select the positional encodings of vectors (B, L, 16)."""
        return self.table[: x.shape[1], 0]


def examine(model: Broken) -> Soundness:
    """Run all checks on a padded batch."""
    return check_soundness(model, TOKENS, padding_id=0)


EXHIBIT = Exhibit(
    title="Positional encodings along the batch",
    theme="positions",
    source="https://github.com/tanjimin/C.Origami/issues/42",
    found_by="batch",
    broken=seeded(Broken),
    mended=seeded(Mended),
    examine=examine,
)
