"""Training: one loop for any model and task, which can be killed and resumed at any time.

The loop updates the model (:class:`common.learner.Learner`), validates it, saves it
(:class:`common.state.TrainingState`), and keeps the weights of the best validation. A
:class:`common.task.Task` defines the batches, the loss, the validation, and which validation is
better. The learning rate rises during the warm-up and falls to zero at the planned end, which is a
number of updates, of epochs or of minutes (:class:`common.plan.Plan`).
"""

import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import torch

from common.display import Display, Sample, Status
from common.distributed import Processes, join_processes
from common.errors import UserError
from common.events import EventWriter
from common.files import FolderLock
from common.learner import Batch, Learner, Model, learning_rate
from common.program import finishing_unread
from common.run import AnyConfig, Config, Run
from common.sharding import build_sharded, gather
from common.state import TrainingState, same_random_state, set_random_state
from common.task import Task

log = logging.getLogger(__name__)


class Training(TrainingState[Model, Batch]):
    """One training, from its beginning or from its last checkpoint.

    Args:
        run: The run whose folder holds checkpoints, best weights and metrics.
        config: The run's configuration; its plan may differ from the one in ``config.json``.
        build: Makes the model, with fresh weights.
        task: The batches, the loss and the validation.
        device: The device to compute on.
        processes: The processes that train together; this one alone by default.
        sharded: Whether each process holds only its shard of the model.
        save_steps: Number of updates after which a checkpoint is saved, besides one after each
            validation.
        keep: Number of checkpoints that are kept.
        on_report: Called by the first process after each validation, for example to draw
            the metrics.
        title: Name of the model in the log.
        sample: Function that shows what the model generates from a fixed example. It is called
            after each validation if a terminal shows its result; random numbers that it draws do
            not change the training.
    """

    def __init__(
        self,
        run: Run[Any],
        config: Config,
        build: Callable[[], Model],
        task: Task[Model, Batch],
        *,
        device: torch.device,
        processes: Processes | None = None,
        sharded: bool = False,
        save_steps: int | None = None,
        keep: int = 2,
        on_report: Callable[[], object] = lambda: None,
        title: str = "",
        sample: Callable[[Model], Sample] | None = None,
    ) -> None:
        processes = Processes() if processes is None else processes
        torch.manual_seed(config.seed)
        world_size = processes.world_size
        model = build_sharded(build, world_size, device) if sharded else build().to(device)
        learner: Learner[Model, Batch] = Learner(
            model, task, average=config.average, processes=processes, sharded=sharded
        )
        if not processes.is_first:  # equal weights, but other random numbers for dropout
            torch.manual_seed(config.seed + 1_000_003 * processes.rank)
        super().__init__(run, config, learner, keep=keep)
        self.build = build
        self.task, self.save_steps = task, save_steps
        self.on_report, self.title, self.sample = on_report, title, sample
        self.display = Display(
            title,
            task.unit,
            by_steps=config.report_steps is not None,
            is_shown=processes.is_first,
        )
        self._started = 0.0  # on the clock, as if the training had never been stopped
        self._loss = torch.zeros(())  # of this process, since the losses were summed last

    # The loop

    def fit(self, *, on_begin: Callable[[], object] = lambda: None) -> None:
        """Train until the plan is done, or until the validations no longer become better.

        Args:
            on_begin: Called as soon as there is a checkpoint to resume from.
        """
        set_random_state(self.device, self.random_state)
        self.learner.wrap()
        if not self.processes.broadcast(self.run.checkpoints.exists):
            self._save()  # a training that is killed at once can be resumed
        on_begin()
        self._started = time.monotonic() - self.progress.seconds
        with self.display, closing(self._open_events()) as events:
            while not self.processes.broadcast(lambda: self.plan.is_done):
                speed = self._train_until_validation()
                if speed is None:
                    self.progress.seconds = self._seconds()
                    self._save()  # the plan is done, also for a training that resumes
                    break
                self._report(speed, events)
        self._warn_if_late(self._seconds() / 60.0)

    def _train_until_validation(self) -> float | None:
        """Update the model until the next validation.

        Returns:
            The number of targets per second; None if the planned minutes ended before the first
            update, so that there is nothing to validate.
        """
        progress, report_steps = self.progress, self.config.report_steps
        self._begin_loss()
        batches = self.task.batches(progress.epoch)

        def status() -> Status:
            return self.plan.status(progress.epochs(len(batches)), self._seconds())

        self.display.begin(status)
        begun, already = time.monotonic(), progress.targets
        self.model.train()
        while True:
            if progress.batches == len(batches):
                progress.end_epoch()
                if report_steps is None:
                    break
                batches = self.task.batches(progress.epoch)
            done = self._part_done(progress.epochs(len(batches)))
            if done >= 1.0:
                if self.metrics and not progress.targets:
                    return None
                if report_steps is None:  # the minutes are over: the epoch ends here
                    progress.end_epoch()
                break
            targets = self._update(batches, done)
            self.display.update(targets, status)
            if progress.step % 100 == 0:
                self._sum_loss()
            if report_steps is not None and progress.step % report_steps == 0:
                break
            is_within = progress.batches < len(batches)  # the end of an epoch is saved anyway
            if self.save_steps and progress.step % self.save_steps == 0 and is_within:
                self._sum_loss()
                progress.seconds = self._seconds()
                self._save()
        self._sum_loss()
        return (progress.targets - already) / (time.monotonic() - begun)

    def _update(self, batches: Sequence[Batch], done: float) -> int:
        """Update the model with the next batches of all processes; return their targets.

        Args:
            batches: The batches of the epoch.
            done: The part of the plan that is done, which determines the learning rate.
        """
        progress, config = self.progress, self.config
        together = config.accumulate * self.processes.world_size
        group = batches[progress.batches : progress.batches + together]
        progress.step += 1
        progress.batches += len(group)
        rate = learning_rate(
            progress.step,
            done,
            peak_rate=config.peak_rate,
            warmup_steps=config.warmup_steps,
            d_model=config.d_model,
        )
        self._loss += self.learner.update(group, rate)
        targets = sum(self.task.count(batch) for batch in group)
        progress.targets += targets
        return targets

    # The clock

    def _seconds(self) -> float:
        """Return the time that the training has taken, in seconds."""
        return time.monotonic() - self._started

    def _part_done(self, epochs: float) -> float:
        """Compute which part of the plan is done; the clock of the first process decides."""
        if self.config.minutes is None:
            return self.plan.part_done(epochs, 0.0)
        return self.processes.broadcast(lambda: self.plan.part_done(epochs, self._seconds()))

    def _warn_if_late(self, minutes: float) -> None:
        planned = self.config.minutes
        if planned and minutes > planned + max(1.0, planned / 10.0) and self.processes.is_first:
            note = f"the plan of {planned:g} minutes took {minutes:.1f}, with the last validation"
            log.warning(f"{note}; a machine that other programs use is slower")

    # The training loss

    def _begin_loss(self) -> None:
        """Continue the sum of the loss, which the first process holds."""
        has_float64 = self.device.type in ("cpu", "cuda")
        dtype = torch.float64 if has_float64 else torch.float32
        self._loss = torch.zeros((), dtype=dtype, device=self.device)
        if self.processes.is_first:
            self._loss += self.progress.loss

    def _sum_loss(self) -> None:
        """All-reduce the training loss into the progress; then only the first process holds it."""
        total = self.processes.all_reduce_sum(self._loss.clone())
        self.progress.loss = self._check_finite(float(total))
        self._loss.copy_(total if self.processes.is_first else torch.zeros_like(total))
        if self.progress.targets:
            self.display.note_loss(self.progress.loss / self.progress.targets)

    def _check_finite(self, loss: float) -> float:
        if not math.isfinite(loss):
            raise UserError(
                f"the loss is {loss} at step {self.progress.step}; "
                "lower the learning rate and begin again, or resume from the last checkpoint"
            )
        return loss

    # After each validation

    def _report(self, speed: float, events: EventWriter) -> None:
        """Validate the averaged weights, save them if they are the best, and log the metrics."""
        progress = self.progress
        train_loss = progress.loss / max(progress.targets, 1)
        progress.loss, progress.targets = 0.0, 0
        with self.display.validating(lambda: self.plan.status(progress.epoch, self._seconds())):
            average = self._gather_average().eval()
            figures = self.processes.broadcast(lambda: self.task.validate(average))
        self._check_finite(figures["validation_loss"])
        is_best = not progress.best or self.task.is_better(figures, progress.best)
        # A score such as BLEU may stand still for epochs while the loss falls, and rise again at
        # the end of the plan, when the learning rate is low.
        losses = [each["validation_loss"] for each in (progress.best, *self.metrics) if each]
        has_gained = is_best or figures["validation_loss"] < min(losses)
        progress.best = figures if is_best else progress.best
        progress.validations_without_gain = (
            0 if has_gained else progress.validations_without_gain + 1
        )
        progress.seconds = self._seconds()
        self.metrics.append(
            {
                "epoch": progress.epoch,
                "step": progress.step,
                "train_loss": train_loss,
                **figures,
                f"{self.task.unit}_per_second": speed,
                "minutes": progress.seconds / 60.0,
            }
        )
        if self.processes.is_first:
            self._write_metrics()
            events.write(self.metrics[-1])
        if is_best:
            self._save_best()
        self._save()  # last: what a kill before it loses is computed again
        if self.processes.is_first:
            self.display.report(
                self.metrics[-1],
                figures,
                speed=speed,
                is_best=is_best,
                sample=self._compute_sample(average),
            )
            self.on_report()

    def _gather_average(self) -> Model:
        """Return the model with the averaged weights; if it is sharded, in the first process only.

        There it is whole until the validation is over: decoding needs all layers at every step.
        """
        if not self.learner.sharded:
            return self.learner.average
        whole = None
        if self.processes.is_first:
            with same_random_state(self.device):
                whole = self.build().to(self.device)
        state = {} if whole is None else whole.state_dict()
        for name, tensor in self.learner.average_state().items():
            gathered = gather(tensor)  # one tensor at a time; all processes take part
            if state:
                state[name].copy_(gathered)
        return self.model if whole is None else whole

    def _compute_sample(self, model: Model) -> Sample | None:
        """Let the model generate from the fixed example, if it is shown."""
        if self.sample is None or not self.display.shows_samples:
            return None
        with same_random_state(self.device):
            return self.sample(model)

    def _open_events(self) -> EventWriter:
        """Open the events for TensorBoard, which the first process writes."""
        folder = self.run.folder / "tensorboard" if self.processes.is_first else None
        return EventWriter(folder, self.progress.step, self.metrics)


@contextmanager
def join_training(folder: Path, device: torch.device) -> Iterator[tuple[Processes, FolderLock]]:
    """Join the processes of a training; the first one locks the folder of its run.

    The training continues to its end even if its output is not read.

    Raises:
        UserError: If another training is using the folder, or the processes do not start.
    """
    lock = FolderLock(folder)
    with (
        join_processes(device) as processes,
        finishing_unread(),
        resumable(lock),
        lock if processes.is_first else nullcontext(),
    ):
        yield processes, lock


@contextmanager
def resumable(lock: FolderLock) -> Iterator[None]:
    """Add the hint to use ``--resume`` to an interruption, once there is a checkpoint.

    It also resumes a training that is done: it makes the results again.
    """
    try:
        yield
    except KeyboardInterrupt:
        if lock.is_committed:
            raise KeyboardInterrupt("(resume the training with --resume)") from None
        raise


def train(
    trainings: Sequence[Training[Any, Any]],
    run: Run[AnyConfig],
    config: AnyConfig,
    lock: FolderLock,
) -> None:
    """Run the trainings of one run, one after another, each from its last checkpoint.

    Args:
        trainings: The trainings, in the order in which they run.
        run: The run that they belong to.
        config: Its configuration, which replaces the one in ``config.json`` once all trainings
            have accepted it.
        lock: The lock of the run's folder.

    Raises:
        UserError: If one of them refuses to resume; nothing has been trained or changed then.
    """
    resumed = [training.resume() for training in trainings]
    if trainings[0].processes.is_first:
        run.accept(config)
    for training, is_resumed in zip(trainings, resumed, strict=True):
        if is_resumed and training.processes.is_first:
            name = training.title or training.run.folder
            print(f"{name}: resuming after {training.progress}", flush=True)
        training.fit(on_begin=lock.commit)
