"""A softmax over the queries instead of the keys.

In an annotated implementation of a diffusion model, the softmax of the attention scores ran over
the axis of the queries. The weights of one query then do not sum to one, and they depend on all the
other queries.

The matrix is square, so no shape is wrong, and the model trains. The reporter of September 2022
compared both forms on CIFAR-10 and found no difference in the quality of the images. With masks,
the fault does more harm: a padded query takes a share of each key, and in a decoder the weights
depend on later positions.
"""

import torch
from torch import Tensor, nn

from transformer_blocks.inspection import Soundness, check_soundness
from transformer_blocks.museum.exhibit import Exhibit, seeded


class Broken(nn.Module):
    """A self-attention layer, of two heads, with a padding mask."""

    def __init__(self) -> None:
        super().__init__()
        self.query_key_value = nn.Linear(16, 48)

    def softmax(self, scores: Tensor) -> Tensor:
        # the fault: axis 2 of (B, H, L, S) is that of the queries
        return scores.softmax(dim=2)

    def forward(self, x: Tensor, is_padding: Tensor) -> Tensor:
        heads = self.query_key_value(x).unflatten(-1, (6, 8)).transpose(1, 2)
        query, key, value = heads.chunk(3, dim=1)  # (B, H, L, d_k)
        scores = torch.einsum("bhid,bhjd->bhij", query, key) / query.shape[-1] ** 0.5
        weights = self.softmax(scores.masked_fill(is_padding[:, None, None, :], -1e4))
        return x + torch.einsum("bhij,bhjd->bihd", weights, value).flatten(2)


class Mended(Broken):
    """The same, with a softmax over the keys."""

    def softmax(self, scores: Tensor) -> Tensor:
        return scores.softmax(dim=3)


def examine(model: nn.Module) -> Soundness:
    """Check the layer on sequences of six and of three vectors."""
    is_padding = torch.arange(6) >= torch.tensor([[6], [3]])
    return check_soundness(model, (torch.randn(2, 6, 16), is_padding))


EXHIBIT = Exhibit(
    title="A softmax over the queries instead of the keys",
    theme="masks",
    source="https://github.com/labmlai/annotated_deep_learning_paper_implementations/issues/146",
    found_by="padding",
    broken=seeded(Broken),
    mended=seeded(Mended),
    examine=examine,
)
