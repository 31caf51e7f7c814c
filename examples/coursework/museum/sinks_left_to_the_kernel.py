"""Attention sinks that a fused kernel forgets.

In gpt-oss and its relatives, each head has a learned logit that takes weight and gives no value, an
attention sink. A fused kernel that has no argument for it can be corrected afterwards, by a factor
for each query, if the kernel also returns the sum of its exponentials.

A serving library had two paths: one applied the factor, the other, a kernel that writes the cache
as well, returned no sum. There the sinks were accepted as an argument and not used, without an
error. A part of the weight that the sinks should take stays with the keys, and the text is worse
where a context is long. It was found in April 2026 by an audit of the code.

:theme: weights
:source: https://github.com/sgl-project/sglang-jax/pull/905
:found by: equivalence
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coursework.museum.models import SelfAttention
from transformer_blocks import SinkAttention
from transformer_blocks.inspection import Difference, first_difference


class Broken(SelfAttention):
    """Causal self-attention of one head with a sink, by torch's fused kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.sinks = nn.Parameter(torch.ones(1))

    def shares(self, query: Tensor, key: Tensor) -> Tensor | float:
        """Return which part of the weight of each query the keys have, of shape (B, L, 1)."""
        # the fault: the kernel returns no sum, and the sink is left out
        return 1.0

    def forward(self, x: Tensor) -> Tensor:
        """Attend to the vectors (B, L, 16) before each one, and to the sink."""
        query, key, value = self.project(x)
        output = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return output * self.shares(query, key)


class Mended(Broken):
    """Computes the sum of the exponentials beside the kernel."""

    def shares(self, query: Tensor, key: Tensor) -> Tensor | float:
        """Return which part of the weight of each query the keys have, of shape (B, L, 1)."""
        scores = query @ key.mT / query.shape[-1] ** 0.5
        future = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        sums = scores.masked_fill(future, -torch.inf).logsumexp(dim=-1, keepdim=True)
        return torch.sigmoid(sums - self.sinks)


def examine(model: Broken) -> Difference:
    """Compare with the explicit attention of the library."""
    explicit = SinkAttention(1)
    explicit.sinks = model.sinks

    def theirs(x: Tensor) -> Tensor:
        query, key, value = (part[:, None] for part in model.project(x))
        return explicit(query, key, value, causal=True)[0][:, 0]

    return first_difference(model, theirs, torch.randn(2, 5, 16))
