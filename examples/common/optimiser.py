"""Optimiser: the paper's Adam, and a moving average of the weights."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


def average_weights(model: nn.Module, keep: float) -> AveragedModel:
    """Start a moving average of a model's weights that forgets its beginning fast."""

    def update(average: Sequence[Tensor], current: Sequence[Tensor], count: Tensor | int) -> None:
        young = (1.0 + float(count)) / (10.0 + float(count))
        get_ema_multi_avg_fn(min(keep, young))(average, current, count)

    return AveragedModel(model, multi_avg_fn=update)


def make_adam(model: nn.Module) -> torch.optim.Adam:
    """Make the paper's optimiser (section 5.3); the rate is set at each update."""
    return torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)


def load_moments(optimizer: torch.optim.Adam, state: dict[str, Any]) -> None:
    """Load the state of an optimiser that was saved.

    Raises:
        ValueError: If a moment is not of the shape of its parameter.
    """
    optimizer.load_state_dict(state)
    for parameter, moments in optimizer.state.items():
        for name in ("exp_avg", "exp_avg_sq"):
            if moments[name].shape != parameter.shape or moments[name].dtype != parameter.dtype:
                raise ValueError(f"{name} of shape {tuple(moments[name].shape)} fits no parameter")
