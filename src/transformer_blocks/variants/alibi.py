r"""Linear biases: looking far has its price.

The simplest way to tell a head how far away a word stands is to make it pay for the distance.
ALiBi ("Train Short, Test Long", Press et al. 2021, https://arxiv.org/abs/2108.12409, section 3)
adds nothing to the words at all; it takes from every score an amount that grows with the distance:

.. math:: \mathrm{softmax}\left(\frac{q_i k_j}{\sqrt{d_k}} - m_h\,|i - j|\right),
          \qquad m_h = 2^{-8h/H}, \quad h = 1, \ldots, H

The slope m is another for each head: from one that sees little but its neighbours to one that
hardly feels the distance. Nothing is learned. As the rule is as plain at distance 5,000 as at 5, a
model that has only seen short texts goes on well in longer ones; positions that were never added in
training cannot do that.

Next chapter: :mod:`transformer_blocks.variants.query_key_norm`, which bounds the scores.
"""

import math

import torch
from torch import Tensor

from transformer_blocks._checks import check_size
from transformer_blocks.attention import (
    attention_scores,
    check_inputs,
    combine_masks,
    masked_softmax,
)
from transformer_blocks.kernels import ExplicitAttention


def alibi_slopes(num_heads: int) -> Tensor:
    """List how much each head pays for a step of distance.

    Where H is a power of two, it is the formula above. Otherwise the slopes of the next lower power
    come first, then every other slope of the next higher one, as in the authors' program.

    Args:
        num_heads: H.

    Returns:
        Slopes, in float64. Shape (H,).

    Raises:
        ValueError: If ``num_heads`` is not positive.

    Example:
        >>> alibi_slopes(4).tolist()
        [0.25, 0.0625, 0.015625, 0.00390625]
    """
    check_size(num_heads=num_heads)
    lower = 2 ** int(math.log2(num_heads))  # the next power of two
    slopes = [2.0 ** (-8.0 * h / lower) for h in range(1, lower + 1)]
    slopes += [2.0 ** (-4.0 * h / lower) for h in range(1, 2 * lower, 2)]
    return torch.tensor(slopes[:num_heads], dtype=torch.float64, device="cpu")


class ALiBi(ExplicitAttention):
    """A kernel that takes from each score the distance, times a slope for each head.

    The last query stands where the last key stands, so it serves self-attention, causal or not, and
    decoding with a cache. Two sequences have no distance: it does not serve cross-attention. It
    holds a table of L x S weights for every head.

    Args:
        num_heads: H.

    Raises:
        ValueError: If ``num_heads`` is not positive.

    Example:
        >>> attention = MultiHeadAttention(16, num_heads=2, attention_function=ALiBi(2))
        >>> x = torch.zeros(1, 4, 16)  # where all words are alike ...
        >>> weights = attention.attention_weights(x, x, causal=True)[0, 0, -1]
        >>> bool((weights.diff() > 0).all())  # ... the nearer counts more
        True
    """

    def __init__(self, num_heads: int) -> None:
        check_size(num_heads=num_heads)
        super().__init__()
        self.num_heads = num_heads

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
        check_inputs(query, key, key, causal=causal, scale=scale)
        if query.shape[1] != self.num_heads:
            raise ValueError(
                f"query must have shape (B, {self.num_heads}, L, d_k), got {tuple(query.shape)}"
            )
        if query.shape[2] > key.shape[2]:
            raise ValueError(
                f"there must be no more queries than keys, got L={query.shape[2]} and "
                f"S={key.shape[2]}"
            )
        hidden = combine_masks(query, key, mask, causal)
        scores = attention_scores(query, key, scale)  # (B, H, L, S)
        return masked_softmax(scores - self._price(scores), hidden).to(query.dtype)

    def _price(self, scores: Tensor) -> Tensor:
        """Compute what each query pays for each key. Shape (H, L, S)."""
        length, key_length = scores.shape[-2:]
        place = torch.arange(key_length, device=scores.device)
        distance = (place[key_length - length :, None] - place).abs()  # (L, S)
        slopes = alibi_slopes(self.num_heads).to(scores.dtype).to(scores.device)
        return slopes[:, None, None] * distance

    def extra_repr(self) -> str:
        """Show the size when the module is printed."""
        return f"num_heads={self.num_heads}"
