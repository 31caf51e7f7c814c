r"""Latent attention: keys and values from one short vector, which is all that the cache stores.

Grouped-query attention makes the cache smaller by sharing keys and values between heads
(:mod:`transformer_blocks.multi_head`). Multi-head latent attention (MLA, "DeepSeek-V2", 2024,
https://arxiv.org/abs/2405.04434, section 2.1) compresses instead: a linear layer maps the hidden
vector :math:`h_j` of a position to a *latent vector* :math:`c_j`, from which the keys and values of
all heads are projected:

.. math:: c_j = \mathrm{norm}(W^{DKV} h_j), \qquad k_j^C = W^{UK} c_j, \qquad v_j = W^{UV} c_j

Only :math:`c_j` is cached. In a decoding step its keys and values need not even be computed: with
:math:`q^T (W^{UK} c) = ((W^{UK})^T q)^T c`, the projection of the keys is *absorbed* by the query
of each head, and that of the values by the output. All heads then attend to the latent vectors
themselves, as to a single head of keys and values.

A rotation would stand between :math:`W^{UK}` and the query, and differ for every distance. Rotary
positions are therefore *decoupled*: each query has a second part that is rotated, and each position
one rotated key :math:`k_j^R = \mathrm{RoPE}(W^{KR} h_j)`, which all heads share and the cache
stores beside :math:`c_j`. The score is the sum of both parts,

.. math:: \frac{q_i^C k_j^C + q_i^R k_j^R}{\sqrt{d_k + d_r}}

With the sizes of DeepSeek-V2 (128 heads of size 128, a latent vector of 512 and a rotated key of
64), the cache of a layer has 576 numbers for each position. Multi-head attention would have 32,768,
and grouped-query attention with 8 groups 2,048.

Next: :mod:`transformer_blocks.variants.gated_feed_forward`, feed-forward with a gate.
"""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from transformer_blocks._contracts import DropoutProbability, Function, Size, checked
from transformer_blocks.attention import AttentionFunction
from transformer_blocks.fast.attention import fused_attention
from transformer_blocks.feed_forward import initialise
from transformer_blocks.multi_head import MultiHeadAttention, compute_weights
from transformer_blocks.variants.rotary import RotaryPositionalEncoding


class LatentAttention(MultiHeadAttention):
    """Multi-head self-attention whose cache stores a latent vector and a rotated key.

    Keys and values come from the same sequence, ``key``; ``value`` is not read. A single query, as
    in a decoding step, is computed in the absorbed form, several ones in the plain form; both give
    the same output up to rounding. In a :class:`~transformer_blocks.KeyValueCache`, one half of the
    stored vector stands in the place of the keys, the other in that of the values.

    Args:
        d_model: Size of the query and output vectors.
        num_heads: Number of heads H.
        latent_size: Size of the latent vector; with the size of ``rotary``, even.
        value_size: Size of a value, and of the part of a query or key that is not rotated.
        rotary: The rotation of the other part, whose size is its own ``d_k``, at most
            ``latent_size``. Pass a new one to every layer.
        query_latent_size: Size of a latent vector of the queries, which saves memory in training;
            queries are projected directly if not given.
        bias: Whether the projections to latent vectors and the output projection have a bias.
        dropout: Dropout probability of the attention weights.
        attention_function: An :class:`~transformer_blocks.AttentionFunction` of dot products.

    Attributes:
        d_k: Size of a query or key: that of the rotated part and that of the other.
        cached_size: Size of each half of the vector that a cache stores.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If a size is not positive, or the sizes do not fit.

    Example:
        >>> import torch
        >>> from transformer_blocks import KeyValueCache, LatentAttention, RotaryPositionalEncoding
        >>> attention = LatentAttention(
        ...     64, num_heads=8, latent_size=12, value_size=8, rotary=RotaryPositionalEncoding(4)
        ... )
        >>> x, cache = torch.randn(1, 5, 64), KeyValueCache()
        >>> with torch.no_grad():
        ...     steps = [attention(token, token, token, cache=cache) for token in x.split(1, dim=1)]
        >>> keys, values = cache.read()
        >>> keys[0, :, 0].numel() + values[0, :, 0].numel()  # 16 numbers, where 8 heads have 128
        16
        >>> whole = attention(x, x, x, causal=True)
        >>> torch.allclose(torch.cat(steps, dim=1), whole, atol=1e-5)  # absorbed equals plain
        True
    """

    read_parts: ClassVar[Sequence[str]] = ("up_projection",)

    @checked
    def __init__(
        self,
        d_model: Size,
        num_heads: Size,
        *,
        latent_size: Size,
        value_size: Size,
        rotary: RotaryPositionalEncoding,
        query_latent_size: Size | None = None,
        bias: bool = False,
        dropout: DropoutProbability = 0.0,
        attention_function: Function[AttentionFunction] = fused_attention,
    ) -> None:
        stored = rotary.d_k + latent_size
        if rotary.d_k > latent_size or stored % 2:
            rule = "latent_size must be even and at least the size of rotary"
            raise ValueError(f"{rule}, got latent_size={latent_size} and rotary.d_k={rotary.d_k}")
        nn.Module.__init__(self)
        self.d_model = self.key_width = self.value_width = d_model
        self.num_heads, self.num_key_value_heads = num_heads, 1
        self.d_k, self.rotary_size = rotary.d_k + value_size, rotary.d_k
        self.cached_size = stored // 2
        self.dropout, self.attention_function = dropout, attention_function
        self.transforms: Any = nn.ModuleList([rotary])
        queries = nn.Linear(query_latent_size or d_model, num_heads * self.d_k, bias=False)
        self.query_projection: Any = queries
        if query_latent_size is not None:
            down = nn.Linear(d_model, query_latent_size, bias=bias)
            norm = nn.RMSNorm(query_latent_size, eps=1e-6)
            self.query_projection = nn.Sequential(down, norm, queries)
            initialise(self.query_projection)
        self.down_projection = nn.Linear(d_model, stored, bias=bias)
        self.latent_norm = nn.RMSNorm(latent_size, eps=1e-6)
        # W^UK and W^UV in one matrix, head by head, as in published files
        self.up_projection = nn.Linear(latent_size, num_heads * 2 * value_size, bias=False)
        self.output_projection = nn.Linear(num_heads * value_size, d_model, bias=bias)
        initialise(self)

    def project_heads(self, query: Tensor, key: Tensor, value: Tensor) -> Sequence[Tensor]:
        """Project to queries, and to what the cache stores, before it is rotated.

        Args:
            query: Query sequence, of shape (B, L, d_model).
            key: Key sequence, of shape (B, S, d_model).
            value: Not read.

        Returns:
            Queries, of shape (B, H, L, rotary size + value size), the rotated part first; and the
            halves of the stored vectors, each of shape (B, 1, S, (rotary + latent size) / 2).
        """
        rotated, latent = self._split(self.down_projection(key).unsqueeze(1))
        stored = torch.cat((rotated, self.latent_norm(latent)), dim=-1)
        return self.split_heads(self.query_projection(query)), *stored.chunk(2, dim=-1)

    def project(self, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:  # noqa: D102
        first, second = self.project_heads(key, key, value)[1:]
        return self.transform_keys(first, start=0), second

    def attend(  # noqa: D102
        self, queries: Tensor, keys: Tensor, values: Tensor, *, mask: Tensor | None, causal: bool
    ) -> Tensor:
        if queries.shape[2] > 1:
            keys, values = self.expand(keys, values)
            return super().attend(queries, keys, values, mask=mask, causal=causal)
        up = self.up_projection.weight.unflatten(0, (self.num_heads, -1))
        to_keys, to_values = up.chunk(2, dim=1)  # (H, value size, latent size)
        rotated, plain = self._split(queries)
        stored = torch.cat((keys, values), dim=-1)  # (B, 1, S, rotary size + latent size)
        scale = math.sqrt(stored.shape[-1] / self.d_k)  # from the larger vectors' to the plain one
        absorbed = scale * torch.cat((rotated, plain @ to_keys), dim=-1)
        latent = self._split(stored)[1]
        output = super().attend(absorbed, stored, latent, mask=mask, causal=causal)
        return output @ to_values.mT  # (B, H, L, value size)

    @checked
    def attention_weights(  # noqa: D102
        self, query: Tensor, key: Tensor, *, mask: Tensor | None = None, causal: bool = False
    ) -> Tensor:
        queries = self.split_heads(self.query_projection(query))
        queries = self.transform_queries(queries, start=key.shape[1] - query.shape[1])
        keys, _ = self.expand(*self.project(key, key))
        options = {"mask": mask, "causal": causal}
        return compute_weights(self.attention_function, queries, keys, options)

    def expand(self, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the keys and values of all heads from the stored vectors.

        Args:
            keys: First halves of the stored vectors, of shape (B, 1, S, (rotary + latent) / 2).
            values: Second halves of the stored vectors.

        Returns:
            Keys, of shape (B, H, S, rotary size + value size), and values, (B, H, S, value size).
        """
        rotated, latent = self._split(torch.cat((keys, values), dim=-1))
        up = self.up_projection(latent.squeeze(1)).unflatten(-1, (self.num_heads, -1))
        plain, values = up.transpose(1, 2).chunk(2, dim=-1)  # (B, H, S, value size)
        return torch.cat((rotated.expand(-1, self.num_heads, -1, -1), plain), dim=-1), values

    def transform_queries(self, queries: Tensor, *, start: int) -> Tensor:
        """Rotate the first part of each query."""
        rotated, rest = self._split(queries)
        return torch.cat((super().transform_queries(rotated, start=start), rest), dim=-1)

    def transform_keys(self, keys: Tensor, *, start: int) -> Tensor:
        """Rotate the first part of what is stored."""
        rotated, rest = self._split(keys)
        return torch.cat((super().transform_keys(rotated, start=start), rest), dim=-1)

    def _split(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Split vectors into the rotated part and the rest."""
        return x[..., : self.rotary_size], x[..., self.rotary_size :]
