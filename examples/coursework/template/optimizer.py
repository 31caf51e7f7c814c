"""Unit 10: the optimiser and its learning rate.

Chapter 15 of the book; section 5.3 of the paper.
"""

from collections.abc import Iterable

from torch import nn


def noam_rate(step: int, d_model: int, warmup_steps: int = 4000) -> float:
    """Compute the learning rate of an update.

    It is d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5).

    Args:
        step: Number of the update, counted from 1.
        d_model: Size of the model's vectors.
        warmup_steps: Number of updates during which the rate increases.

    Returns:
        The learning rate.
    """
    raise NotImplementedError


class Adam:
    """Adam ("Adam: A Method for Stochastic Optimization", algorithm 1).

    With gradient g, update number t (from 1) and m = v = 0 before the first::

        m = beta1 * m + (1 - beta1) * g
        v = beta2 * v + (1 - beta2) * g ^ 2
        parameter -= lr * m / (1 - beta1 ^ t) / (sqrt(v / (1 - beta2 ^ t)) + eps)

    Attributes:
        lr: The learning rate, which a training sets before each update.
    """

    def __init__(
        self,
        parameters: Iterable[nn.Parameter],
        lr: float,
        betas: tuple[float, float] = (0.9, 0.98),
        eps: float = 1e-9,
    ) -> None:
        raise NotImplementedError

    def step(self) -> None:
        """Update each parameter that has a gradient, in place and under ``torch.no_grad()``."""
        raise NotImplementedError

    def zero_grad(self) -> None:
        """Discard the gradients: set ``grad`` of each parameter to None."""
        raise NotImplementedError
