r"""Dropout: numbers lost on purpose, so that no part is leant on alone.

While it trains, a network of many parts soon has parts that only work together, and only on what it
has seen. Dropout takes each number away with probability :math:`p`, another choice every time, and
lets those that stay grow, so that nothing changes on average:

.. math:: \mathrm{dropout}(x)_i = \frac{m_i\,x_i}{1 - p}, \qquad m_i = 0 \text{ with probability } p

The paper drops 10 % of what every sublayer adds, and of the embedded words (section 5.4; the idea
is from Srivastava et al. 2014, https://jmlr.org/papers/v15/srivastava14a.html). A model in use
drops nothing: ``model.eval()``.

On a processor, the dice cost more than all else here: torch throws one for each number, an eighth
of the time of a training step. :func:`drop` draws 64 bits at once and cuts them into four dice of
65,536 sides each, which takes a third of that.

Next chapter: :mod:`transformer_blocks.feed_forward`, what a position does on its own.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks._checks import check_flag, check_number, check_tensor

SIDES = 2**16
"""Of a die: as many numbers as 16 bits can show."""


def drop(x: Tensor, probability: float) -> Tensor:
    """Set some numbers to zero, and let the others grow so that the mean stays.

    On a CPU, ``probability`` is rounded to a multiple of 1 / 65,536, and the growth fits the
    rounded one. The dice are torch's: ``torch.manual_seed`` makes them repeat. On a GPU and in
    compiled code this is ``torch.nn.functional.dropout``.

    Args:
        x: Any shape.
        probability: Of each number to be dropped, from 0 to 1.

    Returns:
        Same shape as ``x``.

    Raises:
        TypeError: If ``x`` is no tensor of real numbers, or ``probability`` no number.
        ValueError: If ``probability`` is out of range.

    Example:
        >>> kept = drop(torch.ones(100_000), 0.1)
        >>> kept.unique()
        tensor([0.0000, 1.1111])
        >>> abs(float(kept.mean()) - 1.0) < 0.01
        True
    """
    _check_numbers("x", x)
    _check_probability("probability", probability)
    lost = round(probability * SIDES)
    if x.device.type != "cpu" or torch.compiler.is_compiling() or not 0 < lost < SIDES:
        return F.dropout(x, probability)
    draws = torch.randint(-(2**63), 2**63 - 1, (-(-x.numel() // 4),), device=x.device)
    dice = draws.view(torch.int16)[: x.numel()].view(x.shape)  # -32768 to 32767
    stays = dice >= lost - SIDES // 2
    return _Keep.apply(x, stays, SIDES / (SIDES - lost))  # type: ignore[no-untyped-call]


def _check_numbers(name: str, x: Tensor) -> None:
    """Raise unless ``x`` is a tensor of real or complex numbers."""
    check_tensor(name, x)
    if not (x.is_floating_point() or x.is_complex()):
        raise TypeError(f"{name} must be a floating-point tensor, got dtype={x.dtype}")


def _check_probability(name: str, probability: float) -> None:
    """Raise unless a number is a probability; one is allowed, which drops all."""
    check_number(**{name: probability})
    if not 0.0 <= probability <= 1.0:
        raise ValueError(f"{name} must be in [0, 1], got {probability}")


class _Keep(torch.autograd.Function):
    """Keep some numbers and let them grow; for learning, it remembers a byte for each."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor, stays: Tensor, growth: float) -> Tensor:
        return (x * stays).mul_(growth)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, stays, ctx.growth = inputs
        ctx.save_for_backward(stays)
        ctx.save_for_forward(stays)

    @staticmethod
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor, None, None]:
        return _Keep.apply(*upstream, *ctx.saved_tensors, ctx.growth), None, None  # type: ignore[no-untyped-call]

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Tensor:
        return _Keep.apply(tangents[0], *ctx.saved_tensors, ctx.growth)  # type: ignore[no-untyped-call]


class Dropout(nn.Dropout):
    """``torch.nn.Dropout``, with the faster dice of :func:`drop`.

    Args:
        p: Probability of each number to be dropped, while training.
        inplace: Whether to change the input itself, as torch does it.

    Raises:
        TypeError: If an argument is of the wrong kind.
        ValueError: If ``p`` is out of range.

    Example:
        >>> dropout = Dropout(0.1)
        >>> x = torch.ones(1000)
        >>> bool((dropout(x) == 0).any())
        True
        >>> torch.equal(dropout.eval()(x), x)  # a model in use drops nothing
        True
    """

    def __init__(self, p: float = 0.5, inplace: bool = False) -> None:
        _check_probability("p", p)
        check_flag(inplace=inplace)
        super().__init__(p, inplace)

    def forward(self, input: Tensor) -> Tensor:  # noqa: D102  (the name torch gave it)
        check_tensor("input", input)
        if not self.training:
            return input
        _check_numbers("input", input)
        if self.inplace:
            return super().forward(input)
        return drop(input, self.p)
