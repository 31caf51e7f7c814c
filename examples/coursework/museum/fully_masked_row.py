"""A fully masked row that turns a whole batch into NaN.

With padding on the left and a causal mask, the first position of a padded sequence may attend to
itself only, and it is padding: all its scores are minus infinity. The softmax divides zero by zero,
and the row of weights is NaN. This seems harmless, since the output of a padded position is not
used.

In the next layer, however, this output becomes a value, and NaN times a weight of zero is NaN: the
outputs of all real tokens of the sequence are NaN. In training, so are the gradients of the whole
batch. The thread on torch.nn.MultiheadAttention is of July 2020; whether such a mask is an error of
the caller has been discussed there for years, and it was still open in 2026.

:theme: masks
:source: https://github.com/pytorch/pytorch/issues/41508
:found by: determinism
"""

import torch
from torch import Tensor, nn

from coursework.museum.models import LEFT_PADDED
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(nn.Module):
    """A causal model of two layers with a padding mask."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(20, 16)
        self.layers = nn.ModuleList([nn.Linear(16, 48), nn.Linear(16, 48)])

    def softmax(self, scores: Tensor, mask: Tensor) -> Tensor:
        # the fault: the softmax of a fully masked row is 0 / 0
        return scores.masked_fill(mask, float("-inf")).softmax(dim=-1)

    def forward(self, ids: Tensor, is_padding: Tensor) -> Tensor:
        x = self.embedding(ids)
        length = ids.shape[1]
        future = torch.ones(length, length, dtype=torch.bool, device=ids.device).triu(diagonal=1)
        for query_key_value in self.layers:
            query, key, value = query_key_value(x).chunk(3, dim=-1)
            scores = query @ key.mT / query.shape[-1] ** 0.5
            x = x + self.softmax(scores, future | is_padding[:, None, :]) @ value
        return x


class Mended(Broken):
    """The same, with weights of zero in a fully masked row."""

    def softmax(self, scores: Tensor, mask: Tensor) -> Tensor:
        weights = scores.masked_fill(mask, float("-inf")).softmax(dim=-1)
        return weights.masked_fill(mask.all(dim=-1, keepdim=True), 0.0)


def examine(model: nn.Module) -> Soundness:
    """Check the model on a batch of two sequences, the second with padding on the left."""
    return check_soundness(model, (LEFT_PADDED, LEFT_PADDED == 0), causal=True, padding_id=0)
