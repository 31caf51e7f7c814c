"""Key heads in another order than their queries.

In grouped-query attention, consecutive query heads share a key head: four query heads need two key
heads in the order 0, 0, 1, 1. The definition of the Attention operator in ONNX tiled them to 0, 1,
0, 1, while torch repeats each head.

Both orders have the same shape, and a model that is trained with one of them is as good as with the
other. Weights that were trained with the other order pair half of the query heads with the wrong
keys. If there is one key head, or as many as query heads, the two orders are equal. A change of
September 2025 proposes the order of torch.

:theme: heads
:source: https://github.com/onnx/onnx/pull/7274
:found by: equivalence
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks.inspection import Difference, first_difference


class Broken(nn.Module):
    """Grouped-query self-attention with four query heads and two key heads."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.keys = nn.Linear(16, 16), nn.Linear(16, 8)
        self.values = nn.Linear(16, 8)

    def heads(self, x: Tensor) -> list[Tensor]:
        """Compute queries (B, 4, L, 4), and keys and values (B, 2, L, 4)."""
        parts = (self.queries(x), self.keys(x), self.values(x))
        return [part.unflatten(-1, (-1, 4)).transpose(1, 2) for part in parts]

    def repeat(self, x: Tensor) -> Tensor:
        """Repeat the key heads (B, 2, L, 4) to (B, 4, L, 4)."""
        # the fault: the order is 0, 1, 0, 1
        return x.repeat(1, 2, 1, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Attend with as many key heads as query heads."""
        query, key, value = self.heads(x)
        return F.scaled_dot_product_attention(query, self.repeat(key), self.repeat(value))


class Mended(Broken):
    """Repeats each key head for its group of queries."""

    def repeat(self, x: Tensor) -> Tensor:
        """Repeat the key heads (B, 2, L, 4) to (B, 4, L, 4)."""
        return x.repeat_interleave(2, dim=1)


def examine(model: Broken) -> Difference:
    """Compare with torch's grouped-query attention."""

    def theirs(x: Tensor) -> Tensor:
        query, key, value = model.heads(x)
        return F.scaled_dot_product_attention(query, key, value, enable_gqa=True)

    return first_difference(model, theirs, torch.randn(2, 5, 16))
