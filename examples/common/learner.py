"""Learner: one update of a model's parameters by Adam, for any model and loss.

An update uses one batch or several: several in turn if memory is small (gradient accumulation), or
several at once if several processes train together. The loss of each batch is summed and divided by
the number of targets of *all* batches of the update. So every target has the same weight, and the
gradient does not depend on how the targets are divided into batches and processes.

The model that is used after training has an exponential moving average of the weights: at a high
learning rate each update overshoots, and averaging many updates reduces the error.
"""

import random
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Generic, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from common.distributed import Processes
from transformer_blocks import noam_rate

Model = TypeVar("Model", bound=nn.Module)
AnyModel = TypeVar("AnyModel", bound=nn.Module, contravariant=True)
Batch = TypeVar("Batch")
AnyBatch = TypeVar("AnyBatch", contravariant=True)


class Loss(Protocol[AnyModel, AnyBatch]):
    """A loss function and how its batches are made."""

    def count(self, batch: AnyBatch) -> int:
        """Count the targets of a batch: the terms of the sum that :meth:`loss` returns."""
        ...

    def collate(self, batch: AnyBatch) -> Sequence[Tensor]:
        """Make the tensors of a batch, on the CPU."""
        ...

    def loss(self, model: AnyModel, *tensors: Tensor) -> Tensor:
        """Compute the loss of a batch, summed over its targets."""
        ...


class Task(Loss[AnyModel, Batch], Protocol[AnyModel, Batch]):
    """What a model learns: the batches of a training, their loss, and the validation.

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


class Learner(Generic[Model, Batch]):
    """A model with all that an update changes: its weights, their average, and Adam's moments.

    Args:
        model: The model, on the device where it is trained.
        loss: The loss to minimise.
        average: Decay of the moving average of the weights.
        processes: The processes that train together; this one alone by default.
    """

    def __init__(
        self,
        model: Model,
        loss: Loss[Model, Batch],
        *,
        average: float,
        processes: Processes | None = None,
    ) -> None:
        self.model, self.loss = model, loss
        self.processes = Processes() if processes is None else processes
        self.device = next(model.parameters()).device
        self.module: Any = _ModelWithLoss(model, loss)  # later with DDP around it
        self.moving = average_weights(model, average)
        self.optimizer = make_adam(model)

    @property
    def average(self) -> Model:
        """The model with the averaged weights, the one to use."""
        return cast(Model, self.moving.module)

    def average_state(self) -> dict[str, Tensor]:
        """Return the averaged weights by name, as ``state_dict`` returns those of the model."""
        return self.average.state_dict()

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Return all that an update changes, as groups of a checkpoint."""
        return {
            "model": self.model.state_dict(),
            "average": self.average_state(),
            "optimizer": {"averaged": self.moving.n_averaged}
            | {
                f"{name}.{key}": tensor
                for name, parameter in self.model.named_parameters()
                for key, tensor in self.optimizer.state.get(parameter, {}).items()
            },
        }

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Return to what :meth:`tensors` gave.

        Raises:
            KeyError: If a tensor is missing.
            ValueError: If a tensor has another shape or dtype.
        """
        for name, parameter in self.model.named_parameters():
            if f"{name}.step" in tensors["optimizer"]:
                self.optimizer.state[parameter] = {
                    "step": torch.zeros((), dtype=torch.float32, device=self.device),
                    "exp_avg": torch.zeros_like(parameter),
                    "exp_avg_sq": torch.zeros_like(parameter),
                }
        for group, targets in self.tensors().items():
            for name, target in targets.items():
                saved = tensors[group][name]
                if (saved.shape, saved.dtype) != (target.shape, target.dtype):
                    raise ValueError(
                        f"{name} must be {target.dtype} of shape {tuple(target.shape)}"
                    )
                target.copy_(saved)

    def update(self, batches: Sequence[Batch], rate: float) -> Tensor:
        """Update the parameters with the gradient of several batches, as if they were one.

        Args:
            batches: The batches of all processes; this one computes every ``world_size``-th.
            rate: The learning rate.

        Returns:
            The loss of this process's batches, summed over their targets.
        """
        loss = self.compute_gradient(batches)
        for group in self.optimizer.param_groups:
            group["lr"] = rate
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.moving.update_parameters(self.model)
        return loss

    def compute_gradient(self, batches: Sequence[Batch]) -> Tensor:
        """Compute the gradient of the mean loss per target; return the summed loss.

        A process for which no batch is left computes the first one with weight zero, because all
        processes must take part in the all-reduce of the gradients.
        """
        targets = sum(self.loss.count(batch) for batch in batches)
        mine = batches[self.processes.rank :: self.processes.world_size]
        weight = self.processes.world_size / max(targets, 1)  # the all-reduce takes the mean
        if not mine:
            mine, weight = batches[:1], 0.0
        self.optimizer.zero_grad()
        total = torch.zeros((), device=self.device)
        for number, batch in enumerate(mine, start=1):
            tensors = self._move(self.loss.collate(batch))
            with self._all_reduce(is_last=number == len(mine)):
                with torch.autocast(
                    self.device.type, torch.bfloat16, enabled=self.device.type == "cuda"
                ):
                    loss: Tensor = self.module(*tensors)
                (loss * weight).backward()
            if weight:
                total += loss.detach()
        return total

    def wrap(self) -> None:
        """Prepare for several processes, once weights and moments have their first values."""
        self.module = self.processes.wrap(self.module, self.device)

    def _all_reduce(self, *, is_last: bool) -> AbstractContextManager[Any]:
        """Let the backward pass of the last batch, and of no other, all-reduce the gradients."""
        if isinstance(self.module, DistributedDataParallel) and not is_last:
            return self.module.no_sync()
        return nullcontext()

    def _move(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        if self.device.type == "cuda":  # pinned memory is copied asynchronously
            tensors = [tensor.pin_memory() for tensor in tensors]
        return [tensor.to(self.device, non_blocking=True) for tensor in tensors]


class _ModelWithLoss(nn.Module):
    """A model and its loss as one module, which DDP can wrap."""

    def __init__(self, model: nn.Module, loss: Loss[Any, Any]) -> None:
        super().__init__()
        self.model = model
        self.compute_loss = loss.loss

    def forward(self, *tensors: Tensor) -> Tensor:
        return self.compute_loss(self.model, *tensors)


def make_adam(model: nn.Module) -> torch.optim.Adam:
    """Make the paper's optimiser (section 5.3); the learning rate is set before each update."""
    return torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)


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


def random_generator(seed: int, *purpose: object) -> random.Random:
    """Make a generator of random numbers that depend only on a seed and a purpose."""
    return random.Random(" ".join(map(str, (seed, *purpose))))


def get_random_state(device: torch.device) -> dict[str, Tensor]:
    """Return the states of the random number generators of the CPU and of a device."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def set_random_state(device: torch.device, states: Mapping[str, Tensor]) -> None:
    """Set the states of the random number generators, as far as they are known."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    elif device.type == "mps" and "mps" in states:
        torch.mps.set_rng_state(states["mps"])
