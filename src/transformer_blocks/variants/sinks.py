r"""Attention sinks: a learned logit for each head, which takes weight and gives no value.

A softmax must distribute a weight of one, also if no key matches the query. Trained language models
then put most of it on tokens of no meaning, usually the first one, an *attention sink* ("Efficient
Streaming Language Models with Attention Sinks", Xiao et al. 2023, https://arxiv.org/abs/2309.17453,
section 3.1). If the cache drops that token, as a sliding window does, the model fails. gpt-oss
(https://arxiv.org/abs/2508.10925, section 2.2) therefore gives each head h a learned logit
:math:`s_h`, which stands in the denominator like the score of one more key, whose value is zero:

.. math:: w_{ij} = \frac{e^{q_i k_j / \sqrt{d_k}}}
                       {e^{s_h} + \sum_{j'} e^{q_i k_{j'} / \sqrt{d_k}}}

So the weights of a query sum to less than one, and a head can attend to nothing. With
:math:`s_h = 0` this is "softmax one" ("Attention Is Off By One", Miller 2023,
https://www.evanmiller.org/attention-is-off-by-one.html).

``F.scaled_dot_product_attention`` has no argument for sinks, and returns no sum of exponentials
from which they could be added (torch 2.13). This implementation is explicit.

Next: :mod:`transformer_blocks.variants.gated_attention`, another way to attend to nothing.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks._contracts import Size, checked
from transformer_blocks.attention import attention_scores, masked_softmax
from transformer_blocks.masks import sliding_window_mask
from transformer_blocks.variants.explicit import ExplicitAttention


class SinkAttention(ExplicitAttention):
    """Scaled dot-product attention whose heads have a sink, and may have a sliding window.

    Recorded weights of a query sum to **less than one**: the rest is the weight of the sink. The
    sinks are the same for all queries, so that they suit every mask, cache and cross-attention.

    Args:
        num_heads: Number of heads H, each with its own sink.
        window: Window size as in :class:`~transformer_blocks.SlidingWindowAttention`; none if not
            given. gpt-oss has one in every other layer.

    Attributes:
        sinks: The logits of the sinks, of shape (H,); zero at first.

    Raises:
        ValueError: If a size is not positive.

    Example:
        >>> import torch
        >>> from transformer_blocks import MultiHeadAttention, SinkAttention
        >>> attention = MultiHeadAttention(16, num_heads=2, attention_function=SinkAttention(2))
        >>> x = torch.randn(1, 5, 16)
        >>> sums = attention.attention_weights(x, x).sum(dim=-1)
        >>> bool((sums < 1).all())  # the sink takes the rest
        True
    """

    @checked
    def __init__(self, num_heads: Size, *, window: Size | None = None) -> None:
        super().__init__()
        self.sinks = nn.Parameter(torch.zeros(num_heads))
        self.window, self.uses_positions = window, window is not None

    def attention_scores(self, query: Tensor, key: Tensor, scale: float | None) -> Tensor:
        """Compute the scores of equation 1.

        Args:
            query: Query vectors, of shape (B, H, L, d_k).
            key: Key vectors, of shape (B, H, S, d_k).
            scale: Factor of the dot products, not of the sinks; 1 / sqrt(d_k) if not given.

        Returns:
            Scores, of shape (B, H, L, S).

        Raises:
            ValueError: If the number of heads does not fit.
        """
        if query.shape[1] != len(self.sinks):
            raise ValueError(
                f"query must have shape (B, {len(self.sinks)}, L, d_k), got {tuple(query.shape)}"
            )
        return attention_scores(query, key, scale)

    def normalise(self, scores: Tensor, mask: Tensor | None) -> Tensor:
        """Compute the softmax over the keys and the sink, and leave out the sink.

        Args:
            scores: Scores, of shape (B, H, L, S).
            mask: Boolean mask; True hides. Broadcastable to (B, H, L, S).

        Returns:
            Weights, of shape (B, H, L, S).
        """
        if self.window is not None:
            size = scores.shape[-2:]
            window = sliding_window_mask(*size, window=self.window, device=scores.device)
            mask = window if mask is None else mask | window
        sinks = self.sinks.to(scores.dtype)[:, None, None].expand(*scores.shape[:3], 1)
        mask = None if mask is None else F.pad(mask, (0, 1))
        weights = masked_softmax(torch.cat((scores, sinks), dim=-1), mask)
        return weights[..., :-1]

    def extra_repr(self) -> str:
        """Show the window when the module is printed."""
        return "" if self.window is None else f"window={self.window}"
