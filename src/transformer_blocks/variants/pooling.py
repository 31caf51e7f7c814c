r"""Pooling: reduce the vectors of a sequence to one vector.

An encoder returns a vector for each position. A model that classifies whole sequences, or compares
them, has no decoder to read these vectors: a *pooling* in its place reduces them to one vector.
Each of the three here is the mean over some of the positions of a sequence, and padding is never
one of them:

- :func:`mean_pool`, over all positions. "Sentence-BERT" compares sentences by it, and finds it
  better than [CLS] (Reimers and Gurevych 2019, https://arxiv.org/abs/1908.10084, section 6).
- :func:`first_pool`, the first position alone. BERT puts a token [CLS] there, which has no content
  of its own ("BERT", Devlin et al. 2018, https://arxiv.org/abs/1810.04805, section 3).
- :func:`last_pool`, the last position alone. With causal attention, it is the only one that attends
  to the whole sequence ("Improving Language Understanding by Generative Pre-Training", Radford et
  al. 2018, section 3.2).

The mask is the one that the encoder takes, of :func:`~transformer_blocks.padding_mask` or
:func:`~transformer_blocks.length_mask`, with padding at either side. A fully masked sequence has
the vector zero, and finite gradients. Vectors at masked positions affect nothing, NaN included.

Next: :mod:`transformer_blocks.variants.lora`, which fine-tunes a model by training few weights.
"""

from typing import Annotated

import torch
from torch import Tensor

from transformer_blocks._contracts import Mask, Vectors, checked

Sequences = Annotated[Tensor, Vectors("B S d_model")]


@checked
def mean_pool(x: Sequences, *, mask: Mask | None = None) -> Tensor:
    """Compute the mean of the vectors of each sequence, without its padding.

    Args:
        x: Batch of sequences of vectors, of shape (B, S, d_model).
        mask: Padding mask, of shape (B|1, 1, 1, S); True hides. Nothing is masked if not given.

    Returns:
        One vector for each sequence, of shape (B, d_model).

    Raises:
        TypeError: If ``x`` is not a floating-point tensor, or ``mask`` is not boolean.
        ValueError: If shapes do not fit.

    Example:
        >>> import torch
        >>> from transformer_blocks import length_mask, mean_pool
        >>> x = torch.randn(1, 3, 16)
        >>> padded = torch.cat([x, torch.randn(1, 2, 16)], dim=1)
        >>> pooled = mean_pool(padded, mask=length_mask(torch.tensor([3]), 5))
        >>> torch.allclose(pooled, x.mean(dim=1), atol=1e-6)  # padding has no effect
        True
    """
    return _average(x, _padding(x, mask))


@checked
def first_pool(x: Sequences, *, mask: Mask | None = None) -> Tensor:
    """Select the first vector of each sequence, after padding at the left if there is any.

    The arguments, the result and the errors are those of :func:`mean_pool`.

    Example:
        >>> import torch
        >>> from transformer_blocks import first_pool, padding_mask
        >>> x, tokens = torch.randn(2, 3, 16), torch.tensor([[7, 8, 9], [0, 5, 6]])
        >>> pooled = first_pool(x, mask=padding_mask(tokens))
        >>> torch.equal(pooled, torch.stack([x[0, 0], x[1, 1]]))
        True
    """
    padding = _padding(x, mask)
    return _average(x, padding | (_numbers(padding) != 1))


@checked
def last_pool(x: Sequences, *, mask: Mask | None = None) -> Tensor:
    """Select the last vector of each sequence, before padding at the right if there is any.

    The arguments, the result and the errors are those of :func:`mean_pool`.

    Example:
        >>> import torch
        >>> from transformer_blocks import last_pool, padding_mask
        >>> x, tokens = torch.randn(2, 3, 16), torch.tensor([[7, 8, 9], [5, 0, 0]])
        >>> pooled = last_pool(x, mask=padding_mask(tokens))
        >>> torch.equal(pooled, torch.stack([x[0, 2], x[1, 0]]))
        True
    """
    padding = _padding(x, mask)
    numbers = _numbers(padding)
    return _average(x, padding | (numbers != numbers[:, -1:]))


def _padding(x: Tensor, mask: Tensor | None) -> Tensor:
    """Return a padding mask of shape (B, S)."""
    if mask is None:
        return x.new_zeros(x.shape[:2], dtype=torch.bool)
    return mask.expand(x.shape[0], 1, 1, -1)[:, 0, 0]


def _numbers(padding: Tensor) -> Tensor:
    """Number the real positions of each sequence 1, 2, 3 and so on: (B, S)."""
    return (1 - padding.int()).cumsum(1)


def _average(x: Tensor, mask: Tensor) -> Tensor:
    """Compute the mean of the vectors that a mask does not hide, or zero: (B, d_model)."""
    count = (x.shape[1] - mask.sum(1)).clamp(min=1)[:, None, None]
    return (x.masked_fill(mask[:, :, None], 0.0) / count).sum(1)  # a sum could overflow in float16
