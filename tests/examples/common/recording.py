"""Trainings whose every update is recorded: rate, settings, gradient, weights."""

import io
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.examples import by_hand
from torch import Tensor
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from common import plots


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
def recorded_updates() -> Iterator[list[Update]]:
    """Record every update of one training."""
    found: list[Update] = []

    def note(optimizer: Optimizer, *_: Any) -> None:
        (group,) = optimizer.param_groups
        settings = {name: value for name, value in group.items() if name != "params"}
        parameters: list[Tensor] = group["params"]
        gradient = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
        found.append(Update(type(optimizer), settings, copied(parameters), copied(gradient)))

    def complete(optimizer: Optimizer, *_: Any) -> None:
        found[-1].after = copied(optimizer.param_groups[0]["params"])

    handles = register_optimizer_step_pre_hook(note), register_optimizer_step_post_hook(complete)
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


ADAM = {"betas": (0.9, 0.98), "eps": 1e-9, "weight_decay": 0, "amsgrad": False, "maximize": False}
"""The settings of the paper's optimiser (section 5.3)."""


def check_adam(updates: list[Update]) -> None:
    """Check that every update is that of the paper's Adam, computed in float64, and no other.

    The gradients and the weights before each update are those recorded; the moments are computed.
    """
    first = [torch.zeros_like(each, dtype=torch.float64) for each in updates[0].gradient]
    second = [torch.zeros_like(each) for each in first]
    for step, update in enumerate(updates, start=1):
        assert update.optimizer is torch.optim.Adam
        assert update.settings.items() >= ADAM.items()
        for i, gradient in enumerate(each.double() for each in update.gradient):
            first[i] = 0.9 * first[i] + 0.1 * gradient
            second[i] = 0.98 * second[i] + 0.02 * gradient.square()
            mean, variance = first[i] / (1 - 0.9**step), second[i] / (1 - 0.98**step)
            wanted = update.before[i].double() - update.rate * mean / (variance.sqrt() + 1e-9)
            torch.testing.assert_close(update.after[i].double(), wanted, rtol=1e-6, atol=2e-6)
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


def run_recorded(main: Callable[[list[str]], int], *arguments: object) -> tuple[str, list[Update]]:
    """Run a program in this process; return what it prints, and the updates of its training."""
    printed, handlers = io.StringIO(), list(logging.getLogger().handlers)
    with pytest.MonkeyPatch.context() as patch, recorded_updates() as recorded:
        patch.setattr(plots, "as_png", lambda _: b"")  # to draw takes longer than to train
        with redirect_stdout(printed):
            assert main([*map(str, arguments)]) == 0
    logging.getLogger().handlers[:] = handlers
    return printed.getvalue(), recorded


@dataclass
class RecordedRun(ABC):
    """A finished training, and all that is needed to compute it again, one sequence at a time.

    A subclass knows the task: the model, what it reads, and the losses of its targets.

    Attributes:
        folder: Of the training.
        config: Its settings.
        updates: Every update.
        printed: What the program printed.
    """

    folder: Path
    config: Any
    updates: list[Update]
    printed: str

    def __post_init__(self) -> None:
        lines = (self.folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
        self.rows: list[dict[str, Any]] = [json.loads(line) for line in lines]
        after = [update.after for update in self.updates]
        self.averages = by_hand.moving_average(after, self.config.average)

    @abstractmethod
    def build(self) -> Any:
        """Build the model."""

    @abstractmethod
    def batches(self, epoch: int) -> list[list[Any]]:
        """Return the examples of each batch of an epoch, in the order of the training."""

    @abstractmethod
    def validation(self) -> list[Any]:
        """Return the examples of the validation."""

    @abstractmethod
    def losses(self, model: Any, example: Any) -> Tensor:
        """Compute the loss of each target of an example."""

    def figures(self, model: Any) -> dict[str, float]:
        """Compute the metrics of a validation."""
        losses = torch.cat([self.losses(model, each) for each in self.validation()])
        return {"validation_loss": float(losses.mean())}

    def rank(self, row: dict[str, Any]) -> Any:
        """Return by what validations are compared; the lowest is the best."""
        return row["validation_loss"]

    def model(self, weights: Sequence[Tensor] | None = None) -> Any:
        """Build the model with the fresh weights of its seed, or with these, in float64."""
        torch.manual_seed(self.config.seed)
        model = self.build()
        return model if weights is None else by_hand.with_weights(model, weights)

    def saved(self, checkpoint: str, group: str = "model") -> list[Tensor]:
        """Read weights from the file of a checkpoint."""
        return by_hand.saved_weights(self.folder / checkpoint, group, self.build())

    def best(self) -> list[Tensor]:
        """Read the best weights from their file."""
        (path,) = (self.folder / "best").iterdir()
        return self.saved(f"best/{path.name}")

    def groups(self) -> list[tuple[float, list[Any]]]:
        """Return for each update the part of the plan that is done before it, and its examples."""
        found, together = [], self.config.accumulate
        steps, epochs = self.config.steps, self.config.epochs
        for epoch in range(epochs or steps):
            batches = self.batches(epoch)
            for start in range(0, len(batches), together):
                examples = [each for batch in batches[start : start + together] for each in batch]
                found.append((epoch + start / len(batches), examples))
        if epochs:
            return [(done / epochs, examples) for done, examples in found]
        return [(step / steps, examples) for step, (_, examples) in enumerate(found[:steps])]
