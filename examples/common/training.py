"""Training: one loop for any model and task, which can be killed and resumed at any time.

The loop updates the model (:class:`common.learner.Learner`), validates it, saves it, and keeps the
weights of the best validation. A :class:`common.learner.Task` defines the batches, the loss, the
validation, and which validation is better. The learning rate rises during the warm-up and falls to
zero at the planned end, which is a number of updates, of epochs or of minutes
(:class:`common.plan.Progress`).

A checkpoint holds everything that the next update depends on: weights, their average, the moments
of Adam, the states of the random number generators, the metrics, and the progress within the epoch.
So a training that is stopped and resumed ends with the same bits as one that was never stopped;
only where a clock decides, as in a plan of minutes, the two may differ.
"""

import json
import logging
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic

import torch

from common.checkpoint import Checkpoint, DamagedCheckpointError, latest_checkpoint, save_checkpoint
from common.display import Display, Sample, Status
from common.distributed import Processes, join_processes
from common.errors import UserError
from common.files import FolderLock, write_atomically
from common.learner import (
    Batch,
    Learner,
    Model,
    Task,
    get_random_state,
    learning_rate,
    set_random_state,
)
from common.plan import Progress
from common.run import AnyConfig, Config, Run

log = logging.getLogger(__name__)


class Training(Generic[Model, Batch]):
    """One training, from its beginning or from its last checkpoint.

    Args:
        run: The run whose folder holds checkpoints, best weights and metrics.
        config: The run's configuration; its plan may differ from the one in ``config.json``.
        build: Makes the model, with fresh weights.
        task: The batches, the loss and the validation.
        device: The device to compute on.
        processes: The processes that train together; this one alone by default.
        save_steps: Number of updates after which a checkpoint is saved, besides one after each
            validation.
        keep: Number of checkpoints that are kept.
        snapshots: Whether the weights after 0, 1, 2, 5, 10, 20, 50 ... updates are validated and
            kept in the run's ``snapshots``. The training computes the same.
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
        save_steps: int | None = None,
        keep: int = 2,
        snapshots: bool = False,
        on_report: Callable[[], object] = lambda: None,
        title: str = "",
        sample: Callable[[Model], Sample] | None = None,
    ) -> None:
        processes = Processes() if processes is None else processes
        torch.manual_seed(config.seed)
        self.learner: Learner[Model, Batch] = Learner(
            build().to(device), task, average=config.average, processes=processes
        )
        if not processes.is_first:  # equal weights, but other random numbers for dropout
            torch.manual_seed(config.seed + 1_000_003 * processes.rank)
        self.run, self.config, self.task = run, config, task
        self.device, self.processes = device, processes
        self.save_steps, self.keep, self.snapshots = save_steps, keep, snapshots
        self.on_report, self.title, self.sample = on_report, title, sample
        self.random_state = get_random_state(device)
        self.progress = Progress()
        self.metrics: list[dict[str, Any]] = []
        self.display = Display(
            title,
            task.unit,
            by_steps=config.report_steps is not None,
            is_shown=processes.is_first,
        )
        self._started = 0.0  # on the clock, as if the training had never been stopped
        self._loss = torch.zeros(())  # of this process, since the losses were summed last

    @property
    def model(self) -> Model:
        """The model that is trained."""
        return self.learner.model

    # The loop

    def fit(self, *, on_begin: Callable[[], object] = lambda: None) -> None:
        """Train until the plan is done, or until the validations no longer become better.

        Args:
            on_begin: Called as soon as there is a checkpoint to resume from.
        """
        set_random_state(self.device, self.random_state)
        self.learner.wrap()
        self._started = time.monotonic() - self.progress.seconds
        if not self.processes.broadcast(self.run.checkpoints.exists):
            self._save()  # a training that is killed at once can be resumed
        on_begin()
        self._keep_snapshot()
        with self.display:
            while not self.processes.broadcast(lambda: self.progress.is_done(self.config)):
                speed = self._train_until_validation()
                if speed is None:
                    self._save()  # the plan is done, also for a training that resumes
                    break
                self._report(speed)

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
            return progress.status(self.config, progress.epochs(len(batches)), self._seconds())

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
            self._keep_snapshot()
            if progress.step % 100 == 0:
                self._sum_loss()
            if report_steps is not None and progress.step % report_steps == 0:
                break
            is_within = progress.batches < len(batches)  # the end of an epoch is saved anyway
            if self.save_steps and progress.step % self.save_steps == 0 and is_within:
                self._sum_loss()
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
            return self.progress.part_done(self.config, epochs, 0.0)
        return self.processes.broadcast(
            lambda: self.progress.part_done(self.config, epochs, self._seconds())
        )

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
        total = self.processes.all_reduce_sum(self._loss)
        self.progress.loss = self._check_finite(float(total))
        self._begin_loss()
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

    def _report(self, speed: float) -> None:
        """Validate the averaged weights, save them if they are the best, and log the metrics."""
        progress = self.progress
        train_loss = progress.loss / max(progress.targets, 1)
        progress.loss, progress.targets = 0.0, 0
        done = progress.status(self.config, progress.epoch, self._seconds())
        self.display.show(lambda: done._replace(place="validation"))
        average, figures = self._validate()
        is_best = not progress.best or self.task.is_better(figures, progress.best)
        # A score such as BLEU may stand still for epochs while the loss falls, and rise again at
        # the end of the plan, when the learning rate is low.
        losses = [each["validation_loss"] for each in (progress.best, *self.metrics) if each]
        has_gained = is_best or figures["validation_loss"] < min(losses)
        progress.best = figures if is_best else progress.best
        progress.validations_without_gain = (
            0 if has_gained else progress.validations_without_gain + 1
        )
        self.metrics.append(
            {
                "epoch": progress.epoch,
                "step": progress.step,
                "train_loss": train_loss,
                **figures,
                f"{self.task.unit}_per_second": speed,
                "minutes": self._seconds() / 60.0,
            }
        )
        if self.processes.is_first:
            self._write_metrics()
        if is_best:
            self._save_weights(self.run.best, figures, keep=1)
        self._save()  # last: what a kill before it loses is computed again
        if self.processes.is_first:
            self.display.report(
                self.metrics[-1],
                figures,
                is_best=is_best,
                sample=self._compute_sample(average),
            )
            self.on_report()

    def _validate(self) -> tuple[Model, dict[str, float]]:
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

    def _compute_sample(self, model: Model) -> Sample | None:
        """Let the model generate from the fixed example, if it is shown."""
        if self.sample is None or not self.display.shows_samples:
            return None
        with torch.random.fork_rng([self.device] if self.device.type == "cuda" else []):
            return self.sample(model)

    # Saving and restoring

    def _save(self) -> None:
        """Save everything that the next update depends on."""
        self.progress.seconds = self._seconds()
        self.random_state = get_random_state(self.device)
        if self.processes.is_first:
            self.run.folder.mkdir(exist_ok=True)
        random_states = {
            f"{rank}.{kind}": tensor
            for rank, states in enumerate(self.processes.gather(self.random_state))
            for kind, tensor in states.items()
        }
        state = {
            "config": self.config.definition,
            "metrics": self.metrics,
            "progress": asdict(self.progress),
        }
        tensors = {**self.learner.tensors(), "random": random_states}
        self._write(self.run.checkpoints, tensors, state, keep=self.keep)

    def _save_weights(self, folder: Path, figures: dict[str, float], *, keep: int) -> None:
        """Save the averaged weights and their metrics."""
        state = {"config": self.config.definition, "epoch": self.progress.epoch, **figures}
        self._write(folder, {"model": self.learner.average_state()}, state, keep=keep)

    def _write(self, folder: Path, tensors: Any, state: dict[str, Any], *, keep: int) -> None:
        """Let the first process, which holds what all hold, write a checkpoint."""
        step = self.progress.step
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
        best, checkpoint = map(self._latest, (self.run.best, self.run.checkpoints))
        if checkpoint is None:
            if best is not None:
                raise UserError(
                    f"{self.run.folder} holds trained weights but no checkpoint to resume from; "
                    "choose another --run"
                )
            return False
        self.processes.agree(lambda: self._restore(checkpoint))
        if best is None:  # the best weights were lost: the next validation is the best one again
            self.progress.best = {}
        if self.processes.is_first and self.run.metrics.exists():
            self._write_metrics()  # those of the checkpoint, from which the training resumes
        return True

    def _latest(self, folder: Path) -> Checkpoint | None:
        """Load the newest checkpoint, the same one in all processes."""
        found = self.processes.agree(lambda: latest_checkpoint(folder))
        paths = {None if found is None else found.path}
        if len(paths.union(*self.processes.gather(paths))) > 1:
            raise UserError(
                f"the processes find different checkpoints in {folder}; all processes must use one "
                "file system, which all machines share"
            )
        if found is not None:
            self.config.check_trained(found, file=self.run.config_file)
        return found

    def _restore(self, checkpoint: Checkpoint) -> None:
        state, mine = checkpoint.state, f"{self.processes.rank}."
        try:
            self.progress, self.metrics = Progress(**state["progress"]), [*state["metrics"]]
            self.learner.restore(checkpoint.tensors)
            random_states = checkpoint.tensors["random"]
            saved = sum(name.endswith(".cpu") for name in random_states)
            if self.processes.rank < saved:
                self.random_state = {
                    name.removeprefix(mine): tensor
                    for name, tensor in random_states.items()
                    if name.startswith(mine)
                }
                set_random_state(self.device, self.random_state)  # raises if it is none
        except Exception as error:  # whatever a file that someone else made can provoke
            raise DamagedCheckpointError(
                f"{checkpoint.path} holds no state of a training: {error!r}"
            ) from error
        if saved != self.processes.world_size:
            log.warning(
                "%s was saved by %d processes, and there are %d now: the random numbers of dropout "
                "and the batches of each update will differ",
                *(self.run.checkpoints, saved, self.processes.world_size),
            )


@contextmanager
def join_training(folder: Path, device: torch.device) -> Iterator[tuple[Processes, FolderLock]]:
    """Join the processes of a training; the first one locks the folder of its run.

    An interruption names the option ``--resume``, once there is a checkpoint. It also resumes a
    training that is done: it makes the results again.

    Raises:
        UserError: If another training is using the folder, or the processes do not start.
    """
    lock = FolderLock(folder)
    try:
        with (
            join_processes(device) as processes,
            lock if processes.is_first else nullcontext(),
        ):
            yield processes, lock
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
