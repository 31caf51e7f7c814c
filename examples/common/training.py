"""Training: one loop for any model and task, which can be killed and resumed at any time.

The loop updates the model (:class:`common.learner.Learner`), validates it, saves it, and keeps the
weights of the best validation. A :class:`common.task.Task` defines the batches, the loss, the
validation, and which validation is better. The learning rate rises during the warm-up and falls to
zero at the planned end, which is a number of updates, of epochs or of minutes.

A checkpoint holds everything that the next update depends on: weights, their average, the moments
of Adam, the states of the random number generators, and the progress within the epoch. So a
training that is stopped and resumed ends with the same bits as one that was never stopped; only
where a clock decides, as in a plan of minutes, the two may differ.
"""

import json
import logging
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Generic

import torch
from torch import Tensor

from common.checkpoint import (
    Checkpoint,
    DamagedCheckpointError,
    latest_checkpoint,
    load_weights,
    save_checkpoint,
)
from common.configuration import check_fields, is_row
from common.display import Display, Sample, Status
from common.distributed import Processes, join_processes
from common.errors import UserError
from common.events import EventWriter
from common.files import FolderLock, write_atomically
from common.learner import Batch, Learner, Model, learning_rate, load_moments
from common.program import finishing_unread
from common.run import REPORTED, AnyConfig, Config, Run
from common.sharding import build_sharded, copy_parts, empty_like, gather
from common.task import Task
from common.terminal import counted

log = logging.getLogger(__name__)


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
        validations_without_gain: Number of validations since the last one that was better, or had
            a lower loss, than all before.
    """

    epoch: int = 0
    batches: int = 0
    step: int = 0
    seconds: float = 0.0
    loss: float = 0.0
    targets: int = 0
    best: dict[str, float] = field(default_factory=dict)
    validations_without_gain: int = 0

    RANGES: ClassVar[dict[str, str]] = {
        **dict.fromkeys(("epoch", "batches", "step", "seconds", "loss", "targets"), "at least 0"),
        "validations_without_gain": "at least 0",
    }

    def __str__(self) -> str:
        """Name the last update, with its place in the data."""
        place = counted(self.epoch, "epoch")
        if self.batches:
            place += f" and {counted(self.batches, 'batch')}"
        return f"step {self.step} ({place})"


class Training(Generic[Model, Batch]):
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
        self.run, self.config, self.task, self.device = run, config, task, device
        self.processes = Processes() if processes is None else processes
        self.save_steps, self.keep = save_steps, keep
        self.on_report, self.title, self.sample = on_report, title, sample
        self.display = Display(
            title,
            task.unit,
            by_steps=config.report_steps is not None,
            is_shown=self.processes.is_first,
        )
        self.build = build
        torch.manual_seed(config.seed)
        world_size = self.processes.world_size
        model = build_sharded(build, world_size, device) if sharded else build().to(device)
        self.learner: Learner[Model, Batch] = Learner(
            model,
            task,
            average=config.average,
            processes=self.processes,
            sharded=sharded,
        )
        if not self.processes.is_first:  # equal weights, but other random numbers for dropout
            torch.manual_seed(config.seed + 1_000_003 * self.processes.rank)
        self.random_state = self._get_random_state()
        self.progress = Progress()
        self.metrics: list[dict[str, Any]] = []

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
        self._set_random_state(self.random_state)
        self.learner.wrap()
        if not self.processes.broadcast(self.run.checkpoints.exists):
            self._save()  # a training that is killed at once can be resumed
        on_begin()
        started = time.monotonic() - self.progress.seconds
        with self.display, closing(self._open_events()) as events:
            while not self.processes.broadcast(lambda: self.finished):
                speed = self._train_until_validation(started)
                if speed is None:
                    self.progress.seconds = time.monotonic() - started
                    self._save()  # the plan is done, also for a training that resumes
                    break
                self._report(speed, started, events)
        took, planned = (time.monotonic() - started) / 60.0, self.config.minutes
        if planned and took > planned + max(1.0, planned / 10.0) and self.processes.is_first:
            note = f"the plan of {planned:g} minutes took {took:.1f}, with the last validation"
            log.warning(f"{note}; a machine that other programs use is slower")

    def _open_events(self) -> EventWriter:
        """Open the events for TensorBoard, which the first process writes."""
        folder = self.run.folder / "tensorboard" if self.processes.is_first else None
        return EventWriter(folder, self.progress.step, self.metrics)

    @property
    def finished(self) -> bool:
        """Whether the plan is done, or ``patience`` validations in a row brought no gain."""
        patience, progress = self.config.patience, self.progress
        if patience is not None and progress.validations_without_gain >= patience:
            return True
        return self.part_done(progress.epoch, progress.seconds) >= 1.0

    def part_done(self, epochs: float, seconds: float) -> float:
        """Compute which part of the plan is done, from 0 to 1."""
        config = self.config
        if config.minutes is not None:
            return min(1.0, seconds / (60.0 * config.minutes))
        if config.epochs is not None:
            return min(1.0, epochs / config.epochs)
        return self.progress.step / (config.steps or 1)

    def _train_until_validation(self, started: float) -> float | None:
        """Update the model until the next validation.

        Returns:
            The number of targets per second; None if the planned minutes ended before the first
            update, so that there is nothing to validate.
        """
        config, progress, report_steps = self.config, self.progress, self.config.report_steps
        has_float64 = self.device.type in ("cpu", "cuda")
        dtype = torch.float64 if has_float64 else torch.float32
        loss = torch.zeros((), dtype=dtype, device=self.device)
        if self.processes.is_first:
            loss += progress.loss
        together = config.accumulate * self.processes.world_size
        batches = self.task.batches(progress.epoch)

        def status() -> Status:
            return self._status(progress.epoch + progress.batches / len(batches), started)

        self.display.begin(status)
        begun, already = time.monotonic(), progress.targets
        self.model.train()
        while True:
            if progress.batches == len(batches):
                progress.epoch, progress.batches = progress.epoch + 1, 0
                if report_steps is None:
                    break
                batches = self.task.batches(progress.epoch)
            done = self._part_done_now(started, progress.epoch + progress.batches / len(batches))
            if done >= 1.0:
                if self.metrics and not progress.targets:
                    return None
                if report_steps is None:  # the minutes are over: the epoch ends here
                    progress.epoch, progress.batches = progress.epoch + 1, 0
                break
            group = batches[progress.batches : progress.batches + together]
            progress.step += 1
            progress.batches += len(group)
            loss += self.learner.update(group, self._learning_rate(done))
            targets = sum(self.task.count(batch) for batch in group)
            progress.targets += targets
            self.display.update(targets, status)
            if progress.step % 100 == 0:
                self._sum_loss(loss)
            if report_steps is not None and progress.step % report_steps == 0:
                break
            is_within = progress.batches < len(batches)  # the end of an epoch is saved anyway
            if self.save_steps and progress.step % self.save_steps == 0 and is_within:
                self._sum_loss(loss)
                progress.seconds = time.monotonic() - started
                self._save()
        self._sum_loss(loss)
        return (progress.targets - already) / (time.monotonic() - begun)

    def _part_done_now(self, started: float, epochs: float) -> float:
        """Compute which part of the plan is done; the clock of the first process decides."""
        if self.config.minutes is None:
            return self.part_done(epochs, 0.0)
        return self.processes.broadcast(lambda: self.part_done(epochs, time.monotonic() - started))

    def _learning_rate(self, done: float) -> float:
        config = self.config
        return learning_rate(
            self.progress.step,
            done,
            peak_rate=config.peak_rate,
            warmup_steps=config.warmup_steps,
            d_model=config.d_model,
        )

    def _sum_loss(self, loss: Tensor) -> None:
        """All-reduce the training loss into the progress; then only the first process holds it."""
        total = self.processes.all_reduce_sum(loss.clone())
        self.progress.loss = self._check_finite(float(total))
        loss.copy_(total if self.processes.is_first else torch.zeros_like(total))
        if self.progress.targets:
            self.display.note_loss(self.progress.loss / self.progress.targets)

    def _check_finite(self, loss: float) -> float:
        if not math.isfinite(loss):
            raise UserError(
                f"the loss is {loss} at step {self.progress.step}; "
                "lower the learning rate and begin again, or resume from the last checkpoint"
            )
        return loss

    def _status(self, epochs: float, started: float) -> Status:
        """Describe for the display how far the training has come."""
        config, progress = self.config, self.progress
        seconds = time.monotonic() - started
        done = self.part_done(epochs, seconds)
        planned = None
        if config.minutes is not None:
            planned = max(0.0, 60.0 * config.minutes - seconds)
            place = f"{min(seconds / 60.0, config.minutes):.1f} of {config.minutes:g} min"
        elif config.epochs is not None:
            place = f"epoch {min(progress.epoch + 1, config.epochs)} of {config.epochs}"
        else:
            place = f"step {progress.step:,} of {config.steps or 1:,}"
        come = epochs if config.report_steps is None else progress.step / config.report_steps
        validations = 0
        if 0.0 < done < 1.0:  # those of the whole plan without those that are done
            validations = math.ceil(come / done - 1e-6) - math.floor(come + 1e-6)
        return Status(done, place, validations, planned)

    # After each validation

    def _report(self, speed: float, started: float, events: EventWriter) -> None:
        """Validate the averaged weights, save them if they are the best, and log the metrics."""
        progress = self.progress
        train_loss = progress.loss / max(progress.targets, 1)
        progress.loss, progress.targets = 0.0, 0
        with self.display.validating(lambda: self._status(progress.epoch, started)):
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
        progress.seconds = time.monotonic() - started
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
        whole = self._build_anew() if self.processes.is_first else None
        state = {} if whole is None else whole.state_dict()
        for name, tensor in self.learner.average_state().items():
            gathered = gather(tensor)  # one tensor at a time; all processes take part
            if state:
                state[name].copy_(gathered)
        return self.model if whole is None else whole

    def _build_anew(self) -> Model:
        """Build the model once more, without changing the random numbers of the training."""
        states = self._get_random_state()
        model = self.build().to(self.device)
        self._set_random_state(states)
        return model

    def _compute_sample(self, model: Model) -> Sample | None:
        """Let the model generate from the fixed example, if it is shown."""
        if self.sample is None or not self.display.shows_samples:
            return None
        states = self._get_random_state()
        sample = self.sample(model)
        self._set_random_state(states)
        return sample

    def _write_metrics(self) -> None:
        lines = "".join(json.dumps(row) + "\n" for row in self.metrics)
        write_atomically(self.run.metrics, lines.encode())

    def _save_best(self) -> None:
        save_checkpoint(
            self.run.best,
            step=self.progress.step,
            tensors={"model": self.learner.average_state()},
            state={
                "config": self.config.definition,
                "epoch": self.progress.epoch,
                **self.progress.best,
            },
            keep=1,
            processes=self.processes,
        )

    # Checkpoints

    def _save(self) -> None:
        """Save everything that the next update depends on."""
        self.random_state = self._get_random_state()
        learner = self.learner
        if self.processes.is_first:
            self.run.folder.mkdir(exist_ok=True)
        save_checkpoint(
            self.run.checkpoints,
            step=self.progress.step,
            tensors={"model": learner.model.state_dict(), "average": learner.average_state()},
            state={
                "config": self.config.definition,
                "metrics": self.metrics,
                "optimizer": learner.optimizer.state_dict(),
                "averaged": int(learner.moving.n_averaged),
                "random": self.processes.gather(self.random_state),
                "progress": asdict(self.progress),
            },
            keep=self.keep,
            processes=self.processes,
        )

    def _latest(self, folder: Path) -> Checkpoint | None:
        """Load the newest checkpoint; if the model is sharded, the part of this process."""
        if not self.learner.sharded:
            return latest_checkpoint(folder)
        empty = empty_like(self.model.parameters())
        return latest_checkpoint(folder, processes=self.processes, empty=empty)

    def resume(self) -> bool:
        """Return to the last checkpoint, if there is one; return whether there was.

        Raises:
            UserError: If a checkpoint is damaged or of another run, if more has been trained than
                is planned now, or if there are best weights but no checkpoint.
        """
        best = self._latest(self.run.best)
        if best is not None:
            self.config.check_trained(best, file=self.run.config_file)
        checkpoint = self._latest(self.run.checkpoints)
        if checkpoint is None:
            if best is not None:
                raise UserError(
                    f"{self.run.folder} holds trained weights but no checkpoint to resume from; "
                    "choose another --run"
                )
            return False
        self.processes.agree(lambda: self._restore(checkpoint))
        self._check_plan()
        if self.processes.broadcast(lambda: best is None):
            self._restore_best()
        if self.processes.is_first and self.run.metrics.exists():
            self._write_metrics()  # those of the checkpoint, from which the training resumes
        return True

    def _restore(self, checkpoint: Checkpoint) -> None:
        self.config.check_trained(checkpoint, file=self.run.config_file)
        self._restore_weights(checkpoint)
        try:
            self._restore_state(checkpoint.state)
        except Exception as error:  # whatever a file that someone else made can provoke
            raise DamagedCheckpointError(
                f"{checkpoint.path} holds no state of a training: {error!r}"
            ) from error

    def _restore_weights(self, checkpoint: Checkpoint) -> None:
        learner, tensors, path = self.learner, checkpoint.tensors, checkpoint.path
        if not learner.sharded:
            load_weights(learner.model, tensors["model"], path=path)
            load_weights(learner.average, tensors["average"], path=path)
            return
        try:
            copy_parts(learner.model.state_dict(), tensors["model"])
            copy_parts(learner.average_state(), tensors["average"])
        except ValueError as error:
            raise UserError(f"{path}: {error}") from error

    def _restore_state(self, state: dict[str, Any]) -> None:
        check_fields(Progress, state["progress"], Progress.RANGES)
        rows, best = state["metrics"], state["progress"]["best"]
        best_is_row = not best or is_row(best, {"validation_loss"})
        if not best_is_row or not all(is_row(row, REPORTED) for row in rows):
            raise ValueError("a metric is missing")
        self.progress, self.metrics = Progress(**state["progress"]), list(state["metrics"])
        self.learner.moving.n_averaged.fill_(state["averaged"])
        load_moments(self.learner.optimizer, state["optimizer"])
        random_states, world_size = state["random"], self.processes.world_size
        if not random_states:
            raise ValueError("it holds no state of a random number generator")
        if len(random_states) != world_size:
            log.warning(
                "%s was saved by %d processes, and there are %d now: the random numbers of dropout "
                "and the batches of each update will differ",
                *(self.run.checkpoints, len(random_states), world_size),
            )
        if self.processes.rank < len(random_states):
            self.random_state = random_states[self.processes.rank]
            self._set_random_state(self.random_state)  # raises if it is none

    def _check_plan(self) -> None:
        """Raise if the plan was changed to one that ends before the checkpoint."""
        progress, minutes = self.progress, self.progress.seconds / 60.0
        epochs = progress.epoch + bool(progress.batches)
        reached = {
            "minutes": (minutes, f"{minutes:.1f} minutes"),
            "epochs": (epochs, counted(epochs, "epoch")),
            "steps": (progress.step, counted(progress.step, "step")),
        }
        for name, (number, text) in reached.items():
            if (planned := getattr(self.config, name)) is None:
                continue
            is_new = name != "minutes" or planned != self.run.read_config().minutes
            if planned < number and is_new:
                trained = f"{self.run.folder} has trained for {text} already"
                raise UserError(f"{trained}, got --{name} {planned:.10g}")
            break

    def _restore_best(self) -> None:
        """Save the best weights again, if they were lost, as far as that is possible."""
        progress = self.progress
        if self.metrics and self.metrics[-1]["step"] == progress.step:
            row = self.metrics[-1]
            progress.best = {name: row[name] for name in row if name.startswith("validation_")}
            self._save_best()
        else:
            progress.best = {}  # the next validation is the best one again

    def _get_random_state(self) -> dict[str, Any]:
        states = {"cpu": torch.get_rng_state()}
        if self.device.type == "cuda":
            states["cuda"] = torch.cuda.get_rng_state(self.device)
        elif self.device.type == "mps":
            states["mps"] = torch.mps.get_rng_state()
        return states

    def _set_random_state(self, states: dict[str, Any]) -> None:
        torch.set_rng_state(states["cpu"])
        if self.device.type == "cuda" and "cuda" in states:
            torch.cuda.set_rng_state(states["cuda"], self.device)
        elif self.device.type == "mps" and "mps" in states:
            torch.mps.set_rng_state(states["mps"])


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
