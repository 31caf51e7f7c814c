"""What an optimiser does, recorded at each update: rate, settings, gradient, weights."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)


@dataclass
class Update:
    """One update of a model's weights.

    Attributes:
        optimizer: The class of the optimiser.
        settings: Of its only group, the learning rate ``lr`` among them.
        before: The weights, parameter by parameter.
        gradient: Of each, as the optimiser reads it.
        after: The weights after the update.
    """

    optimizer: type[Optimizer]
    settings: dict[str, Any]
    before: list[Tensor]
    gradient: list[Tensor]
    after: list[Tensor] = field(default_factory=list)

    @property
    def rate(self) -> float:
        """The learning rate."""
        rate: float = self.settings["lr"]
        return rate

    @property
    def norm(self) -> float:
        """The norm of the gradient of all parameters together."""
        squares = sum(float(each.double().square().sum()) for each in self.gradient)
        return squares**0.5


def copied(tensors: list[Tensor]) -> list[Tensor]:
    """Copy tensors, so that later updates leave them alone."""
    return [tensor.detach().clone() for tensor in tensors]


@contextmanager
def recorded_updates() -> Iterator[list[list[Update]]]:
    """Record every update: one list for each optimiser, in the order of their first updates."""
    found: list[list[Update]] = []
    of: dict[int, list[Update]] = {}
    alive: list[Optimizer] = []  # an id is given again where an object is gone

    def note(optimizer: Optimizer, *_: Any) -> None:
        if id(optimizer) not in of:
            of[id(optimizer)] = []
            found.append(of[id(optimizer)])
            alive.append(optimizer)
        (group,) = optimizer.param_groups
        settings = {name: value for name, value in group.items() if name != "params"}
        parameters: list[Tensor] = group["params"]
        gradient = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        update = Update(type(optimizer), settings, copied(parameters), copied(gradient))
        of[id(optimizer)].append(update)

    def complete(optimizer: Optimizer, *_: Any) -> None:
        of[id(optimizer)][-1].after = copied(optimizer.param_groups[0]["params"])

    handles = register_optimizer_step_pre_hook(note), register_optimizer_step_post_hook(complete)
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


def adam_by_hand(updates: list[Update]) -> Iterator[list[Tensor]]:
    """Compute the weights after each update by the paper's Adam (section 5.3), in float64.

    The gradients and the weights before each update are those recorded; the moments are computed.
    """
    first = [torch.zeros_like(each, dtype=torch.float64) for each in updates[0].gradient]
    second = [torch.zeros_like(each) for each in first]
    for step, update in enumerate(updates, start=1):
        after = []
        for i, (weight, gradient) in enumerate(zip(update.before, update.gradient, strict=True)):
            g = gradient.double()
            first[i] = 0.9 * first[i] + 0.1 * g
            second[i] = 0.98 * second[i] + 0.02 * g.square()
            mean, variance = first[i] / (1 - 0.9**step), second[i] / (1 - 0.98**step)
            after.append(weight.double() - update.rate * mean / (variance.sqrt() + 1e-9))
        yield after


def check_adam(updates: list[Update]) -> None:
    """Check that every update is that of the paper's Adam, settings and outcome."""
    for update, expected in zip(updates, adam_by_hand(updates), strict=True):
        assert update.optimizer is torch.optim.Adam
        assert update.settings["betas"] == (0.9, 0.98)
        assert update.settings["eps"] == 1e-9
        assert update.settings["weight_decay"] == 0
        assert not update.settings["amsgrad"]
        assert not update.settings["maximize"]
        for found, wanted in zip(update.after, expected, strict=True):
            torch.testing.assert_close(found.double(), wanted, rtol=1e-6, atol=2e-6)
    for earlier, later in pairwise(updates):  # nothing else moves a weight
        assert all(map(torch.equal, earlier.after, later.before))


def check_clipped(update: Update, whole: list[Tensor]) -> float:
    """Check that an update reads a gradient whose norm was brought down to 1 if it was above.

    Args:
        update: As it was recorded.
        whole: The gradient before, computed by hand.

    Returns:
        The norm before.
    """
    norm = sum(float(each.double().square().sum()) for each in whole) ** 0.5
    factor = min(1.0, 1.0 / norm)
    for found, gradient in zip(update.gradient, whole, strict=True):
        torch.testing.assert_close(found.double(), gradient * factor, rtol=1e-3, atol=2e-6)
    assert abs(update.norm - min(norm, 1.0)) < 1e-4
    return norm
