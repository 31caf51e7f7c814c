"""Training: one loop for any model and task, which can be killed and resumed at any time.

Read this file from the top: the :class:`Task` says what is learned, the :class:`Learner` makes one
update, the :class:`Progress` follows the plan, and :meth:`Training.fit` is the loop, which updates
the model, validates it, saves it, and keeps the weights of the best validation. The command
``train`` of each program calls :func:`run_training`.

An update uses one batch or several: several in turn if memory is small (gradient accumulation), or
several at once if several processes train together. The loss of each batch is summed and divided by
the number of targets of *all* batches of the update. So every target has the same weight, and the
gradient does not depend on how the targets are divided into batches and processes.

The model that is used after training has an exponential moving average of the weights: at a high
learning rate each update overshoots, and averaging many updates reduces the error. The learning
rate rises during the warm-up and falls to zero at the planned end, which is a number of updates, of
epochs or of minutes.

A checkpoint holds everything that the next update depends on: weights, their average, the moments
of Adam, the metrics, and the progress within the epoch. The order of the data and dropout need no
state: their random numbers depend on the seed and on the number of the epoch or of the update. So a
training that is stopped and resumed ends with the same bits as one that was never stopped; only
where a clock decides, as in a plan of minutes, the two may differ.
"""

import json
import math
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from common.checkpoint import DamagedCheckpointError, latest_checkpoint, save_checkpoint
from common.distributed import Processes, choose_device, join_processes
from common.errors import UserError
from common.files import FolderLock, write_atomically
from common.options import TrainingOptions
from common.run import AnyConfig, Run, TrainingConfig
from common.terminal import Display, say
from transformer_blocks import ModelWithLoss, noam_rate


class Task(Protocol):
    """What a model learns: the batches of a training, their loss, and the validation.

    Attributes:
        unit: The name of the targets, such as "tokens".
        summary: The data, in words, which a training prints when it begins.
    """

    unit: str
    summary: str

    def batches(self, epoch: int) -> Sequence[Any]:
        """Return the batches of an epoch, counted from 0; the same epoch has the same batches."""
        ...

    def count(self, batch: Any) -> int:
        """Count the targets of a batch: the terms of the sum that :meth:`loss` returns."""
        ...

    def collate(self, batch: Any) -> Sequence[Tensor]:
        """Make the tensors of a batch, on the CPU."""
        ...

    def loss(self, model: Any, *tensors: Tensor) -> Tensor:
        """Compute the loss of a batch, summed over its targets."""
        ...

    def validate(self, model: Any) -> dict[str, float]:
        """Compute metrics of a model in evaluation mode, each named ``validation_...``."""
        ...

    def is_better(self, new: dict[str, float], best: dict[str, float]) -> bool:
        """Return whether a validation is better than the best so far: if its loss is lower."""
        return new["validation_loss"] < best["validation_loss"]

    def sample(self, model: Any) -> str:
        """Generate something from a fixed example; a terminal shows it after each validation."""
        return ""


class Learner:
    """A model with all that an update changes: its weights, their average, and Adam's moments.

    Args:
        model: The model, on the device where it is trained.
        loss: The loss to minimise: ``count``, ``collate`` and ``loss`` of a :class:`Task`.
        average: Decay of the moving average of the weights.
        processes: The processes that train together; this one alone by default.
    """

    def __init__(
        self, model: nn.Module, loss: Any, *, average: float, processes: Processes | None = None
    ) -> None:
        self.model, self.loss = model, loss
        self.processes = Processes() if processes is None else processes
        self.device = next(model.parameters()).device
        self.module: Any = ModelWithLoss(model, loss.loss)  # later with DDP around it
        self.moving = average_weights(model, average)
        self.average: Any = self.moving.module  # the model to use
        self.optimizer = make_adam(model)

    def tensors(self) -> dict[str, dict[str, Tensor]]:
        """Return all that an update changes, as groups of a checkpoint."""
        return {
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimizer": {"averaged": self.moving.n_averaged}
            | {
                f"{name}.{key}": tensor
                for name, parameter in self.model.named_parameters()
                for key, tensor in self.optimizer.state[parameter].items()
            },
        }

    @torch.no_grad()
    def restore(self, tensors: Mapping[str, Mapping[str, Tensor]]) -> None:
        """Return to what :meth:`tensors` gave.

        Raises:
            KeyError: If a tensor is missing.
            ValueError: If a tensor has another shape or dtype.
        """
        for group, targets in self.tensors().items():
            for name, target in targets.items():
                saved = tensors[group][name]
                if (saved.shape, saved.dtype) != (target.shape, target.dtype):
                    raise ValueError(
                        f"{name} must be {target.dtype} of shape {tuple(target.shape)}"
                    )
                target.copy_(saved)

    def update(self, batches: Sequence[Any], rate: float) -> Tensor:
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

    def compute_gradient(self, batches: Sequence[Any]) -> Tensor:
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
        is_parallel = isinstance(self.module, DistributedDataParallel)
        on_cuda = self.device.type == "cuda"
        for number, batch in enumerate(mine, start=1):
            # The backward pass of the last batch, and of no other, all-reduces the gradients.
            waits = self.module.no_sync() if is_parallel and number < len(mine) else nullcontext()
            tensors = self.loss.collate(batch)
            if on_cuda:  # pinned memory is copied asynchronously
                tensors = [tensor.pin_memory() for tensor in tensors]
            tensors = [tensor.to(self.device, non_blocking=True) for tensor in tensors]
            with waits:
                with torch.autocast(self.device.type, torch.bfloat16, enabled=on_cuda):
                    loss: Tensor = self.module(*tensors)
                (loss * weight).backward()
            if weight:
                total += loss.detach()
        return total


def make_adam(model: nn.Module) -> torch.optim.Adam:
    """Make the paper's optimiser (section 5.3); the learning rate is set before each update."""
    adam = torch.optim.Adam(model.parameters(), lr=0.0, betas=(0.9, 0.98), eps=1e-9, fused=True)
    for parameter in model.parameters():  # from the first checkpoint on, there are moments to save
        adam.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            "exp_avg": torch.zeros_like(parameter, requires_grad=False),
            "exp_avg_sq": torch.zeros_like(parameter, requires_grad=False),
        }
    return adam


def learning_rate(config: TrainingConfig, step: int, done: float) -> float:
    """Compute the learning rate of an update.

    Args:
        config: The configuration. The rate rises linearly to its ``peak_rate`` during
            ``warmup_steps`` updates, then falls linearly to zero; if ``peak_rate`` is None, it has
            the schedule of the paper (section 5.3), which has no planned end.
        step: Number of the update, counted from 1.
        done: Completed fraction of the planned training, from 0 to 1.

    Example:
        >>> sizes = {"num_layers": 1, "d_model": 512, "num_heads": 8, "d_ff": 2048, "dropout": 0.1}
        >>> plan = {"vocabulary": 1000, "average": 0.99, "warmup_steps": 100, "peak_rate": 2e-3}
        >>> config = TrainingConfig(**sizes, **plan)
        >>> learning_rate(config, 50, 0.0), learning_rate(config, 500, 0.5)
        (0.001, 0.001)
    """
    if config.peak_rate is None:
        return noam_rate(step, d_model=config.d_model, warmup_steps=config.warmup_steps)
    return config.peak_rate * min(step / config.warmup_steps, 1.0 - done)


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


@dataclass
class Progress:
    """How far a training has come; part of every checkpoint.

    Attributes:
        epoch: Number of complete passes over the data.
        batches: Number of batches read in the current pass, by all processes.
        step: Number of updates.
        seconds: Time taken, in seconds.
        loss: Training loss since the last validation, summed over targets, in all processes.
        targets: Number of targets read since the last validation.
        best: The metrics of the best validation; empty before the first one.
    """

    epoch: int = 0
    batches: int = 0
    step: int = 0
    seconds: float = 0.0
    loss: float = 0.0
    targets: int = 0
    best: dict[str, float] = field(default_factory=dict)

    def end_epoch(self) -> None:
        """Begin the next pass over the data."""
        self.epoch, self.batches = self.epoch + 1, 0

    def part_done(self, config: TrainingConfig, epochs: float) -> float:
        """Compute which part of the plan is done, from 0 to 1.

        Args:
            config: The configuration, with a plan in minutes, epochs or updates.
            epochs: Number of passes over the data, the current one in part.
        """
        if config.minutes is not None:
            return min(1.0, self.seconds / (60.0 * config.minutes))
        if config.epochs is not None:
            return min(1.0, epochs / config.epochs)
        return min(1.0, self.step / (config.steps or 1))

    def place(self, config: TrainingConfig, done: float) -> str:
        """Describe the place in the plan, of which a part is done, such as "epoch 2 of 4"."""
        if config.minutes is not None:
            return f"{done * config.minutes:.1f} of {config.minutes:g} min"
        if config.epochs is not None:
            return f"epoch {min(self.epoch + 1, config.epochs)} of {config.epochs}"
        return f"step {self.step:,} of {config.steps or 1:,}"


class Training:
    """One training, from its beginning or from its last checkpoint.

    Args:
        run: The run whose folder holds checkpoints, best weights and metrics.
        config: The run's configuration; its plan may differ from the one in ``config.json``.
        task: The batches, the loss and the validation.
        device: The device to compute on.
        processes: The processes that train together; this one alone by default.
        save_steps: Number of updates after which a checkpoint is saved, besides one after each
            validation.
        snapshots: Whether the weights after 0, 1, 2, 5, 10, 20, 50 ... updates are validated and
            kept in the run's ``snapshots``. The training computes the same.
    """

    def __init__(
        self,
        run: Run[Any],
        config: TrainingConfig,
        task: Task,
        *,
        device: torch.device,
        processes: Processes | None = None,
        save_steps: int | None = None,
        snapshots: bool = False,
    ) -> None:
        vocabularies = [each.vocab_size for each in run.load_tokenizers(config)]
        torch.manual_seed(config.seed)
        self.model = run.build(config, vocabularies).to(device)
        self.learner = Learner(self.model, task, average=config.average, processes=processes)
        self.run, self.config, self.task = run, config, task
        self.device, self.processes = device, self.learner.processes
        self.save_steps, self.snapshots = save_steps, snapshots
        self.progress, self.metrics = Progress(), list[dict[str, Any]]()
        place = "epoch" if config.report_steps is None else "step"
        self.display = Display(place, is_shown=self.processes.is_first)
        self._started = 0.0  # on the clock, as if the training had never been stopped
        self._begun = 0.0, 0  # the clock and the targets after the last validation, for the speed
        exact = torch.float64 if device.type in ("cpu", "cuda") else torch.float32
        self._loss = torch.zeros((), dtype=exact, device=device)  # of this process, see _sum_loss

    def fit(self, *, on_begin: Callable[[], object] = lambda: None) -> None:
        """Train until the plan is done.

        Args:
            on_begin: Called as soon as there is a checkpoint to resume from.
        """
        progress, learner = self.progress, self.learner
        if self.processes.world_size > 1:  # the backward pass averages the gradients of all
            devices = [self.device] if self.device.type == "cuda" else None
            learner.module = DistributedDataParallel(learner.module, device_ids=devices)
        self._started = time.monotonic() - progress.seconds
        if not self.processes.broadcast(self.run.checkpoints.exists):
            self._save()  # a training that is killed at once can be resumed
        on_begin()
        self._keep_snapshot()
        with self.display:
            while progress.part_done(self.config, progress.epoch) < 1.0:
                self._train_until_validation()
                if progress.targets or not self.metrics:
                    self._report()
                else:  # the minutes were over before the first update
                    self._save()

    def _train_until_validation(self) -> None:
        """Update the model until the next validation."""
        progress, config = self.progress, self.config
        together = config.accumulate * self.processes.world_size  # batches of an update
        self.model.train()
        self._begun = time.monotonic(), progress.targets
        while True:
            batches = self.task.batches(progress.epoch)
            while progress.batches < len(batches):
                if config.minutes is not None:
                    self._read_clock()
                done = progress.part_done(config, progress.epoch + progress.batches / len(batches))
                self._show(done, progress.place(config, done))
                if done >= 1.0:
                    if config.report_steps is None and (progress.targets or not self.metrics):
                        progress.end_epoch()  # the minutes are over: the epoch ends here
                    return
                self._update(batches[progress.batches : progress.batches + together], done)
                if config.report_steps is not None and progress.step % config.report_steps == 0:
                    return
                is_within = progress.batches < len(batches)  # the end of an epoch is saved anyway
                if self.save_steps and progress.step % self.save_steps == 0 and is_within:
                    self._save()
            progress.end_epoch()
            if config.report_steps is None:
                return

    def _update(self, group: Sequence[Any], done: float) -> None:
        """Update the model with the batches of all processes, when a part of the plan is done."""
        progress, config = self.progress, self.config
        progress.step += 1
        progress.batches += len(group)
        progress.targets += sum(self.task.count(batch) for batch in group)
        rate = learning_rate(config, progress.step, done)
        dropout = random_generator(config.seed, "dropout", progress.step, self.processes.rank)
        torch.manual_seed(dropout.getrandbits(63))
        self._loss += self.learner.update(group, rate)
        if progress.step % 100 == 0:
            self._sum_loss()
        self._keep_snapshot()

    def _read_clock(self) -> None:
        """Note the time that the training has taken, on the clock of the first process."""
        self.progress.seconds = self.processes.broadcast(lambda: time.monotonic() - self._started)

    def _speed(self) -> float:
        """Compute the number of targets per second since the last validation."""
        started, targets = self._begun
        return (self.progress.targets - targets) / max(time.monotonic() - started, 1e-9)

    def _show(self, done: float, place: str) -> None:
        """Show the place in the plan, the loss and the speed."""
        loss = self.progress.loss / max(self.progress.targets, 1)
        text = f"{place}  loss {loss:.3f}  {self._speed():,.0f} {self.task.unit}/s"
        self.display.update(done, text)

    def _sum_loss(self) -> None:
        """All-reduce the training loss into the progress; then only the first process holds it."""
        self.progress.loss = float(self.processes.all_reduce_sum(self._loss))
        self._check_finite(self.progress.loss)
        self._loss.fill_(self.progress.loss if self.processes.is_first else 0.0)

    def _check_finite(self, loss: float) -> None:
        if not math.isfinite(loss):
            raise UserError(
                f"the loss is {loss} at step {self.progress.step}; "
                "lower the learning rate and begin again, or resume from the last checkpoint"
            )

    def _report(self) -> None:
        """Validate the averaged weights, save them if they are the best, and log the metrics."""
        progress, speed = self.progress, self._speed()
        self._sum_loss()
        train_loss = progress.loss / max(progress.targets, 1)
        self._show(progress.part_done(self.config, progress.epoch), "validation")
        progress.loss, progress.targets = 0.0, 0
        self._loss.zero_()
        average, figures = self._validate()
        is_best = not progress.best or self.task.is_better(figures, progress.best)
        progress.best = figures if is_best else progress.best
        self._read_clock()
        row = {"epoch": progress.epoch, "step": progress.step, "train_loss": train_loss, **figures}
        row |= {f"{self.task.unit}_per_second": speed, "minutes": progress.seconds / 60.0}
        self.metrics.append(row)
        if self.processes.is_first:
            self._write_metrics()
        if is_best:
            self._save_weights(self.run.best, figures, keep=1)
        self._save()  # last: what a kill before it loses is computed again
        if self.processes.is_first:
            sample = self.task.sample(average) if self.display.is_terminal else ""
            self.display.report(row, is_best=is_best, sample=sample)
            from common.plots import learning_curves, save  # only now: it imports matplotlib

            save(learning_curves(self.metrics), self.run.picture)

    def _validate(self) -> tuple[Any, dict[str, float]]:
        """Validate the averaged weights; return the model with them, and the metrics."""
        average = self.learner.average.eval()
        figures = self.processes.broadcast(lambda: self.task.validate(average))
        self._check_finite(figures["validation_loss"])
        return average, figures

    def _keep_snapshot(self) -> None:
        """Validate and save the averaged weights if this number of updates is one to be kept."""
        if self.snapshots and str(self.progress.step).rstrip("0") in ("", "1", "2", "5"):
            _, figures = self._validate()
            self._save_weights(self.run.snapshots, figures, keep=sys.maxsize)

    def _save(self) -> None:
        """Save everything that the next update depends on."""
        self._read_clock()
        self._sum_loss()
        state = {"metrics": self.metrics, "progress": asdict(self.progress)}
        self._write(self.run.checkpoints, self.learner.tensors(), state, keep=2)

    def _save_weights(self, folder: Path, figures: dict[str, float], *, keep: int) -> None:
        """Save the averaged weights and their metrics."""
        state = {"epoch": self.progress.epoch, **figures}
        self._write(folder, {"model": self.learner.average.state_dict()}, state, keep=keep)

    def _write(self, folder: Path, tensors: Any, state: dict[str, Any], *, keep: int) -> None:
        """Let the first process, which holds what all hold, write a checkpoint."""
        step, state = self.progress.step, {"config": self.config.identity, **state}
        self.processes.broadcast(
            lambda: save_checkpoint(folder, step=step, tensors=tensors, state=state, keep=keep)
        )

    def _write_metrics(self) -> None:
        lines = "".join(json.dumps(row) + "\n" for row in self.metrics)
        write_atomically(self.run.metrics, lines.encode())

    def resume(self) -> bool:
        """Return to the last checkpoint, if there is one; return whether there was.

        Raises:
            UserError: If a checkpoint is damaged or of another run, or if there is none although
                there are best weights.
        """
        best, checkpoint = map(latest_checkpoint, (self.run.best, self.run.checkpoints))
        for found in filter(None, (best, checkpoint)):
            self.config.check_trained(found)
        path = None if checkpoint is None else checkpoint.path
        if self.processes.broadcast(lambda: path) != path:
            raise UserError(
                f"the processes find different checkpoints in {self.run.checkpoints}; all processes"
                " must use one file system, which all machines share"
            )
        if checkpoint is None:
            if best is not None:
                raise UserError(
                    f"{self.run.folder} holds trained weights but no checkpoint to resume from; "
                    "choose another --run"
                )
            return False
        try:
            self.progress = Progress(**checkpoint.state["progress"])
            self.metrics = [*checkpoint.state["metrics"]]
            self.learner.restore(checkpoint.tensors)
        except Exception as error:  # whatever a file that someone else made can provoke
            raise DamagedCheckpointError(
                f"{checkpoint.path} holds no state of a training: {error!r}"
            ) from error
        self._loss.fill_(self.progress.loss if self.processes.is_first else 0.0)
        if self.processes.is_first and self.run.metrics.exists():
            self._write_metrics()  # those of the checkpoint, from which the training resumes
        return True


def run_training(
    options: TrainingOptions,
    run: Run[AnyConfig],
    new: AnyConfig,
    *,
    load: Callable[[AnyConfig], Any],
    prepare: Callable[[AnyConfig, Any], tuple[AnyConfig, dict[str, list[str]]]],
    make_task: Callable[[Run[AnyConfig], AnyConfig, Any], Task],
    show: Callable[[Run[AnyConfig], Any, torch.device], object],
    **settings: Any,
) -> None:
    """Train in a locked folder, by this process or by several, from the last checkpoint if asked.

    A training that is done and resumed makes its results again.

    Args:
        options: The command line.
        run: The run.
        new: The configuration of a new run, as far as the command line decides.
        load: Loads the data of a configuration, and checks that they are unchanged.
        prepare: Completes the configuration of a new run by its data; returns it with the training
            texts of each tokenizer.
        make_task: Makes the task; its ``summary`` is printed.
        show: Shows the results, once, in the first process.
        settings: Other arguments of :class:`Training`.

    Raises:
        UserError: If another training is using the folder, the processes do not start, or the
            training refuses to resume; nothing has been changed then.
    """
    device, lock = choose_device(options.device), FolderLock(run.folder)
    chosen = options.chosen(run.kind)
    try:
        with join_processes(device) as processes, lock if processes.is_first else nullcontext():
            config = processes.broadcast(
                lambda: run.choose_config(new, chosen, resume=options.resume)
            )
            data = processes.broadcast(lambda: load(config))  # which may be downloaded
            if not config.tokenizers:
                new = replace(config, data_hash=data.fingerprint)
                config = processes.broadcast(lambda: run.begin(*prepare(new, data), lock))
            task = make_task(run, config, data)
            training = Training(run, config, task, device=device, processes=processes, **settings)
            is_resumed = training.resume()
            if processes.is_first:
                weights = sum(weight.numel() for weight in training.model.parameters())
                number = processes.world_size
                several = f", in {number} processes" if number > 1 else ""
                say(f"{task.summary}, {weights:,} parameters, on {device}{several}")
                run.write_config(config)  # its plan may have changed, and is accepted
                if is_resumed:
                    say(f"{run.folder}: resuming after step {training.progress.step}")
            training.fit(on_begin=lock.commit)
            if processes.is_first:
                show(run, data, device)
    except KeyboardInterrupt:
        if lock.is_committed:
            raise KeyboardInterrupt("(resume the training with --resume)") from None
        raise
