r"""Grouped queries: several heads that ask share what they look up.

A model that writes spends its time fetching keys and values: each step reads all of the past, for
every head. Heads that ask different questions may well look them up in the same table. With
grouped-query attention ("GQA", Ainslie et al. 2023, https://arxiv.org/abs/2305.13245, section 2.2)
the H query heads form G groups, and each group has one key head and one value head:

.. math:: head_h = \mathrm{Attention}(Q W_h^Q,\ K W_{g(h)}^K,\ V W_{g(h)}^V),
          \qquad g(h) = \lceil h\,G / H \rceil

The cache is H / G times smaller. G = H is multi-head attention, G = 1 is multi-query attention
("Fast Transformer Decoding", Shazeer 2019, https://arxiv.org/abs/1911.02150).

Next chapter: :mod:`transformer_blocks.variants.gated_feed_forward`, feed-forward with a gate.
"""

import torch
from torch import Tensor, nn

from transformer_blocks._checks import check_size
from transformer_blocks.attention import fused_attention
from transformer_blocks.kernels import AttentionFunction
from transformer_blocks.multi_head import MultiHeadAttention, initialise_projections


class GroupedQueryAttention(MultiHeadAttention):
    """Multi-head attention with fewer heads for keys and values than for queries.

    Args:
        d_model: Width of the queries that come in and of what goes out.
        num_heads: H, of the queries; divides d_model.
        num_groups: G, of the keys and values; divides H.
        key_width: Width of the keys that come in, if other than d_model.
        value_width: Width of the values that come in, if other than d_model.
        bias: Whether the projections add a learned constant.
        dropout: Probability of dropping an attention weight while training.
        attention_function: What computes attention; it sees H heads of each.

    Raises:
        ValueError: If a size is not positive or does not divide the other, or ``dropout`` is out of
            range.

    Example:
        >>> attention, cache = GroupedQueryAttention(16, num_heads=4, num_groups=2), KeyValueCache()
        >>> x = torch.randn(1, 5, 16)
        >>> with torch.no_grad():
        ...     y = attention(x, x, x, causal=True, cache=cache)
        >>> cache.read()[0].shape  # what is kept: two heads of four
        torch.Size([1, 2, 5, 4])
    """

    def __init__(
        self,
        d_model: int,
        num_heads: int,
        num_groups: int,
        *,
        key_width: int | None = None,
        value_width: int | None = None,
        bias: bool = True,
        dropout: float = 0.0,
        attention_function: AttentionFunction = fused_attention,
    ) -> None:
        check_size(num_groups=num_groups)
        super().__init__(
            d_model,
            num_heads,
            key_width=key_width,
            value_width=value_width,
            bias=bias,
            dropout=dropout,
            attention_function=attention_function,
        )
        if num_heads % num_groups:
            raise ValueError(
                "num_heads must be divisible by num_groups, "
                f"got num_heads={num_heads} and num_groups={num_groups}"
            )
        self.num_groups = num_groups
        width = d_model // num_heads * num_groups
        self.key_projection = nn.Linear(self.key_projection.in_features, width, bias=bias)
        self.value_projection = nn.Linear(self.value_projection.in_features, width, bias=bias)
        initialise_projections(self)

    def extra_repr(self) -> str:
        """Show the heads when the module is printed."""
        return f"{super().extra_repr()}, num_groups={self.num_groups}"

    def _share(self, x: Tensor) -> Tensor:
        """Show each head H / G times over: (B, G, S, d_k) to (B, H, S, d_k)."""
        times = self.num_heads // self.num_groups
        if torch.compiler.is_exporting():  # which cannot prove strides of symbolic lengths ordered
            return x.index_select(1, torch.arange(self.num_heads, device=x.device) // times)
        return x.repeat_interleave(times, dim=1)
