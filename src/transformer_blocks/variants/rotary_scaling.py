r"""Scaled rotary frequencies: slower rotations for sequences longer than those of the training.

A model with rotary positional encoding (:mod:`transformer_blocks.variants.rotary`) that was trained
on sequences of up to L positions was not trained with the rotations of larger distances. *Position
interpolation* ("Extending Context Window of Large Language Models via Positional Interpolation",
Chen et al. 2023, https://arxiv.org/abs/2306.15595, section 2.3) divides all positions by a factor
s, so that s L positions lie in the range of the training. Dividing a position is the same as
dividing the frequencies:

.. math:: \theta'_i = \theta_i / s

The model is then fine-tuned on longer sequences, as its rotations have changed. All of them are
slower, also the fast ones, by which neighbouring positions are distinguished. Llama 3.1 therefore
divides only the slow frequencies. A pair with frequency :math:`\theta_i` completes a turn after a
wavelength of :math:`\lambda_i = 2\pi / \theta_i` positions. A pair that makes at least h turns
within L positions keeps its frequency, a pair that makes at most l turns has it divided by s, and
between the two the frequency is interpolated:

.. math::

   \theta'_i = (1 - g_i)\,\frac{\theta_i}{s} + g_i\,\theta_i, \qquad
   g_i = \mathrm{clip}\left(\frac{L / \lambda_i - l}{h - l}, 0, 1\right)

The formula is that of "YaRN" (Peng et al. 2023, https://arxiv.org/abs/2309.00071, section 3.2,
"NTK-by-parts" interpolation), which has l = 1 and h = 32 for the LLaMA models. Llama 3.1 has l = 1
and h = 4, in its published code; "The Llama 3 Herd of Models" (https://arxiv.org/abs/2407.21783,
section 3.4.2) describes the training on longer sequences, not the formula.

Next: :mod:`transformer_blocks.variants.alibi`, positions as biases of the scores.
"""

import math
from dataclasses import dataclass
from typing import Annotated

from torch import Tensor

from transformer_blocks._contracts import Size, at_least, checked

Factor = Annotated[float, at_least(1)]


@checked
@dataclass(frozen=True)
class PositionInterpolation:
    """Divide all rotary frequencies by a factor.

    Args:
        factor: The factor s, at least 1: the new context length divided by that of the training.

    Raises:
        TypeError: If ``factor`` is not a number.
        ValueError: If ``factor`` is below 1 or infinite.

    Example:
        >>> import torch
        >>> from transformer_blocks import PositionInterpolation, RotaryPositionalEncoding
        >>> rotary = RotaryPositionalEncoding(d_k=8)
        >>> slower = RotaryPositionalEncoding(d_k=8, scaling=PositionInterpolation(2.0))
        >>> x = torch.randn(1, 1, 1, 8)
        >>> tenth, fifth = slower.transform_keys(x, start=10), rotary.transform_keys(x, start=5)
        >>> torch.allclose(tenth, fifth, atol=1e-6)  # position 10 is rotated as position 5 was
        True
    """

    factor: Factor

    def __call__(self, frequencies: Tensor) -> Tensor:
        """Divide frequencies, in radians per position, of shape (d_k / 2,), by the factor."""
        return frequencies / self.factor


@checked
@dataclass(frozen=True)
class Llama3Scaling:
    """Divide the slow rotary frequencies by a factor, keep the fast ones, as Llama 3.1 does.

    Args:
        factor: The factor s, at least 1, by which the slow frequencies are divided. Llama 3.1 has
            8, Llama 3.2 has 32.
        length: The context length L of the model before scaling, in positions; 8192 in Llama 3.1.
        low: Number of turns l within ``length`` up to which a frequency is divided by ``factor``.
            The default is Llama 3.1's.
        high: Number of turns h within ``length`` from which a frequency is kept; above ``low``. The
            default is Llama 3.1's.

    Raises:
        TypeError: If an argument is not a number, or ``length`` not an integer.
        ValueError: If an argument is out of range.

    Example:
        >>> import torch
        >>> from transformer_blocks import Llama3Scaling
        >>> scaling = Llama3Scaling(8.0, length=100)
        >>> turns = torch.tensor([0.5, 2.5, 40.0])  # within 100 positions
        >>> frequencies = 2 * torch.pi * turns / 100
        >>> frequencies / scaling(frequencies)  # slow: divided by 8; fast: kept
        tensor([8.0000, 1.7778, 1.0000])
    """

    factor: Factor
    length: Size
    low: float = 1.0
    high: float = 4.0

    def __post_init__(self) -> None:
        if not 0.0 < self.low < self.high:
            raise ValueError(
                f"low must be above 0 and below high, got low={self.low} and high={self.high}"
            )

    def __call__(self, frequencies: Tensor) -> Tensor:
        """Scale frequencies, in radians per position, of shape (d_k / 2,)."""
        turns = self.length * frequencies / (2 * math.pi)
        kept = ((turns - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
        return (1.0 - kept) * frequencies / self.factor + kept * frequencies
