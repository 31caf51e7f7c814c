r"""Additive attention: scores from a small network instead of a dot product.

Attention was introduced for recurrent translation models, three years before the Transformer
("Neural Machine Translation by Jointly Learning to Align and Translate", Bahdanau, Cho and Bengio
2014, https://arxiv.org/abs/1409.0473, section 3.1 and appendix A.1.2). The score of a query and a
key is computed by a feed-forward network with one hidden layer: it adds a projection of each,
applies tanh, and takes the dot product with a learned vector:

.. math:: e_{ij} = v^T \tanh(W s_{i-1} + U h_j)

The query is the decoder's state :math:`s_{i-1}`, the keys are the encoder's states :math:`h_j`. The
matrices W and U correspond to the query and key projections of a multi-head attention layer, whose
attention function therefore computes the scores :math:`v^T \tanh(q_i + k_j)` only. The softmax, the
weighted sum and the mask rule are those of :mod:`transformer_blocks.attention`.

The Transformer paper compares additive and dot-product attention (section 3.2.1). They are similar
in theoretical complexity, but the dot products of all queries with all keys are one matrix
multiplication, whereas additive attention needs a vector of size d_k for every pair. The paper
names this speed as the reason for its choice. It also reports that additive attention is better
than dot products *without* a scale when d_k is large.

The function tanh does not replace the scale. It bounds each of the d_k terms of a score, but not
their sum. If the elements of queries, keys and v are independent standard normal numbers, the
standard deviation of the scores is 0.72 times the square root of d_k: 2.0, 8.2 and 33 at d_k = 8,
128 and 2048. It grows as that of dot products does. Here, the initial values of v contain the
scale: their variance is 2 / (d_k + 1), so the standard deviation is about 1 for every d_k. What
tanh does guarantee is a bound that does not depend on queries and keys: no score exceeds the sum of
the absolute values of v.

Next: :mod:`transformer_blocks.variants.rotary`, positions as rotations of queries and keys.
"""

import math

import torch
from torch import Tensor, nn

from transformer_blocks._contracts import Size, checked
from transformer_blocks.attention import to_full_precision, without_autocast
from transformer_blocks.variants.explicit import ExplicitAttention


class AdditiveAttention(ExplicitAttention):
    r"""Attention with the weights :math:`\mathrm{softmax}(v^T \tanh(q + k))`.

    Each head learns a vector v. ``MultiHeadAttention(d_model, 1,
    attention_function=AdditiveAttention(d_model))`` is Bahdanau's attention as a layer: its query
    and key projections are W and U; the value and output projections are additional.

    Args:
        d_k: Size of the queries and keys of one head.
        num_heads: Number of heads H, each with its own vector v.

    Raises:
        ValueError: If a size is not positive.

    Example:
        >>> import math
        >>> import torch
        >>> from torch import nn
        >>> from transformer_blocks import AdditiveAttention
        >>> attention = AdditiveAttention(d_k=8)
        >>> query, key, value = torch.randn(3, 1, 1, 4, 8).unbind()
        >>> scores = attention.attention_scores(query, 1000 * key, scale=None)
        >>> bool(scores.abs().max() <= attention.vector.abs().sum())  # tanh is at most 1
        True

        The scores' standard deviation, divided by sqrt(d_k) for a standard normal v, and as it is
        for the initial values of v:

        >>> for d_k in (8, 128, 2048):
        ...     query, key = torch.randn(2, 1, 500, 4, d_k).unbind()  # 500 heads, each with its v
        ...     attention = AdditiveAttention(d_k, num_heads=500)
        ...     initial = attention.attention_scores(query, key, scale=None).std()
        ...     _ = nn.init.normal_(attention.vector)
        ...     normal = attention.attention_scores(query, key, scale=None).std()
        ...     print(f"d_k = {d_k:4d}: {normal / math.sqrt(d_k):.1f} and {initial:.0f}")
        d_k =    8: 0.7 and 1
        d_k =  128: 0.7 and 1
        d_k = 2048: 0.7 and 1
    """

    @checked
    def __init__(self, d_k: Size, num_heads: Size = 1) -> None:
        super().__init__()
        self.vector = nn.Parameter(torch.empty(num_heads, d_k))
        bound = math.sqrt(6.0 / (d_k + 1))  # Xavier's, for d_k inputs and one output
        nn.init.uniform_(self.vector, -bound, bound)

    def attention_scores(self, query: Tensor, key: Tensor, scale: float | None) -> Tensor:
        """Compute the scores; this stores L x S vectors of size d_k for every head.

        Args:
            query: Query vectors, of shape (B, H, L, d_k).
            key: Key vectors, of shape (B, H, S, d_k).
            scale: Factor of the scores; 1 if not given.

        Returns:
            Scores, of shape (B, H, L, S).

        Raises:
            ValueError: If the number of heads or their size is not that of the weights.
        """
        heads, d_k = self.vector.shape
        if (query.shape[1], query.shape[3]) != (heads, d_k):
            raise ValueError(
                f"query must have shape (B, {heads}, L, {d_k}), got {tuple(query.shape)}"
            )
        queries, keys = to_full_precision(query), to_full_precision(key)
        sums = queries.unsqueeze(-2) + keys.unsqueeze(-3)  # (B, H, L, S, d_k)
        vector = self.vector.to(sums.dtype) * (1.0 if scale is None else scale)
        with without_autocast(query):
            return (sums.tanh() @ vector[:, None, :, None]).squeeze(-1)  # (B, H, L, S)
