r"""ALiBi: positions as biases of the attention scores.

A simple way to make attention depend on distance is to subtract the distance from the scores. ALiBi
("attention with linear biases", from "Train Short, Test Long", Press et al. 2021,
https://arxiv.org/abs/2108.12409, section 3) adds no positional encoding to the embeddings. It
subtracts from each score a bias that is proportional to the distance between query and key:

.. math:: \mathrm{softmax}_j\left(\frac{q_i \cdot k_j}{\sqrt{d_k}} - m_h\,|i - j|\right),
          \qquad m_h = 2^{-8h/H}, \quad h = 1, \ldots, H

The slope :math:`m_h` differs between heads: a steep slope favours near positions strongly, a flat
one hardly. The slopes are not learned. The paper's models are causal language models, in which no
key comes after its query, so that :math:`|i - j| = i - j`. Attention without a causal mask is our
extension: the absolute value gives a key before the query and a key at the same distance after it
the same bias, so the bias does not show on which side of the query a key is.

The bias is defined at distance 5,000 as well as at 5. The paper reports that its models, trained on
short sequences, *extrapolate*: their perplexity does not rise on longer sequences (figure 1), while
that of models with sinusoidal or rotary positional encoding does. A model of 1.3 billion parameters
that was trained on sequences of 1,024 tokens reaches, on sequences of 2,048 tokens, the perplexity
of a sinusoidal model that was trained on 2,048.

How small models of this library compare is measured in chapter 21 of the book.

Next: :mod:`transformer_blocks.variants.relative_bias`, biases that are learned.
"""

import math

import torch
from torch import Tensor

from transformer_blocks._contracts import Size, checked
from transformer_blocks.variants.explicit import DistanceBias


@checked
def alibi_slopes(num_heads: Size) -> Tensor:
    """Compute the slope of each head.

    If H is a power of two, the slopes are those of the equation above. Otherwise, the slopes for
    the next lower power of two come first, then every other slope of the next higher one, as in the
    authors' implementation.

    Args:
        num_heads: Number of heads H.

    Returns:
        Slopes in float64, of shape (H,).

    Raises:
        ValueError: If ``num_heads`` is not positive.

    Example:
        >>> from transformer_blocks import alibi_slopes
        >>> alibi_slopes(4).tolist()
        [0.25, 0.0625, 0.015625, 0.00390625]
    """
    lower = 2 ** int(math.log2(num_heads))  # the largest power of two up to H
    slopes = [2.0 ** (-8.0 * h / lower) for h in range(1, lower + 1)]
    slopes += [2.0 ** (-4.0 * h / lower) for h in range(1, 2 * lower, 2)]
    return torch.tensor(slopes[:num_heads], dtype=torch.float64, device="cpu")


class ALiBi(DistanceBias):
    """Scaled dot-product attention with a bias for the distance between query and key.

    The last query has the position of the last key, so ALiBi works for self-attention, causal or
    not, and for decoding with a cache. Padding at the left of a sequence changes no distance
    between its tokens, and no score. ALiBi does not suit cross-attention, as the distance between
    positions of two sequences is not defined. It stores the L x S attention weights of every head.

    Args:
        num_heads: Number of heads H, each with its own slope.

    Raises:
        ValueError: If ``num_heads`` is not positive.

    Example:
        >>> import torch
        >>> from transformer_blocks import ALiBi, MultiHeadAttention
        >>> attention = MultiHeadAttention(16, num_heads=2, attention_function=ALiBi(2))
        >>> x = torch.zeros(1, 4, 16)  # where all tokens are equal ...
        >>> weights = attention.attention_weights(x, x, causal=True)[0, 0, -1]
        >>> bool((weights.diff() > 0).all())  # ... nearer ones get larger weights
        True
    """

    @checked
    def __init__(self, num_heads: Size) -> None:
        super().__init__()
        self.num_heads = num_heads

    def biases(self, distance: Tensor, dtype: torch.dtype) -> Tensor:
        """Multiply each distance by the slope of each head.

        Args:
            distance: Position of the key minus position of the query, int64, of shape (L, S).
            dtype: The dtype of the scores.

        Returns:
            Biases, which are negative, of shape (H, L, S).
        """
        slopes = alibi_slopes(self.num_heads).to(dtype).to(distance.device)
        return -slopes[:, None, None] * distance.abs()

    def extra_repr(self) -> str:
        """Show the number of heads when the module is printed."""
        return f"num_heads={self.num_heads}"
