"""State: everything that the next update of a training depends on, saved and restored.

A checkpoint holds weights, their average, the moments of Adam, the states of the random number
generators, the metrics, and the progress within the epoch. So a training that is stopped and
resumed ends with the same bits as one that was never stopped; only where a clock decides, as in a
plan of minutes, the two may differ.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Generic

import torch

from common.checkpoint import (
    Checkpoint,
    DamagedCheckpointError,
    latest_checkpoint,
    load_weights,
    save_checkpoint,
)
from common.configuration import check_fields, is_row
from common.errors import UserError
from common.files import write_atomically
from common.learner import Batch, Learner, Model, load_moments
from common.plan import Plan, Progress
from common.run import REPORTED, Config, Run
from common.sharding import copy_parts, empty_like

log = logging.getLogger(__name__)


class TrainingState(Generic[Model, Batch]):
    """The state of a training: of a new one, or as its last checkpoint holds it.

    Args:
        run: The run whose folder holds checkpoints, best weights and metrics.
        config: The run's configuration; its plan may differ from the one in ``config.json``.
        learner: The model, with fresh weights, and its optimiser.
        keep: Number of checkpoints that are kept.
    """

    def __init__(
        self, run: Run[Any], config: Config, learner: Learner[Model, Batch], *, keep: int
    ) -> None:
        self.run, self.config, self.learner, self.keep = run, config, learner, keep
        self.device, self.processes = learner.device, learner.processes
        self.random_state = get_random_state(self.device)
        self.progress = Progress()
        self.metrics: list[dict[str, Any]] = []

    @property
    def model(self) -> Model:
        """The model that is trained."""
        return self.learner.model

    @property
    def plan(self) -> Plan:
        """The plan of the training, and how far it has come."""
        return Plan(self.config, self.progress)

    # Saving

    def _save(self) -> None:
        """Save everything that the next update depends on."""
        self.random_state = get_random_state(self.device)
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

    def _write_metrics(self) -> None:
        lines = "".join(json.dumps(row) + "\n" for row in self.metrics)
        write_atomically(self.run.metrics, lines.encode())

    # Restoring

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
        self.plan.check_reached(self.run)
        if self.processes.broadcast(lambda: best is None):
            self._restore_best()
        if self.processes.is_first and self.run.metrics.exists():
            self._write_metrics()  # those of the checkpoint, from which the training resumes
        return True

    def _latest(self, folder: Path) -> Checkpoint | None:
        """Load the newest checkpoint; if the model is sharded, the part of this process."""
        if not self.learner.sharded:
            return latest_checkpoint(folder)
        empty = empty_like(self.model.parameters())
        return latest_checkpoint(folder, processes=self.processes, empty=empty)

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
            set_random_state(self.device, self.random_state)  # raises if it is none

    def _restore_best(self) -> None:
        """Save the best weights again, if they were lost, as far as that is possible."""
        progress = self.progress
        if self.metrics and self.metrics[-1]["step"] == progress.step:
            row = self.metrics[-1]
            progress.best = {name: row[name] for name in row if name.startswith("validation_")}
            self._save_best()
        else:
            progress.best = {}  # the next validation is the best one again


def get_random_state(device: torch.device) -> dict[str, Any]:
    """Return the states of the random number generators of the CPU and of a device."""
    states = {"cpu": torch.get_rng_state()}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    elif device.type == "mps":
        states["mps"] = torch.mps.get_rng_state()
    return states


def set_random_state(device: torch.device, states: dict[str, Any]) -> None:
    """Set the states of the random number generators, as far as they are known."""
    torch.set_rng_state(states["cpu"])
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    elif device.type == "mps" and "mps" in states:
        torch.mps.set_rng_state(states["mps"])


@contextmanager
def same_random_state(device: torch.device) -> Iterator[None]:
    """Let random numbers that are drawn inside change nothing afterwards."""
    states = get_random_state(device)
    yield
    set_random_state(device, states)
