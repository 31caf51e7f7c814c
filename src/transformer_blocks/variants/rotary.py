r"""Rotary positions: turn queries and keys, so that their match knows the distance.

Waves that are added to the words (:mod:`transformer_blocks.embedding`) are mixed with the meaning
and must be disentangled by every layer. Rotary positions ("RoFormer", Su et al. 2021,
https://arxiv.org/abs/2104.09864, section 3.2.2) leave the words alone. Take the numbers of a query
two by two, as points of a plane, and turn each point by an angle that grows with the position m; do
the same with the keys:

.. math::

   \begin{pmatrix} q'_{2i} \\ q'_{2i+1} \end{pmatrix} =
   \begin{pmatrix} \cos m\theta_i & -\sin m\theta_i \\ \sin m\theta_i & \cos m\theta_i
   \end{pmatrix} \begin{pmatrix} q_{2i} \\ q_{2i+1} \end{pmatrix},
   \qquad \theta_i = 10000^{-2i/d_k}

Two turned vectors have the dot product of the unturned ones, turned by the *difference* of their
angles. So a score depends on how far apart two words stand and on nothing else, whatever their
positions; the first plane tells neighbours apart, the last one chapters.

Values are not turned: what a word hands over is the same wherever it stands.

Next chapter: :mod:`transformer_blocks.variants.alibi`, positions as biases of the scores.
"""

import torch
from torch import Tensor

from transformer_blocks._checks import check_number, check_size
from transformer_blocks.attention import check_inputs, fused_attention
from transformer_blocks.kernels import AttentionFunction, PreparingKernel


class RotaryPositionalEncoding(PreparingKernel):
    """A kernel that turns queries and keys by their positions, then leaves the rest to another.

    Nothing is learned, and no length is the longest. The last query stands where the last key
    stands, so it serves self-attention, and decoding with a cache; a cache holds keys as they were
    before they are turned. Two sequences have no distance: it does not serve cross-attention.

    Args:
        d_k: Width of a head; even.
        base: The slowest plane turns about this many times slower than the fastest.
        attention_function: What computes attention with the turned queries and keys.

    Raises:
        TypeError: If ``base`` is not a number, or ``attention_function`` is a class.
        ValueError: If ``d_k`` is not positive and even, or ``base`` not positive.

    Example:
        >>> rotary = RotaryPositionalEncoding(d_k=4)
        >>> attention = MultiHeadAttention(16, num_heads=4, attention_function=rotary)
        >>> x = torch.randn(1, 1, 16).repeat(1, 6, 1)  # the same word six times:
        >>> scores = attention.attention_weights(x, x).log()[0, 0]
        >>> nearer = scores[2, 1] - scores[2, 0]  # one step back against two ...
        >>> torch.allclose(nearer, scores[5, 4] - scores[5, 3], atol=1e-5)  # ... is so everywhere
        True
    """

    def __init__(
        self,
        d_k: int,
        *,
        base: float = 10000.0,
        attention_function: AttentionFunction = fused_attention,
    ) -> None:
        check_size(d_k=d_k)
        check_number(base=base)
        if d_k % 2:
            raise ValueError(f"d_k must be even, got d_k={d_k}")
        if not base > 0.0:
            raise ValueError(f"base must be positive, got base={base}")
        super().__init__(attention_function)
        self.d_k, self.base = d_k, base

    def prepare(self, query: Tensor, key: Tensor) -> tuple[Tensor, Tensor]:
        """Turn each vector by its position.

        Args:
            query: Shape (B, H, L, d_k); its last position is that of the last key.
            key: Shape (B, H, S, d_k).

        Returns:
            Both, turned.

        Raises:
            ValueError: If their width is another, or there are more queries than keys.
        """
        check_inputs(query, key, key)
        length, key_length = query.shape[-2], key.shape[-2]
        if query.shape[-1] != self.d_k or key.shape[-1] != self.d_k or length > key_length:
            raise ValueError(
                f"query and key must have shapes (B, H, L, {self.d_k}) and (B, H, S, {self.d_k}) "
                f"with L <= S, got {tuple(query.shape)} and {tuple(key.shape)}"
            )
        dtype = torch.promote_types(key.dtype, torch.float32)  # bfloat16 cannot count to 257
        position = torch.arange(key_length, dtype=dtype, device=key.device)
        even = torch.arange(0, self.d_k, 2, dtype=dtype, device=key.device)  # 2i
        angle = position[:, None] * self.base ** (-even / self.d_k)  # (S, d_k / 2)
        cosine, sine = angle.cos().to(key.dtype), angle.sin().to(key.dtype)
        start = key_length - length
        return _turn(query, cosine[start:], sine[start:]), _turn(key, cosine, sine)

    def extra_repr(self) -> str:
        """Show the sizes when the module is printed."""
        return f"d_k={self.d_k}, base={self.base}"


def _turn(x: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Turn the points (x[2i], x[2i + 1]) of the planes. Shape (B, H, L, d_k)."""
    across, up = x.unflatten(-1, (-1, 2)).unbind(-1)  # (B, H, L, d_k / 2)
    turned = across * cosine - up * sine, across * sine + up * cosine
    return torch.stack(turned, dim=-1).flatten(-2)
