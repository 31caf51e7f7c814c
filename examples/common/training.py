"""Training: a loop for any model and any task, which a kill cannot harm.

Every update is made by its number alone: which examples it reads, and how the dice of dropout
fall, are drawn from the seed and that number. So there is little to remember. A checkpoint holds
weights, their average and the moments of Adam, and a training that is stopped and resumed ends with
the same bits as one that never stopped.

What a model is to learn is a :class:`Task`. The rest, the rising and falling learning rate, the
moving average of the weights, and keeping the best, is the same as the translator's.
"""

import math
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar, cast

import torch
from torch import Tensor, nn
from tqdm import tqdm

from common.checkpoint import (
    DamagedCheckpointError,
    latest_checkpoint,
    load_weights,
    save_checkpoint,
)
from common.configuration import is_row
from common.errors import UserError
from common.optimiser import average_weights, load_moments, make_adam
from common.run import REPORTED, Model, Plan, write_metrics

Learner = TypeVar("Learner", bound=nn.Module, contravariant=True)


class Task(Protocol[Learner]):
    """What a model is to learn, and how it is tried."""

    def loss(self, model: Learner, step: int) -> tuple[Tensor, int]:
        """Sum the loss over what the update of this number reads, from 1; count the summands."""
        ...

    def validate(self, model: Learner) -> dict[str, float]:
        """Try a model in eval mode; the lowest ``validation_loss`` decides what is best."""
        ...


def random_generator(seed: int, *what: object) -> random.Random:
    """Make dice that depend on a seed and on what they are for, and on nothing else."""
    return random.Random(" ".join(map(str, (seed, *what))))


class Training(Generic[Model]):
    """One training, from its beginning or from its last checkpoint.

    Args:
        folder: Holds ``checkpoints/``, ``best/`` and ``metrics.jsonl``; made if it is missing.
        plan: How the training goes.
        build: Makes the model, with fresh weights.
        task: What it is to learn.
        device: Where to compute.
        reported: Called after each report, to draw it for example.
        title: Of the progress bar.
    """

    def __init__(
        self,
        folder: Path,
        plan: Plan,
        build: Callable[[], Model],
        task: Task[Model],
        *,
        device: torch.device | None = None,
        reported: Callable[[], object] = lambda: None,
        title: str = "training",
    ) -> None:
        self.folder, self.plan, self.task = folder, plan, task
        self.reported, self.title = reported, title
        torch.manual_seed(plan.seed)
        self.model = build().to(torch.device("cpu") if device is None else device)
        self.moving = average_weights(self.model, plan.average)
        self.optimizer = make_adam(self.model)
        self.step, self.seconds, self.best_loss = 0, 0.0, math.inf
        self.metrics: list[dict[str, Any]] = []

    @property
    def average(self) -> Model:
        """The model with the averaged weights, the one to use."""
        return cast(Model, self.moving.module)

    def resume(self) -> bool:
        """Go back to the last checkpoint, if there is one; tell whether there was.

        Raises:
            UserError: If checkpoints are damaged, of another run, of a later step than the plan
                has, or lost while the best weights are still there.
        """
        best = latest_checkpoint(self.folder / "best")
        if best is not None:
            self.plan.check_trained(best)
        checkpoint = latest_checkpoint(self.folder / "checkpoints")
        if checkpoint is None:
            if best is not None:
                raise UserError(
                    f"{self.folder} holds trained weights but no checkpoint to go on from; "
                    "choose another --run"
                )
            return False
        self.plan.check_trained(checkpoint)
        if checkpoint.step > self.plan.steps:
            raise UserError(
                f"{self.folder} has made {checkpoint.step} steps already, "
                f"got --steps {self.plan.steps}"
            )
        load_weights(self.model, checkpoint.tensors["model"], path=checkpoint.path)
        load_weights(self.average, checkpoint.tensors["average"], path=checkpoint.path)
        self.step, state = checkpoint.step, checkpoint.state
        try:
            load_moments(self.optimizer, state["optimizer"])
            self.moving.n_averaged.fill_(state["averaged"])
            self.seconds, self.best_loss = float(state["seconds"]), float(state["best_loss"])
            self.metrics = list(state["metrics"])
            if not all(is_row(row, REPORTED) for row in self.metrics):
                raise ValueError("a figure of the metrics is missing")
            if math.isnan(self.best_loss) or not 0.0 <= self.seconds < math.inf:
                raise ValueError(f"seconds {self.seconds}, best loss {self.best_loss}")
        except Exception as error:  # whatever a file that someone else made can provoke
            raise DamagedCheckpointError(
                f"{checkpoint.path} holds no state of a training: {error!r}"
            ) from error
        return True

    def fit(self, *, begun: Callable[[], object] = lambda: None) -> None:
        """Train until the plan is done.

        Args:
            begun: Called as soon as there is a checkpoint to go back to.
        """
        self.folder.mkdir(exist_ok=True)
        if not (self.folder / "checkpoints").exists():
            self._save()  # whatever happens, there is something to go back to
        begun()
        if (self.folder / "metrics.jsonl").exists():  # the checkpoint holds what is gone on from
            write_metrics(self.folder, self.metrics)
        if self.step and latest_checkpoint(self.folder / "best") is None:  # they were lost
            self.best_loss = math.inf
            self._keep_as_best()
        bar = tqdm(
            initial=self.step,
            total=self.plan.steps,
            desc=self.title,
            unit="step",
            leave=False,
            mininterval=0.5,
            disable=not sys.stderr.isatty(),
        )
        with bar:
            while self.step < self.plan.steps:
                self._train_until_report(bar)

    def _train_until_report(self, bar: "tqdm[Any]") -> None:
        plan, first, begun = self.plan, self.step, time.monotonic()
        until = min(plan.steps, (self.step // plan.report_steps + 1) * plan.report_steps)
        total, count = 0.0, 0
        self.model.train()
        while self.step < until:
            self.step += 1
            loss, summands = self._update()
            total, count = total + loss, count + summands
            bar.update()
            bar.set_postfix_str(f"loss {total / count:.3f}", refresh=False)
        taken = time.monotonic() - begun
        figures = self.task.validate(self.average.eval())
        self._check(figures["validation_loss"])
        self.seconds += time.monotonic() - begun
        row = {
            "step": self.step,
            "minutes": self.seconds / 60.0,
            "train_loss": total / count,
            "steps_per_second": (self.step - first) / taken,
            **figures,
        }
        self.metrics.append(row)
        write_metrics(self.folder, self.metrics)
        is_best = figures["validation_loss"] < self.best_loss
        if is_best:
            self.best_loss = figures["validation_loss"]
            self._keep_as_best()
        self._save()  # last: what is lost before is made again
        said = "  ".join(f"{name.replace('_', ' ')} {x:.3f}" for name, x in figures.items())
        bar.write(
            f"{self.title}  step {self.step:6d}  train {total / count:.3f}  {said}  "
            f"{self.seconds / 60.0:5.1f} min{'  *' if is_best else ''}",
            file=sys.stdout,
        )
        self.reported()

    def _update(self) -> tuple[float, int]:
        """Make the update of this number."""
        plan = self.plan
        torch.manual_seed(random_generator(plan.seed, "dropout", self.step).getrandbits(63))
        for group in self.optimizer.param_groups:
            rise, fall = self.step / plan.warmup_steps, 1.0 - (self.step - 1) / plan.steps
            group["lr"] = plan.peak_rate * min(rise, fall)
        self.optimizer.zero_grad()
        loss, count = self.task.loss(self.model, self.step)
        (loss / count).backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.moving.update_parameters(self.model)
        return self._check(float(loss.detach())), count

    def _check(self, loss: float) -> float:
        if not math.isfinite(loss):
            raise UserError(
                f"the loss is {loss} at step {self.step}; "
                "lower the learning rate and begin again, or resume from the last checkpoint"
            )
        return loss

    def _keep_as_best(self) -> None:
        save_checkpoint(
            self.folder / "best",
            step=self.step,
            tensors={"model": self.average.state_dict()},
            state={"config": self.plan.definition, "validation_loss": self.best_loss},
            keep=1,
        )

    def _save(self) -> None:
        save_checkpoint(
            self.folder / "checkpoints",
            step=self.step,
            tensors={
                "model": self.model.state_dict(),
                "average": self.average.state_dict(),
            },
            state={
                "config": self.plan.definition,
                "metrics": self.metrics,
                "optimizer": self.optimizer.state_dict(),
                "averaged": int(self.moving.n_averaged),
                "seconds": self.seconds,
                "best_loss": self.best_loss,
            },
        )
