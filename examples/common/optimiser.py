"""Optimiser: Adam as in the paper, the learning-rate schedule, and the average of the weights."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from transformer_blocks import noam_rate


def make_adam(model: nn.Module) -> torch.optim.Adam:
    """Make the paper's optimiser (section 5.3); the learning rate is set before each update."""
    return torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)


def load_moments(optimizer: torch.optim.Adam, state: dict[str, Any]) -> None:
    """Load the saved state of an optimiser.

    Raises:
        ValueError: If a moment has another shape or dtype than its parameter.
    """
    optimizer.load_state_dict(state)
    for parameter, moments in optimizer.state.items():
        for name in ("exp_avg", "exp_avg_sq"):
            if moments[name].shape != parameter.shape or moments[name].dtype != parameter.dtype:
                raise ValueError(f"{name} of shape {tuple(moments[name].shape)} fits no parameter")


def learning_rate(
    step: int, done: float, *, peak_rate: float | None, warmup_steps: int, d_model: int
) -> float:
    """Compute the learning rate of an update.

    Args:
        step: Number of the update, counted from 1.
        done: Completed fraction of the planned training, from 0 to 1.
        peak_rate: Highest rate: the rate rises to it linearly, then falls linearly to zero. None
            for the schedule of the paper (section 5.3), which has no planned end.
        warmup_steps: Number of updates during which the rate rises.
        d_model: Hidden size, for the schedule of the paper.

    Example:
        >>> rates = {"peak_rate": 2e-3, "warmup_steps": 100, "d_model": 512}
        >>> learning_rate(50, 0.0, **rates), learning_rate(500, 0.5, **rates)
        (0.001, 0.001)
    """
    if peak_rate is None:
        return noam_rate(step, d_model=d_model, warmup_steps=warmup_steps)
    return peak_rate * min(step / warmup_steps, 1.0 - done)


def average_weights(model: nn.Module, decay: float) -> AveragedModel:
    """Start an exponential moving average of a model's weights.

    Args:
        model: The model whose weights are averaged.
        decay: Weight of the average so far at each update. The first updates use a smaller one, so
            that the average soon forgets the initial weights.
    """

    def update(average: Sequence[Tensor], current: Sequence[Tensor], count: Tensor | int) -> None:
        early = (1.0 + float(count)) / (10.0 + float(count))
        get_ema_multi_avg_fn(min(decay, early))(average, current, count)

    return AveragedModel(model, multi_avg_fn=update)
