r"""Dropout: faster random numbers on a CPU.

Equals ``torch.nn.functional.dropout(x, p)``; :mod:`transformer_blocks.feed_forward` explains it.

On a CPU, generating the random numbers dominates the cost of dropout: torch draws one for each
element, which takes an eighth of the time of a training step. :func:`apply_dropout` draws 64 random
bits at once and uses them for four elements, 16 bits each, which takes a third of the time.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks._contracts import Probability, checked, unchecked

__all__ = ["Dropout", "apply_dropout"]

LEVELS = 2**16
"""Number of values of 16 random bits; probabilities are rounded to multiples of 1 / LEVELS."""


@checked
def apply_dropout(x: Tensor, p: Probability) -> Tensor:
    """Set random elements to zero and scale the others by 1 / (1 - p), as in training.

    On a CPU, ``p`` is rounded to a multiple of 1 / 65,536; the scale uses the rounded value.
    The random numbers are torch's: ``torch.manual_seed`` makes them reproducible. On a GPU and in
    compiled code this is ``torch.nn.functional.dropout``.

    Args:
        x: Tensor of real or complex numbers, of any shape.
        p: Probability of setting an element to zero, from 0 to 1.

    Returns:
        Tensor of the shape and dtype of ``x``.

    Raises:
        TypeError: If ``p`` is not a number.
        ValueError: If ``p`` is out of range.

    Example:
        >>> import torch
        >>> from transformer_blocks.fast.dropout import apply_dropout
        >>> dropped = apply_dropout(torch.ones(100_000), 0.1)
        >>> dropped.unique()
        tensor([0.0000, 1.1111])
        >>> abs(float(dropped.mean()) - 1.0) < 0.01
        True
    """
    threshold = round(p * LEVELS)
    if x.device.type != "cpu" or torch.compiler.is_compiling() or not 0 < threshold < LEVELS:
        return F.dropout(x, p)
    draws = torch.randint(-(2**63), 2**63 - 1, (-(-x.numel() // 4),), device=x.device)
    try:
        random_bits = draws.view(torch.int16)  # -32768 to 32767
    except RuntimeError:  # torch 2.10 cannot do this in torch.vmap
        return F.dropout(x, p)
    keep_mask = random_bits[: x.numel()].view(x.shape) >= threshold - LEVELS // 2
    scale = LEVELS / (LEVELS - threshold)
    return (x * keep_mask).mul_(scale)  # for the backward pass, one byte per element is stored


_apply_dropout = unchecked(apply_dropout)


class Dropout(nn.Dropout):
    """``torch.nn.Dropout`` with faster random numbers on a CPU.

    It applies :func:`~transformer_blocks.fast.dropout.apply_dropout` in training mode.

    Args:
        p: Probability of setting an element to zero in training mode.
        inplace: Whether to change the input tensor in place; torch's own dropout is used then.

    Raises:
        TypeError: If an argument is of the wrong type.
        ValueError: If ``p`` is out of range.

    Example:
        >>> import torch
        >>> from transformer_blocks import Dropout
        >>> dropout = Dropout(0.1)
        >>> x = torch.ones(1000)
        >>> bool((dropout(x) == 0).any())
        True
        >>> torch.equal(dropout.eval()(x), x)  # in evaluation mode nothing is dropped
        True
    """

    @checked
    def __init__(self, p: Probability = 0.5, inplace: bool = False) -> None:
        super().__init__(p, inplace)

    def forward(self, input: Tensor) -> Tensor:  # noqa: D102  (torch's name of the argument)
        if not self.training:
            return input
        if self.inplace:
            return super().forward(input)
        return _apply_dropout(input, self.p)
