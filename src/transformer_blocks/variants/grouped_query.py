r"""Grouped-query attention: several query heads share one head of keys and values.

Memory bandwidth often limits autoregressive decoding: each step reads all weights, once for a
batch, and the cached keys and values of every head and sequence, which are the larger part for many
or long sequences. But heads with different queries can share keys and values. In grouped-query
attention (GQA, Ainslie et al. 2023, https://arxiv.org/abs/2305.13245, section 2.2) the H query
heads form G groups, and each group has one key head and one value head:

.. math:: head_h = \mathrm{Attention}(Q W_h^Q,\ K W_{g(h)}^K,\ V W_{g(h)}^V),
          \qquad g(h) = \lceil h\,G / H \rceil

The cache is smaller by a factor of H / G. G = H is multi-head attention, G = 1 is multi-query
attention ("Fast Transformer Decoding", Shazeer 2019, https://arxiv.org/abs/1911.02150). Fewer key
and value heads can reduce quality. Ainslie et al. report that models with several groups, trained
further from multi-head models, come close to the quality of multi-head attention.

Next: :mod:`transformer_blocks.variants.gated_feed_forward`, feed-forward with a gate.
"""

from collections.abc import Sequence

from torch import nn

from transformer_blocks._contracts import Size, checked
from transformer_blocks.attention import AttentionFunction
from transformer_blocks.fast.attention import fused_attention
from transformer_blocks.feed_forward import initialise
from transformer_blocks.multi_head import MultiHeadAttention, QueryKeyTransform


class GroupedQueryAttention(MultiHeadAttention):
    """Multi-head attention with fewer heads of keys and values than of queries.

    Args:
        d_model: Size of the query and output vectors.
        num_heads: Number of query heads H.
        num_key_value_heads: Number of key and value heads G, which divides ``num_heads``.
        d_k: Size of the queries, keys and values of one head. If not given, it is d_model / H, and
            H must divide ``d_model``.
        bias: Whether the projections have a bias.
        dropout: Probability of setting an attention weight to zero in training mode.
        attention_function: An :class:`~transformer_blocks.AttentionFunction`, which computes
            attention from H query heads, G key heads and G value heads.
        transforms: Transforms of queries and keys, applied in this order. Pass new ones to every
            layer.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If a size is not positive, ``d_k`` is not given and ``num_heads`` does not
            divide ``d_model``, ``num_key_value_heads`` does not divide ``num_heads``, or
            ``dropout`` is out of range.

    Example:
        >>> import torch
        >>> from transformer_blocks import GroupedQueryAttention, KeyValueCache
        >>> attention = GroupedQueryAttention(16, num_heads=4, num_key_value_heads=2)
        >>> x, cache = torch.randn(1, 5, 16), KeyValueCache()
        >>> with torch.no_grad():
        ...     y = attention(x, x, x, causal=True, cache=cache)
        >>> cache.read()[0].shape  # the cache holds two heads, not four
        torch.Size([1, 2, 5, 4])
    """

    @checked
    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_key_value_heads: Size,
        *,
        d_k: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        attention_function: AttentionFunction = fused_attention,
        transforms: Sequence[QueryKeyTransform] = (),
    ) -> None:
        super().__init__(
            d_model,
            num_heads,
            d_k=d_k,
            bias=bias,
            dropout=dropout,
            attention_function=attention_function,
            transforms=transforms,
        )
        if num_heads % num_key_value_heads:
            raise ValueError(
                "num_heads must be divisible by num_key_value_heads, "
                f"got num_heads={num_heads} and num_key_value_heads={num_key_value_heads}"
            )
        self.num_key_value_heads = num_key_value_heads
        width = self.d_k * num_key_value_heads
        self.key_projection = nn.Linear(d_model, width, bias=bias)
        self.value_projection = nn.Linear(d_model, width, bias=bias)
        initialise(self)

    def extra_repr(self) -> str:
        """Show the numbers of heads when the module is printed."""
        return f"{super().extra_repr()}, num_key_value_heads={self.num_key_value_heads}"
