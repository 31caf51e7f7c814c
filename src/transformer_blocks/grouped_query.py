r"""Grouped queries: several heads that ask share what they look up.

A model that writes spends its time fetching keys and values: each step reads all of the past, for
every head. Heads that ask different questions may well look them up in the same table. With
grouped-query attention ("GQA", Ainslie et al. 2023, https://arxiv.org/abs/2305.13245, section 2.2)
the H query heads form G groups, and each group has one key head and one value head:

.. math:: head_h = \mathrm{Attention}(Q W_h^Q,\ K W_{g(h)}^K,\ V W_{g(h)}^V),
          \qquad g(h) = \lceil h\,G / H \rceil

The cache is H / G times smaller. G = H is multi-head attention, G = 1 is multi-query attention
("Fast Transformer Decoding", Shazeer 2019, https://arxiv.org/abs/1911.02150).

Next chapter: :mod:`transformer_blocks.packing`, a finished model, laid out for speed.
"""

from torch import Tensor, nn

from transformer_blocks._checks import check_size
from transformer_blocks.attention import AttentionKernel, fused_attention, weights_of
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
        kernel: What computes attention; it sees H heads of each.

    Raises:
        ValueError: If a size is not positive or does not divide the other, or ``dropout`` is out of
            range.

    Example:
        >>> attention, cache = GroupedQueryAttention(16, num_heads=4, num_groups=2), KeyValueCache()
        >>> x = torch.randn(1, 5, 16)
        >>> with torch.no_grad():
        ...     step_by_step = attention(x, x, x, causal=True, cache=cache)
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
        kernel: AttentionKernel = fused_attention,
    ) -> None:
        check_size(num_groups=num_groups)
        super().__init__(
            d_model,
            num_heads,
            key_width=key_width,
            value_width=value_width,
            bias=bias,
            dropout=dropout,
            kernel=SharedKeys(kernel),
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


class SharedKeys(nn.Module):
    """A kernel that hands each key and value head to several query heads.

    Args:
        kernel: What computes attention once there are as many of each.
    """

    def __init__(self, kernel: AttentionKernel) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        dropout: float = 0.0,
        scale: float | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Share, then mix; keys and values have the shape (B, G, S, d_k)."""
        key, value = _repeat(key, query), _repeat(value, query)
        return self.kernel(
            query, key, value, mask=mask, causal=causal, dropout=dropout, scale=scale
        )

    def attention_weights(
        self,
        query: Tensor,
        key: Tensor,
        *,
        mask: Tensor | None = None,
        causal: bool = False,
        scale: float | None = None,
    ) -> Tensor:
        """Say how much of each value a query takes. Shape (B, H, L, S)."""
        key = _repeat(key, query)
        return weights_of(self.kernel)(query, key, mask=mask, causal=causal, scale=scale)


def _repeat(x: Tensor, query: Tensor) -> Tensor:
    """Show each head H / G times over: (B, G, S, d_k) to (B, H, S, d_k)."""
    return x.repeat_interleave(query.shape[1] // x.shape[1], dim=1)
