"""Positional encodings along the batch.

The positional encoding of a tutorial of torch has the shape (max_length, 1, d_model), for inputs
whose first axis is the sequence. Its forward method takes as many encodings as the first axis is
long. C.Origami, a model of genomes, copied it into an encoder whose first axis is the batch: the
encoding of position i was added to all positions of the i-th sequence.

Broadcasting hides it, as long as no batch is longer than the table. All positions of a sequence
have the same encoding, which depends on the place of the sequence in the batch. A reader reported
it in April 2024. Another project had the same line until 2023; there, a user had first taken the
rising validation loss for overfitting.

:theme: positions
:source: https://github.com/tanjimin/C.Origami/issues/42
:found by: batch
"""

from torch import Tensor

from coursework.museum.models import PADDED, Encoder
from transformer_blocks.embedding import sinusoidal_table
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(Encoder):
    """An encoder of one layer; token 0 is padding."""

    table: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", sinusoidal_table(100, 16).float()[:, None])  # (100, 1, 16)

    def encodings(self, x: Tensor) -> Tensor:
        """Select the positional encodings of vectors (B, L, 16)."""
        # the fault: the positions are the second dimension
        return self.table[: x.shape[0]]

    def forward(self, tokens: Tensor) -> Tensor:
        """Compute a vector for each token."""
        x = self.embedding(tokens)
        return self.attend(x + self.encodings(x), (tokens != 0)[:, None])


class Mended(Broken):
    """Selects as many encodings as there are positions."""

    def encodings(self, x: Tensor) -> Tensor:
        """Select the positional encodings of vectors (B, L, 16)."""
        return self.table[: x.shape[1], 0]


def examine(model: Broken) -> Soundness:
    """Run all checks on a padded batch."""
    return check_soundness(model, PADDED, padding_id=0)
