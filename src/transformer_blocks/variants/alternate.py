"""Layers of several kinds: sliding windows beside full attention, and layers without positions.

All layers of the paper's stacks have the same parts. Most later language models alternate between
kinds of layers, of which the expensive kind is rare:

- **Sliding windows and full attention.** In gpt-oss, every other layer attends only to the last 128
  positions (https://arxiv.org/abs/2508.10925, section 2.2), in Gemma 3 five of six layers to the
  last 1024 (https://arxiv.org/abs/2503.19786, section 2). Information crosses longer distances in
  the layers between them.
- **Layers without positions.** A causal mask alone lets a stack distinguish positions ("The Impact
  of Positional Encoding on Length Generalization", Kazemnejad et al. 2023,
  https://arxiv.org/abs/2305.19466, section 2). "RoPE to NoPE and Back Again" (Yang et al. 2025,
  https://arxiv.org/abs/2501.18795, section 4) rotates in layers with a window and has no positions
  in those with full attention, which extrapolate to longer texts so.

A builder calls its factories once for each layer, from the first to the last. So a function that
returns another part at each call gives each layer its own kind.

Next: :mod:`transformer_blocks.variants.alibi`, positions as biases of the scores.
"""

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any, TypeVar

from torch import nn

from transformer_blocks._contracts import Factory, check

Part = TypeVar("Part", bound=nn.Module)


def alternate(*factories: Callable[[], Part]) -> Callable[[], Part]:
    """Return a factory that calls several factories in turn, over and over again.

    Args:
        factories: Functions without arguments that each return a new part. The first one makes the
            part of the first layer. To repeat a kind, pass it several times.

    Returns:
        A factory for one stack: it begins with the first kind, and its second stack would begin
        where the first one ended.

    Raises:
        TypeError: If nothing is passed, or one of them is a module instead of a function.

    Example:
        >>> import torch
        >>> from transformer_blocks import (
        ...     alternate,
        ...     build_encoder,
        ...     MultiHeadAttention,
        ...     RotaryPositionalEncoding,
        ...     SlidingWindowAttention,
        ... )
        >>> def near():  # rotary positions in a window ...
        ...     return MultiHeadAttention(
        ...         16,
        ...         4,
        ...         attention_function=SlidingWindowAttention(2),
        ...         transforms=[RotaryPositionalEncoding(4)],
        ...     )
        >>> def far():  # ... and full attention without positions
        ...     return MultiHeadAttention(16, 4)
        >>> windows = build_encoder(num_layers=2, d_model=16, attention=near).eval()
        >>> both = build_encoder(num_layers=2, d_model=16, attention=alternate(near, far)).eval()
        >>> x = torch.randn(1, 9, 16)
        >>> before = [model(x, causal=True)[0, -1] for model in (windows, both)]
        >>> x[:, 0] += 1.0  # the first token reaches the last one through the full attention only
        >>> after = [model(x, causal=True)[0, -1] for model in (windows, both)]
        >>> [torch.equal(*pair) for pair in zip(before, after)]
        [True, False]
    """
    if not factories:
        raise TypeError("factories must be at least one, got none")
    check(Sequence[Factory[Any]], factories=factories)
    kinds = cycle(factories)
    return lambda: next(kinds)()
