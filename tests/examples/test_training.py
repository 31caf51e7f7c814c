import hashlib
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.examples.tiny_run import SETTINGS, begin
from torch import nn

from common.checkpoint import checkpoint_paths, latest_checkpoint
from common.distributed import Processes
from common.errors import UserError
from common.learner import set_random_state
from translation.batches import Batches
from translation.examples import Example
from translation.training import TranslationTraining


def fingerprint(training: TranslationTraining) -> str:
    """Compute the SHA-256 of everything that a training goes on from, without its clock."""
    checkpoint = latest_checkpoint(training.run.checkpoints)
    assert checkpoint is not None
    digest = hashlib.sha256()
    for group in sorted(checkpoint.tensors):
        for name, tensor in sorted(checkpoint.tensors[group].items()):
            digest.update(name.encode() + tensor.numpy().tobytes())
    progress = {name: x for name, x in checkpoint.state["progress"].items() if name != "seconds"}
    digest.update(str(progress).encode())
    return digest.hexdigest()


def test_training_learns_far_more_than_nothing_and_writes_down_every_epoch(
    trained: TranslationTraining,
) -> None:
    lines = trained.run.metrics.read_text(encoding="utf-8").split("\n")
    rows = [json.loads(line) for line in lines if line]
    assert [row["epoch"] for row in rows] == [1, 2, 3, 4, 5, 6]
    guess = math.log(trained.task.tokenizers[1].vocab_size)  # the loss where nothing is known
    assert rows[0]["train_loss"] > 0.75 * guess
    assert max(rows[-1]["train_loss"], rows[-1]["validation_loss"]) < 0.5 * guess
    assert (trained.run.folder / "loss.png").read_bytes().startswith(b"\x89PNG")


class KilledError(Exception):
    """The process is gone."""


def kill_at_save(training: TranslationTraining, number: int, *, after: bool) -> None:
    """Train until the save of this number, from 1, and stop before it or after it."""
    save, saves = training._save, 0

    def count() -> None:
        nonlocal saves
        saves += 1
        if saves == number and not after:
            raise KilledError
        save()
        if saves == number:
            raise KilledError

    training._save = count  # type: ignore[method-assign]
    with pytest.raises(KilledError):
        training.fit()


@pytest.mark.parametrize(
    ("number", "after"),
    [
        (1, False),
        pytest.param(1, True, marks=pytest.mark.slow),
        pytest.param(3, False, marks=pytest.mark.slow),
        pytest.param(3, True, marks=pytest.mark.slow),
        pytest.param(4, False, marks=pytest.mark.slow),
        (4, True),
    ],
)
def test_a_training_stopped_at_any_save_ends_as_one_that_never_stopped(
    tmp_path: Path, trained: TranslationTraining, number: int, after: bool
) -> None:
    folder = tmp_path / "run"
    kill_at_save(begin(folder, save_steps=4, snapshots=True), number, after=after)
    second = begin(folder, save_steps=5, snapshots=True)
    assert second.resume() == (number > 1 or after)
    second.fit()
    assert fingerprint(second) == fingerprint(trained)
    kept = [int(path.name[5:13]) for path in checkpoint_paths(second.run.snapshots)]
    steps = second.progress.step
    assert kept == [step for step in (0, 1, 2, 5, 10, 20, 50, 100, 200) if step <= steps]
    rows = second.run.metrics.read_text(encoding="utf-8").splitlines()
    expected = trained.run.metrics.read_text(encoding="utf-8").splitlines()
    clocks = {"minutes": 0.0, "tokens_per_second": 0.0}
    assert [json.loads(row) | clocks for row in rows] == [
        json.loads(row) | clocks for row in expected
    ]


def test_an_epoch_resumed_with_larger_updates_reads_every_sentence_once(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "run"
    kill_at_save(begin(folder, save_steps=3), 2, after=True)
    second = begin(folder, replace(SETTINGS, epochs=1))
    assert second.resume()
    second.config = replace(second.config, accumulate=2)
    batches = Batches(second.task.train_set, batch_tokens=24, seed=0, epoch=0)
    assert second.progress.batches == 3 < len(batches)
    read, update = [], second.learner.update

    def note(group: list[list[Example]], rate: float) -> torch.Tensor:
        read.extend(group)
        return update(group, rate)

    second.learner.update = note  # type: ignore[method-assign, assignment]
    second.fit()
    assert read == batches[3:]
    assert second.progress.step == 3 + math.ceil(len(batches[3:]) / 2)


def test_a_loss_of_nan_stops_the_training_before_anything_is_saved(
    tmp_path: Path,
) -> None:
    training = begin(tmp_path / "run")
    with torch.no_grad():
        next(training.model.output.parameters())[0, 0] = math.nan
    with pytest.raises(UserError, match=r"step 0 is not saved: model: tensor .* holds NaN"):
        training.fit()
    assert latest_checkpoint(training.run.checkpoints) is None


def test_a_loss_that_becomes_nan_leaves_an_intact_checkpoint(tmp_path: Path) -> None:
    training = begin(tmp_path / "run", save_steps=3)
    update = training.learner.update

    def break_later(*arguments: Any) -> torch.Tensor:
        return update(*arguments) * (math.nan if training.progress.step > 4 else 1.0)

    training.learner.update = break_later  # type: ignore[method-assign, assignment]
    with pytest.raises(UserError, match="the loss is nan at step 6"):
        training.fit()
    checkpoint = latest_checkpoint(training.run.checkpoints)
    assert checkpoint is not None
    assert checkpoint.step == 3


def test_processes_begin_with_equal_weights_and_different_dropout(tmp_path: Path) -> None:
    class Rank(Processes):  # the other processes are not there
        def wrap(self, model: nn.Module, device: torch.device) -> nn.Module:
            return model

    def begun(rank: int) -> tuple[list[torch.Tensor], torch.Tensor]:
        training = begin(tmp_path / "run", processes=Rank(rank, 3))
        with torch.random.fork_rng():
            set_random_state(training.device, training.random_state)
            return list(training.model.state_dict().values()), torch.rand(4)

    (weights, drawn), *others = (begun(rank) for rank in range(3))
    for other, _ in others:
        assert all(map(torch.equal, other, weights))
    assert len({tuple(numbers.tolist()) for numbers in (drawn, *(each for _, each in others))}) == 3


def test_processes_that_find_different_checkpoints_are_stopped(
    trained: TranslationTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = begin(trained.run.folder)
    monkeypatch.setattr(training.processes, "gather", lambda paths: [paths, {None}])
    with pytest.raises(UserError, match="all processes must use one file system"):
        training.resume()


def test_best_weights_that_are_lost_within_an_epoch_are_followed_by_the_next(
    tmp_path: Path,
) -> None:
    kill_at_save(begin(tmp_path / "run", save_steps=4), 5, after=True)
    shutil.rmtree(tmp_path / "run" / "best")
    training = begin(tmp_path / "run", replace(SETTINGS, epochs=2))
    assert training.resume()
    training.config = replace(training.config, peak_rate=1e-9)
    assert training.progress.batches
    training.fit()
    assert latest_checkpoint(training.run.best) is not None


def test_rows_that_are_no_metrics_are_dropped_on_resume(
    tmp_path: Path, trained: TranslationTraining
) -> None:
    shutil.copytree(trained.run.folder, tmp_path / "run")
    metrics = tmp_path / "run" / "metrics.jsonl"
    whole = metrics.read_bytes()
    metrics.write_bytes(whole + b'\xff\n{"epoch": 1}\n[]\n{"epoch": 7, "min')
    assert begin(tmp_path / "run").resume()
    assert metrics.read_bytes() == whole


def test_a_model_that_diverges_in_its_last_update_is_not_saved_as_best(tmp_path: Path) -> None:
    training = begin(tmp_path / "run", replace(SETTINGS, epochs=1, peak_rate=1e18, warmup_steps=1))
    with pytest.raises(UserError, match=r"the loss is (nan|inf) at step"):
        training.fit()
    assert latest_checkpoint(training.run.best) is None
