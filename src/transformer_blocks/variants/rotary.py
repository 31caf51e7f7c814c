r"""Rotary positional encoding: rotate queries and keys by their positions.

A positional encoding that is added to the embeddings (:mod:`transformer_blocks.embedding`) puts
position and content into one vector, from which every layer projects both. Rotary positional
encoding (RoPE, "RoFormer", Su et al. 2021, https://arxiv.org/abs/2104.09864, section 3.2.2) leaves
the embeddings unchanged. It takes the elements of a query in pairs, as points of a plane, and
rotates each point by an angle proportional to the position m; and likewise the keys:

.. math::

   \begin{pmatrix} q'_{2i} \\ q'_{2i+1} \end{pmatrix} =
   \begin{pmatrix} \cos m\theta_i & -\sin m\theta_i \\ \sin m\theta_i & \cos m\theta_i
   \end{pmatrix} \begin{pmatrix} q_{2i} \\ q_{2i+1} \end{pmatrix},
   \qquad \theta_i = 10000^{-2i/d_k}

A rotation by :math:`m\theta` followed by the reverse of a rotation by :math:`n\theta` is a rotation
by :math:`(m - n)\theta`. So the score of a query at position m and a key at position n depends on
their content and on the *signed offset* m - n, not on m and n themselves. The sign matters: the key
three positions before a query and the same key three positions after it have different scores, in
general. The first pair of elements rotates fastest, by one radian per position, and distinguishes
neighbouring positions. Its rotations repeat after :math:`2\pi` positions, so distant positions are
distinguished by the later, slower pairs.

Padding at the left of a sequence increases all its positions by the same number, and changes no
score. Prompts of unequal length can therefore be decoded in one batch with the positions of the
padded sequence, if the padding is masked (:func:`~transformer_blocks.generation.left_pad`).

Values are not rotated: they carry content, not positions.

**Partial rotary positions.** A pair that rotates says where a token is, and says less about what it
is. GPT-NeoX (Black et al. 2022, https://arxiv.org/abs/2204.06745, section 2.1) rotates only the
first elements of each query and key, a quarter of them, and leaves the others without position.
Some models leave whole layers without positions (:mod:`transformer_blocks.variants.alternate`).

Which elements form a pair is a convention. The equation, the paper and this class pair neighbours;
many published models pair element i with element i + d_k / 2. Both give the same scores if the rows
of the query and key projections are reordered accordingly.

Next: :mod:`transformer_blocks.variants.rotary_scaling`, slower rotations for longer sequences.
"""

from collections.abc import Callable
from typing import Annotated

import torch
from torch import Tensor

from transformer_blocks._contracts import Count, Function, Size, Vectors, at_least, checked
from transformer_blocks.multi_head import QueryKeyTransform


class RotaryPositionalEncoding(QueryKeyTransform):
    r"""A transform that rotates queries and keys by their positions.

    It has no parameters. Angles are computed in float32 at least, as in published models: the angle
    at position p is off by up to p / 2^24 radians. That there is no maximum length does not mean
    that a trained model works at lengths beyond those of its training (chapter 21 of the book).

    The last query has the position of the last key, so the transform works for self-attention, and
    for decoding with a cache, which stores the rotated keys. It does not suit cross-attention, as
    the offset between positions of two sequences is not defined.

    Args:
        d_k: Size of the queries and keys of one head; even.
        base: The base of the frequencies, 10000 in the equation above. The larger it is, the slower
            the last pairs of elements rotate.
        scaling: Function from the frequencies :math:`\theta_i`, of shape (rotated / 2,), to those
            that are used; for example a :class:`~transformer_blocks.PositionInterpolation`. If it
            has an attribute ``attention_factor``, as :class:`~transformer_blocks.YarnScaling` has,
            the rotated queries and keys are each multiplied by it.
        rotated: Number of elements of a query or key that are rotated, the first ones, which takes
            the place of d_k in the equation; even, and all d_k if not given.

    Raises:
        TypeError: If ``base`` is not a number, or ``scaling`` cannot be called.
        ValueError: If ``d_k`` or ``rotated`` is not positive and even, ``rotated`` exceeds ``d_k``,
            or ``base`` is below 1 or infinite.

    Example:
        >>> import torch
        >>> from transformer_blocks import MultiHeadAttention, RotaryPositionalEncoding
        >>> rotary = RotaryPositionalEncoding(d_k=4)
        >>> attention = MultiHeadAttention(16, num_heads=4, transforms=[rotary])
        >>> x = torch.randn(1, 1, 16).repeat(1, 6, 1)  # the same token six times
        >>> scores = attention.attention_weights(x, x).log()[0, 0]
        >>> difference = scores[2, 1] - scores[2, 0]  # offset 1 compared with offset 2 ...
        >>> torch.allclose(difference, scores[5, 4] - scores[5, 3], atol=1e-5)  # ... is the same
        True
        >>> difference = scores[2, 3] - scores[2, 4]  # offsets -1 and -2: the sign matters
        >>> torch.allclose(difference, scores[5, 4] - scores[5, 3], atol=1e-5)
        False
    """

    uses_positions = True

    @checked
    def __init__(
        self,
        d_k: Size,
        *,
        base: Annotated[float, at_least(1)] = 10000.0,
        scaling: Function[Callable[[Tensor], Tensor]] | None = None,
        rotated: Size | None = None,
    ) -> None:
        if d_k % 2:
            raise ValueError(f"d_k must be even, got d_k={d_k}")
        size = d_k if rotated is None else rotated
        if size % 2 or size > d_k:
            raise ValueError(f"rotated must be even and at most d_k={d_k}, got rotated={rotated}")
        super().__init__()
        self.d_k, self.base, self.scaling, self.rotated = d_k, base, scaling, size

    @checked
    def transform_queries(
        self, queries: Annotated[Tensor, Vectors("B H L d_k")], *, start: Count
    ) -> Tensor:
        """Rotate queries by their positions.

        Args:
            queries: Query vectors, of shape (B, H, L, d_k).
            start: Position of the first query.

        Returns:
            The rotated queries, of the same shape.

        Raises:
            TypeError: If ``queries`` is not a floating-point tensor, or ``start`` not an integer.
            ValueError: If the shape does not fit, or ``start`` is negative, which it is if there
                are more queries than keys.
        """
        return self._rotate(queries, start)

    @checked
    def transform_keys(
        self, keys: Annotated[Tensor, Vectors("B H S d_k")], *, start: Count
    ) -> Tensor:
        """Rotate keys by their positions.

        Args:
            keys: Key vectors, of shape (B, H, S, d_k).
            start: Position of the first key.

        Returns:
            The rotated keys, of the same shape.

        Raises:
            TypeError: If ``keys`` is not a floating-point tensor, or ``start`` not an integer.
            ValueError: If the shape does not fit, or ``start`` is negative.
        """
        return self._rotate(keys, start)

    def _rotate(self, x: Tensor, start: Count) -> Tensor:
        """Rotate the pairs (x[2i], x[2i + 1]) of vectors of shape (B, H, L, d_k)."""
        dtype = torch.promote_types(x.dtype, torch.float32)  # bfloat16 cannot represent 257
        position = torch.arange(start, start + x.shape[2], dtype=dtype, device=x.device)
        angle = position[:, None] * self.frequencies(position)  # (L, rotated / 2)
        factor = getattr(self.scaling, "attention_factor", 1.0)
        cosine, sine = (factor * angle.cos()).to(x.dtype), (factor * angle.sin()).to(x.dtype)
        first, second = x[..., : self.rotated].unflatten(-1, (-1, 2)).unbind(-1)
        rotated = first * cosine - second * sine, first * sine + second * cosine
        together = torch.stack(rotated, dim=-1).flatten(-2)  # (B, H, L, rotated)
        rest = x[..., self.rotated :]
        return torch.cat((together, rest), dim=-1) if self.rotated < self.d_k else together

    def frequencies(self, like: Tensor) -> Tensor:
        """Compute the scaled frequencies, of shape (rotated / 2,), with the dtype of a tensor."""
        even = torch.arange(0, self.rotated, 2, dtype=like.dtype, device=like.device)  # 2i
        frequency = self.base ** (-even / self.rotated)
        return frequency if self.scaling is None else self.scaling(frequency)

    def extra_repr(self) -> str:
        """Show the sizes when the module is printed."""
        scaling = "" if self.scaling is None else f", scaling={self.scaling}"
        rotated = "" if self.rotated == self.d_k else f", rotated={self.rotated}"
        return f"d_k={self.d_k}, base={self.base}{scaling}{rotated}"
