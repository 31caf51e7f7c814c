r"""Additive attention: the first way to compare a query with a key.

Attention came into the world with recurrent translators, three years before the Transformer
("Neural Machine Translation by Jointly Learning to Align and Translate", Bahdanau, Cho and Bengio
2014, https://arxiv.org/abs/1409.0473, section 3.1 and appendix A.1.2). How well a key answers a
query was decided by a small network: add the two, bend, and let a learned vector judge:

.. math:: e_{ij} = v^T \tanh(W s_{i-1} + U h_j)

Here the state :math:`s_{i-1}` of a writer asks the states :math:`h_j` of the words that were read.
The maps W and U make queries and keys, which is what a layer's projections do; so what is left is
:math:`v^T \tanh(q_i + k_j)`. The softmax, the weighted sum and the mask rule are those of
:mod:`transformer_blocks.attention`.

The paper compares the two (section 3.2.1): about as much work in theory, but the dot product of all
queries with all keys is one matrix product, while this sum needs a vector of width d_k for every
pair. That is why the product won. The sum needs no scale, though: tanh keeps each part within -1
and 1.

Next chapter: :mod:`transformer_blocks.variants.rotary`, positions as rotations of queries and keys.
"""

import math

import torch
from torch import Tensor, nn

from transformer_blocks._checks import check_match, check_size
from transformer_blocks.attention import (
    check_inputs,
    combine_masks,
    masked_softmax,
    to_full_precision,
    without_autocast,
)
from transformer_blocks.kernels import ExplicitAttention


class AdditiveAttention(ExplicitAttention):
    r"""Mix values by :math:`\mathrm{softmax}(v^T \tanh(q + k))`, with a vector v for each head.

    It takes the place of a kernel: ``MultiHeadAttention(d_model, 1, attention_function=AdditiveAttention(
    d_model))`` is Bahdanau's score behind the usual call: its projections are W and U, and two more
    that he did not have, for the value and for the answer.

    Args:
        d_k: Width of the queries and keys of one head.
        num_heads: H; how many vectors to learn.

    Raises:
        ValueError: If a size is not positive.

    Example:
        >>> attention = AdditiveAttention(d_k=8)
        >>> query, key, value = torch.randn(3, 1, 1, 4, 8).unbind()
        >>> _, weights = attention(query, 1000 * key, value)
        >>> bool(weights.min() > 0)  # a dot product would be left with one key; tanh ends at 1
        True
    """

    def __init__(self, d_k: int, num_heads: int = 1) -> None:
        check_size(d_k=d_k, num_heads=num_heads)
        super().__init__()
        self.vector = nn.Parameter(torch.empty(num_heads, d_k))
        bound = math.sqrt(6.0 / (d_k + 1))  # Xavier's, of a map from d_k numbers to one
        nn.init.uniform_(self.vector, -bound, bound)

    def attention_weights(
        self,
        query: Tensor,
        key: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        scale: float | None = None,
    ) -> Tensor:
        """Say how much of each value a query takes. It holds L x S vectors of width d_k a head.

        Args:
            query: What each position asks. Shape (B, H, L, d_k).
            key: What each position offers to match. Shape (B, H, S, d_k).
            mask: Boolean, True hides a key. Shape (L, S) or (B|1, H|1, L|1, S).
            causal: Also hide later positions. With L < S the last query sees every key.
            scale: What the scores are multiplied by; 1 if not given.

        Returns:
            Each row sums to one, or to zero where a query may see nothing. Shape (B, H, L, S).

        Raises:
            TypeError: If the dtypes differ, or the mask is not boolean.
            ValueError: If the shapes do not fit.
        """
        check_inputs(query, key, key, causal=causal, scale=scale)
        heads, width = self.vector.shape
        if (query.shape[1], query.shape[3]) != (heads, width):
            raise ValueError(
                f"query must have shape (B, {heads}, L, {width}), got {tuple(query.shape)}"
            )
        check_match("query", query, self.vector, self)
        hidden = combine_masks(query, key, mask, causal)
        queries, keys = to_full_precision(query), to_full_precision(key)
        pairs = queries.unsqueeze(-2) + keys.unsqueeze(-3)  # (B, H, L, S, d_k)
        vector = self.vector.to(pairs.dtype) * (1.0 if scale is None else scale)
        with without_autocast(query.device):
            scores = (pairs.tanh() @ vector[:, None, :, None]).squeeze(-1)  # (B, H, L, S)
        return masked_softmax(scores, hidden).to(query.dtype)
