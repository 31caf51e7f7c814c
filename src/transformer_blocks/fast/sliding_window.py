"""Sliding-window attention: each position attends to the nearest positions, at linear cost.

In attention over a whole sequence, time grows with the square of the length. With a window, each
position attends to at most ``window`` positions up to its own ("Longformer", Beltagy et al. 2020,
https://arxiv.org/abs/2004.05150, section 3.1; "Mistral 7B", Jiang et al. 2023,
https://arxiv.org/abs/2310.06825, section 2), and time and memory grow linearly with the length, if
the scores of the other keys are not computed. With a mask, torch's fused kernel computes all scores
and then masks some. :class:`SlidingWindowAttention` passes the kernel a block of queries at a time,
with the keys in the windows of these queries.

``flex_attention``, torch's own way to leave out masked blocks, has no backward pass on a CPU and
must be compiled (torch 2.13).

Equals ``torch.nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=visible)``
with an L x S mask that is True in the window.
"""

import torch
from torch import Tensor, nn

from transformer_blocks._contracts import DropoutProbability, Mask, Size, checked, unchecked
from transformer_blocks.attention import KeyHeads, QueryHeads, ValueHeads, attention_weights
from transformer_blocks.fast.attention import fused_attention
from transformer_blocks.fast.caching import has_values
from transformer_blocks.fast.intervals import band_intervals

__all__ = ["SlidingWindowAttention"]

_fused_attention, _attention_weights = unchecked(fused_attention), unchecked(attention_weights)


class SlidingWindowAttention(nn.Module):
    """Attention of each position to the positions less than ``window`` away.

    The output is that of :func:`~transformer_blocks.fused_attention` with
    ``sliding_window_mask(L, S, window=window)``, but neither the scores outside of the windows nor
    the mask are computed. With ``causal=True``, a position attends to the last ``window``
    positions, itself included. The last query has the position of the last key: a decoding step
    with a cache attends to the last ``window`` keys, without a mask. The cache itself keeps all
    positions.

    Layers can have windows of different sizes, or none: pass the attention function to those that
    have one. The window suits self-attention; in cross-attention, the distance between positions of
    two sequences is not defined. In code that is compiled, all scores are computed, except those of
    a decoding step.

    Args:
        window: Window size, in positions: keys at a distance of ``window`` or more are masked. With
            1, a position attends only to itself.

    Raises:
        TypeError: If the window is not an integer.
        ValueError: If the window is not positive.

    Example:
        >>> import torch
        >>> from transformer_blocks import MultiHeadAttention, SlidingWindowAttention
        >>> attention = MultiHeadAttention(
        ...     16, num_heads=4, attention_function=SlidingWindowAttention(3)
        ... )
        >>> x = torch.randn(1, 10, 16)
        >>> before = attention(x, x, x, causal=True)
        >>> x[:, 0] += 1.0  # change the first token ...
        >>> changes = (attention(x, x, x, causal=True) - before).abs().amax(-1)[0] > 1e-5
        >>> changes.nonzero().flatten().tolist()  # ... the outputs of three positions change
        [0, 1, 2]
    """

    uses_positions = True

    @checked
    def __init__(self, window: Size) -> None:
        super().__init__()
        self.window = window

    @checked
    def forward(
        self,
        query: QueryHeads,
        key: KeyHeads,
        value: ValueHeads,
        *,
        mask: Mask | None = None,
        causal: bool = False,
        dropout: DropoutProbability = 0.0,
        scale: float | None = None,
    ) -> Tensor:
        """Compute attention within the windows.

        The arguments are those of :func:`~transformer_blocks.scaled_dot_product_attention`.

        Returns:
            The output, of shape (B, H, L, d_v).

        Raises:
            TypeError: If the dtypes differ, or ``mask`` is not boolean.
            ValueError: If the shapes do not fit, or ``dropout`` is out of range.
        """
        length, key_length = query.shape[2], key.shape[2]
        if length == 1:  # a decoding step
            key, value = key[:, :, -self.window :], value[:, :, -self.window :]
            mask = None if mask is None else mask[..., -self.window :]
        elif (
            torch.compiler.is_compiling()  # where lengths may be symbols
            or not has_values(query)
            or max(length, key_length) > self.window
        ):
            mask = self._add_window(query, key, mask)
        return _fused_attention(
            query, key, value, mask=mask, causal=causal, dropout=dropout, scale=scale
        )

    @checked
    def attention_weights(
        self,
        query: QueryHeads,
        key: KeyHeads,
        *,
        mask: Mask | None = None,
        causal: bool = False,
        scale: float | None = None,
    ) -> Tensor:
        """Compute the attention weights, those outside of the windows too, which are zero.

        The arguments are those of :func:`~transformer_blocks.attention_weights`.

        Returns:
            Attention weights, of shape (B, H, L, S).
        """
        mask = self._add_window(query, key, mask)
        return _attention_weights(query, key, mask=mask, causal=causal, scale=scale)

    def _add_window(self, query: Tensor, key: Tensor, mask: Tensor | None) -> Tensor:
        """Combine a mask with that of the window."""
        length, key_length = query.shape[2], key.shape[2]
        size = min(self.window, 2**40)  # as far as any position, and no sum overflows
        window = band_intervals(length, key_length, before=size, after=size, like=query)
        return window if mask is None else window | mask

    def extra_repr(self) -> str:
        """Show the window when the module is printed."""
        return f"window={self.window}"
