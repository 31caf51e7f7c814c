r"""Relative position bias: a learned bias of the scores for each distance.

ALiBi (:mod:`transformer_blocks.variants.alibi`) prescribes how attention falls with the distance.
T5 ("Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer", Raffel et
al. 2020, https://arxiv.org/abs/1910.10683, section 2.1) learns it: each head h adds a learned
number to the score of a query i and a key j, which depends on their signed distance j - i alone,

.. math:: \mathrm{softmax}_j\left(\frac{q_i \cdot k_j}{\sqrt{d_k}} + b_{h,\,\beta(j - i)}\right)

The function :math:`\beta` assigns a *bucket* to each distance, and the distances of a bucket share
one number. Short distances have a bucket each. Longer ones share buckets, whose boundaries are
evenly spaced on a logarithmic scale up to the maximum distance M; all distances beyond are in the
last bucket. With n buckets for one direction, of which the first e = n // 2 hold a single distance,
the bucket of the distance d is

.. math:: \beta(d) = \begin{cases} d & \text{if } d < e \\
          \min\left(n - 1,\; e + \left\lfloor \frac{\ln(d / e)}{\ln(M / e)}\,(n - e) \right\rfloor
          \right) & \text{otherwise} \end{cases}

In an encoder, keys before and after the query have half of the buckets each. In a causal decoder,
no key comes after its query, so all buckets are for keys before it. Nothing is added to the
embeddings. A layer cannot distinguish two keys in the last bucket by their positions; several
layers together can.

In T5, all layers of a stack share one table of biases: one ``RelativeBias`` object is the
``attention_function`` of every layer. T5 also omits the factor 1 / sqrt(d_k): pass ``scale=1.0``.

Only the biases of distances that occur in training are trained. If the maximum distance is below
the length of the training sequences, every distance of a longer sequence has a trained bias. That
is not enough for much longer sequences, as chapter 21 of the book measures.

Next: :mod:`transformer_blocks.variants.query_key_norm`, which bounds the scores.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks._contracts import Size, checked
from transformer_blocks.variants.explicit import DistanceBias


class RelativeBias(DistanceBias):
    """Scaled dot-product attention with a learned bias for the distance between query and key.

    The last query has the position of the last key, so it works for self-attention, and for
    decoding with a cache. Padding at the left of a sequence changes no distance between its tokens,
    and no score. It does not suit cross-attention, as the distance between positions of two
    sequences is not defined. It stores the L x S attention weights of every head.

    The parameter ``weight``, of shape (num_buckets, H), has the layout of T5's. Its initial values
    have a standard deviation of 0.02, so that at first all distances count almost equally.

    Args:
        num_heads: Number of heads H, each with biases of its own.
        num_buckets: Number of biases of each head; at least 2, or an even number of at least 4 if
            ``bidirectional``.
        max_distance: The maximum distance M of the equation above, greater than the number e of
            buckets of single distances. All distances from M on are in the last bucket of their
            direction, which begins before M: at 91 with the defaults, which are T5's.
        bidirectional: Whether half of the buckets are for keys after the query, as in an encoder.
            If not, as in a causal decoder, keys after the query have the bucket of the distance 0.
        scale: Factor of the dot products, where a call gives none; 1 / sqrt(d_k) if not given.

    Raises:
        TypeError: If ``bidirectional`` is not True or False, or ``scale`` is not a number.
        ValueError: If a size is not positive, or ``num_buckets`` or ``max_distance`` is too small.

    Example:
        >>> import torch
        >>> from transformer_blocks import MultiHeadAttention, RelativeBias
        >>> bias = RelativeBias(num_heads=2)
        >>> attention = MultiHeadAttention(16, num_heads=2, attention_function=bias)
        >>> x = torch.zeros(1, 4, 16)  # where all tokens are equal ...
        >>> with torch.no_grad():
        ...     _ = bias.weight.zero_()[17].fill_(9.0)  # ... and the bias prefers the next one
        >>> attention.attention_weights(x, x)[0, 0].argmax(dim=-1)[:3]
        tensor([1, 2, 3])
    """

    @checked
    def __init__(
        self,
        num_heads: Size,
        *,
        num_buckets: Size = 32,
        max_distance: Size = 128,
        bidirectional: bool = True,
        scale: float | None = None,
    ) -> None:
        directions = 2 if bidirectional else 1
        if num_buckets < 2 * directions or num_buckets % directions:
            rule = "an even number of at least 4" if bidirectional else "at least 2"
            raise ValueError(f"num_buckets must be {rule}, got num_buckets={num_buckets}")
        exact = num_buckets // directions // 2
        if max_distance <= exact:
            rule = f"max_distance must exceed the {exact} buckets of single distances"
            raise ValueError(f"{rule}, got max_distance={max_distance}")
        super().__init__()
        self.max_distance, self.bidirectional, self.scale = max_distance, bidirectional, scale
        self.weight = nn.Parameter(torch.empty(num_buckets, num_heads))
        nn.init.normal_(self.weight, std=0.02)

    def _buckets(self, distance: Tensor) -> Tensor:
        """Compute the index of the row of ``weight`` for each distance, from query to key."""
        count = self.weight.shape[0] // (2 if self.bidirectional else 1)  # of one direction
        exact = count // 2
        # The equation above, solved for the smallest distance of each bucket: a logarithm of
        # tensors may be rounded to another bucket on another device.
        ratio, wide = self.max_distance / exact, count - exact
        first = [exact * ratio ** (number / wide) for number in range(1, wide)]
        starts = [*range(1, exact + 1), *(math.ceil(round(each, 6)) for each in first)]
        boundaries = torch.tensor(starts, device="cpu").to(distance.device)
        if not self.bidirectional:
            distance = distance.clamp_max(0)  # keys after the query have the bucket of distance 0
        return torch.bucketize(distance.abs(), boundaries, right=True) + count * (distance > 0)

    def attention_scores(self, query: Tensor, key: Tensor, scale: float | None) -> Tensor:
        """Compute the scores of equation 1 and add the bias.

        Args:
            query: Query vectors, of shape (B, H, L, d_k).
            key: Key vectors, of shape (B, H, S, d_k).
            scale: Factor of the dot products, not of the bias; that of the constructor if None.

        Returns:
            Scores, of shape (B, H, L, S).

        Raises:
            ValueError: If the number of heads does not fit, or there are more queries than keys.
        """
        return super().attention_scores(query, key, self.scale if scale is None else scale)

    def biases(self, distance: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the learned bias of each distance.

        Args:
            distance: Position of the key minus position of the query, int64, of shape (L, S).
            dtype: The dtype of the scores; not used.

        Returns:
            Biases, of shape (H, L, S).
        """
        return F.embedding(self._buckets(distance), self.weight).permute(2, 0, 1)

    def extra_repr(self) -> str:
        """Show the arguments when the module is printed."""
        num_buckets, num_heads = self.weight.shape
        sizes = f"{num_heads=}, {num_buckets=}, max_distance={self.max_distance}"
        return f"{sizes}, bidirectional={self.bidirectional}, scale={self.scale}"
