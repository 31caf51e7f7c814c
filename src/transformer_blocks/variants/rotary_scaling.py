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
"NTK-by-parts" interpolation). Llama 3.1 has l = 1 and h = 4, in its published code; "The Llama 3
Herd of Models" (https://arxiv.org/abs/2407.21783, section 3.4.2) describes the training on longer
sequences, not the formula.

**YaRN** has l = 1 and h = 32 for the LLaMA models, and a second part (section 3.3): all scores are
multiplied by :math:`(0.1 \ln s + 1)^2`, since the softmax over more keys is flatter. In its
published code, which gpt-oss and DeepSeek-V3 follow, :math:`g_i` falls linearly with the number i
of the pair, from the pair with h turns to the pair with l turns, and not with the number of turns.

Next: :mod:`transformer_blocks.variants.alternate`, layers with other positions, or none.
"""

import math
from dataclasses import dataclass
from typing import Annotated

import torch
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
        _check_turns(self.low, self.high)

    def __call__(self, frequencies: Tensor) -> Tensor:
        """Scale frequencies, in radians per position, of shape (d_k / 2,)."""
        turns = self.length * frequencies / (2 * math.pi)
        kept = ((turns - self.low) / (self.high - self.low)).clamp(0.0, 1.0)
        return (1.0 - kept) * frequencies / self.factor + kept * frequencies


@checked
@dataclass(frozen=True)
class YarnScaling:
    """Divide the slow rotary frequencies by a factor, and sharpen the softmax, as YaRN does.

    Args:
        factor: The factor s, at least 1, by which the slow frequencies are divided; gpt-oss has 32,
            DeepSeek-V3 has 40.
        length: The context length L of the model before scaling, in positions; 4096 in both.
        low: Number of turns l within ``length`` up to which a frequency is divided by ``factor``.
        high: Number of turns h within ``length`` from which a frequency is kept; above ``low``.
        truncate: Whether the numbers of the two pairs with h and l turns are rounded, outwards, to
            whole numbers, as in the authors' code; gpt-oss does not round them.
        attention_factor: What queries and keys are each multiplied by, where they are rotated;
            0.1 ln s + 1 if not given. In a :class:`~transformer_blocks.RotaryPositionalEncoding`
            that rotates all elements, the scores are multiplied by its square.

    Raises:
        TypeError: If an argument is not a number, or ``length`` not an integer.
        ValueError: If an argument is out of range.

    Example:
        >>> import torch
        >>> from transformer_blocks import RotaryPositionalEncoding, YarnScaling
        >>> yarn = YarnScaling(4.0, length=1000)
        >>> frequencies = 10000.0 ** -torch.arange(0, 1, 1 / 8)
        >>> frequencies / yarn(frequencies)  # the fast pairs are kept, the slow ones divided by 4
        tensor([1.0000, 1.0000, 1.2308, 1.6000, 2.2857, 4.0000, 4.0000, 4.0000])
        >>> rotary, x = RotaryPositionalEncoding(16, scaling=yarn), torch.randn(1, 1, 1, 16)
        >>> (rotary.transform_keys(x, start=7).norm() / x.norm()).round(decimals=3)  # 0.1 ln 4 + 1
        tensor(1.1390)
    """

    factor: Factor
    length: Size
    low: float = 1.0
    high: float = 32.0
    truncate: bool = True
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        _check_turns(self.low, self.high)
        if self.attention_factor is None:
            object.__setattr__(self, "attention_factor", 0.1 * math.log(self.factor) + 1.0)

    def __call__(self, frequencies: Tensor) -> Tensor:
        """Scale frequencies, in radians per position, of shape (d_k / 2,), from 1 downwards."""
        pairs = len(frequencies)
        # The logarithms of the frequencies fall by the same step from pair to pair.
        step = -frequencies[-1].log() / max(pairs - 1, 1)
        turns = frequencies.new_tensor([self.high, self.low])
        first, last = (self.length / (2 * math.pi * turns)).log() / step  # the pairs that have them
        if self.truncate:
            first, last = first.floor(), last.ceil()
        first, last = first.clamp(min=0.0), last.clamp(max=2.0 * pairs - 1.0)
        number = torch.arange(pairs, dtype=frequencies.dtype, device=frequencies.device)
        divided = ((number - first) / (last - first).clamp(min=0.001)).clamp(0.0, 1.0)
        kept = 1.0 - divided
        return (1.0 - kept) * frequencies / self.factor + kept * frequencies


def _check_turns(low: float, high: float) -> None:
    """Raise unless two numbers of turns are in order."""
    if not 0.0 < low < high:
        raise ValueError(f"low must be above 0 and below high, got low={low} and high={high}")
