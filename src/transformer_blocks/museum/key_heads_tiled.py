"""Key heads repeated in another order than the queries.

ONNX, pull request 7274 (September 2025), in the reference definition of its Attention operator. In
grouped-query attention, consecutive query heads share a key head: with four query heads and two
key heads, the keys must be repeated as 0, 0, 1, 1. Tiling gives 0, 1, 0, 1, the same shape. A model
trained with either order is as good as with the other; one whose weights come from elsewhere, as
all weights of an exported model do, pairs half of its queries with keys that were trained for
others. With a single key head, or as many as query heads, both orders are the same, so that a test
of these two cases passes.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks.inspection import Report, check_equivalence
from transformer_blocks.museum.exhibit import Exhibit, seeded


class Attention(nn.Module):
    """Grouped-query self-attention with four query heads and two key heads."""

    def __init__(self) -> None:
        super().__init__()
        self.queries, self.keys = nn.Linear(16, 16), nn.Linear(16, 8)
        self.values = nn.Linear(16, 8)

    def heads(self, x: Tensor) -> list[Tensor]:
        """Compute queries (B, 4, L, 4), and keys and values (B, 2, L, 4)."""
        parts = (self.queries(x), self.keys(x), self.values(x))
        return [part.unflatten(-1, (-1, 4)).transpose(1, 2) for part in parts]

    def forward(self, x: Tensor) -> Tensor:
        """Let torch share the key heads."""
        return F.scaled_dot_product_attention(*self.heads(x), enable_gqa=True)


class Broken(Attention):
    """Repeats the key heads itself, for kernels without groups."""

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


def examine(model: Broken) -> Report:
    """Compare with torch's grouped-query attention, which has the same weights."""
    theirs = Attention()
    theirs.load_state_dict(model.state_dict())
    return check_equivalence(model, theirs, [torch.randn(2, 5, 16)])


EXHIBIT = Exhibit(
    title="Key heads repeated in another order than the queries",
    theme="heads",
    source="https://github.com/onnx/onnx/pull/7274",
    found_by="equivalence",
    broken=seeded(Broken),
    mended=seeded(Mended),
    examine=examine,
)
