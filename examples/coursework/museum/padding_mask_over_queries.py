"""A padding mask over the queries instead of the keys.

A widely read implementation of the Transformer gave the padding mask of its target the shape (B, 1,
L, 1). The mask broadcasts to the scores, but along the wrong axis: it masks the rows of padded
queries, whose outputs are not used, and leaves the padded keys unmasked. In that decoder, the
causal mask hides them from all real tokens as long as the padding is on the right. In an encoder,
like the one here, all real tokens attend to them.

With scores of minus infinity, the fully masked rows would have become NaN. The code used -10000,
which turns such a row into an average instead, and it ran for years. It was reported in October
2025, from the shapes of the mask and not from a result.

:theme: masks
:source: https://github.com/hyunwoongko/transformer/pull/40
:found by: padding
"""

from torch import Tensor, nn

from coursework.museum.models import PADDED, Encoder
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(Encoder):
    """An encoder layer with a padding mask."""

    def padding_mask(self, is_padding: Tensor) -> Tensor:
        # the fault: the last axis of the scores is that of the keys
        return is_padding[:, :, None]  # (B, L, 1)

    def forward(self, ids: Tensor, is_padding: Tensor) -> Tensor:
        x = self.embed(ids)
        query, key, value = self.project(x)
        scores = query @ key.mT / query.shape[-1] ** 0.5  # (B, L, S)
        weights = scores.masked_fill(self.padding_mask(is_padding), -1e4).softmax(dim=-1)
        return x + weights @ value


class Mended(Broken):
    """The same, with the mask over the keys."""

    def padding_mask(self, is_padding: Tensor) -> Tensor:
        return is_padding[:, None, :]  # (B, 1, S)


def examine(model: nn.Module) -> Soundness:
    """Check the model on a batch of two sequences, the second with padding."""
    return check_soundness(model, (PADDED, PADDED == 0), padding_id=0)
