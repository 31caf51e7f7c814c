"""Tasks: what a model learns, for the training loop."""

import random
from collections.abc import Sequence
from typing import Protocol

from common.learner import AnyModel, Batch, Loss


class Task(Loss[AnyModel, Batch], Protocol[AnyModel, Batch]):
    """The batches of a training, their loss, and the validation.

    Attributes:
        unit: The name of the targets, such as "tokens".
    """

    unit: str

    def batches(self, epoch: int) -> Sequence[Batch]:
        """Return the batches of an epoch, counted from 0; the same epoch has the same batches."""
        ...

    def validate(self, model: AnyModel) -> dict[str, float]:
        """Compute metrics of a model in evaluation mode, each named ``validation_...``."""
        ...

    def is_better(self, new: dict[str, float], best: dict[str, float]) -> bool:
        """Return whether a validation is better than the best one so far."""
        ...


class LowestLoss:
    """A validation is better if its loss is lower: a base class of tasks."""

    def is_better(self, new: dict[str, float], best: dict[str, float]) -> bool:
        """Return whether the loss is lower."""
        return new["validation_loss"] < best["validation_loss"]


def random_generator(seed: int, *purpose: object) -> random.Random:
    """Make a generator of random numbers that depend only on a seed and a purpose."""
    return random.Random(" ".join(map(str, (seed, *purpose))))
