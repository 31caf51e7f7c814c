"""A boolean mask added to the scores.

An attention mask has two forms: booleans, which mark the keys that are attended to, and numbers,
which are added to the scores. The public function of torch accepts both, and converts the first to
the second. In diffusers, the path for context parallelism calls the operation below that function,
which takes numbers only, and passes the mask as it is.

Added to a score, "attend" is one and "do not attend" is zero. The weights change a little, and
nothing is masked. The issue of July 2026 was separated from one about another fault of the same
path; each of them alone was enough to make the outputs wrong.

:theme: masks
:source: https://github.com/huggingface/diffusers/issues/14342
:found by: padding
"""

import torch
from torch import Tensor, nn

from coursework.museum.models import SelfAttention
from transformer_blocks.inspection import Soundness, check_soundness


class Broken(SelfAttention):
    """An attention layer that calls the lower-level operations."""

    def bias(self, mask: Tensor, like: Tensor) -> Tensor:
        # the fault: true is added as one, false as zero
        return mask.to(like.dtype)

    def forward(self, x: Tensor, is_real: Tensor) -> Tensor:
        query, key, value = self.project(x)
        scores = query @ key.mT / query.shape[-1] ** 0.5  # (B, L, L)
        scores = scores + self.bias(is_real[:, None, :], like=scores)
        return x + scores.softmax(dim=-1) @ value


class Mended(Broken):
    """The same, with the mask converted to zero and minus infinity."""

    def bias(self, mask: Tensor, like: Tensor) -> Tensor:
        return torch.zeros_like(like).masked_fill(mask.logical_not(), float("-inf"))


def examine(model: nn.Module) -> Soundness:
    """Check the layer on sequences of six and of three vectors."""
    is_real = torch.arange(6) < torch.tensor([[6], [3]])
    return check_soundness(model, (torch.randn(2, 6, 16), is_real))
