"""What the training loop promises: its plan, its stops, and what several processes share."""

import hashlib
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.examples.common.recording import recorded_updates
from tests.examples.tiny_run import SETTINGS, TranslationTraining, begin

import common.training
from common.checkpoint import checkpoint_paths, latest_checkpoint, load_checkpoint, step_of
from common.distributed import Processes
from common.errors import UserError
from common.run import Run
from common.training import Progress
from translation.batches import Example, make_batches
from translation.presets import TranslatorConfig
from translation.training import TranslationTask


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


def test_training_learns_far_more_than_nothing(trained: TranslationTraining) -> None:
    rows = trained.metrics
    guess = math.log(trained.task.tokenizers[1].vocab_size)  # the loss where nothing is known
    assert rows[0]["train_loss"] > 0.75 * guess
    assert max(rows[-1]["train_loss"], rows[-1]["validation_loss"]) < 0.5 * guess


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
    torch.rand(7)  # as another training between the two draws random numbers
    second.fit()
    assert fingerprint(second) == fingerprint(trained)
    kept = [step_of(path) for path in checkpoint_paths(second.run.snapshots)]
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
    batches = make_batches(second.task.train_set, batch_tokens=24, seed=0, epoch=0)
    assert second.progress.batches == 3 < len(batches)
    read, update = [], second.learner.update

    def note(group: list[list[Example]], rate: float) -> torch.Tensor:
        read.extend(group)
        return update(group, rate)

    second.learner.update = note  # type: ignore[method-assign, assignment]
    second.fit()
    assert read == batches[3:]
    assert second.progress.step == 3 + math.ceil(len(batches[3:]) / 2)


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


def test_each_update_of_each_process_and_seed_has_its_own_dropout_and_always_the_same(
    tmp_path: Path,
) -> None:
    def drawn(rank: int, seed: int) -> list[float]:
        folder = tmp_path / f"{rank} {seed}"
        training = begin(
            folder, replace(SETTINGS, seed=seed, epochs=1), processes=Processes(rank, 1)
        )
        found = []

        def note(*_: Any) -> torch.Tensor:
            found.append(float(torch.rand(())))
            return torch.zeros(())

        training.learner.update = note  # type: ignore[method-assign, assignment]
        training.fit()
        assert len(found) > 2
        return found

    torch.manual_seed(1)
    numbers = drawn(0, 0)
    shutil.rmtree(tmp_path / "0 0")
    torch.manual_seed(2)
    assert drawn(0, 0) == numbers
    others = [*drawn(1, 0), *drawn(0, 1)]
    assert len({*numbers, *others}) == len(numbers) + len(others)


def test_processes_that_find_different_checkpoints_are_stopped(
    trained: TranslationTraining, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = begin(trained.run.folder)
    monkeypatch.setattr(training.processes, "broadcast", lambda compute: "another path")
    with pytest.raises(UserError, match="all processes must use one file system"):
        training.resume()


def test_a_model_that_diverges_in_its_last_update_is_not_saved_as_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures = {"validation_loss": math.nan, "validation_bleu": 0.0}
    monkeypatch.setattr(TranslationTask, "validate", lambda *_: figures)
    training = begin(tmp_path / "run", replace(SETTINGS, epochs=1))
    with pytest.raises(UserError, match="the loss is nan at step"):
        training.fit()
    assert latest_checkpoint(training.run.best) is None


# ------------------------------------------------------------------ the plan


@pytest.mark.parametrize(
    ("scores", "losses", "best"),
    [
        ([3.0, 4.0, 4.0, 3.5, 3.8], [1.0] * 5, 2),  # of equals, the first; not the last
        ([4.0, 5.0, 5.0, 5.0], [2.0, 1.7, 1.5, 1.5], 3),  # of equal scores, the lower loss
        ([5.0, 4.0, 6.0], [1.0, 0.9, 2.0], 3),  # the score counts first
    ],
)
def test_the_best_epoch_is_saved(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scores: list[float],
    losses: list[float],
    best: int,
) -> None:
    names = "validation_loss", "validation_bleu"
    figures = (dict(zip(names, each, strict=True)) for each in zip(losses, scores, strict=True))
    monkeypatch.setattr(TranslationTask, "validate", lambda *_: next(figures))
    training = begin(tmp_path / "run", replace(SETTINGS, epochs=len(losses)))
    training.fit()
    rows = training.metrics
    assert [row["validation_bleu"] for row in rows] == scores
    (path,) = training.run.best.iterdir()
    assert step_of(path) == rows[best - 1]["step"]
    state = load_checkpoint(path).state
    assert [state[name] for name in names] == [losses[best - 1], scores[best - 1]]


class Clock:
    """A clock that goes on by a second each time it is read."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        self.now += 1.0
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(common.training, "time", SimpleNamespace(monotonic=clock.monotonic))
    return clock


def test_a_plan_in_minutes_lets_the_rate_fall_with_the_clock_and_ends_with_it(
    tmp_path: Path, clock: Clock
) -> None:
    settings = replace(SETTINGS, epochs=1, warmup_steps=3, minutes=0.5)
    training = begin(tmp_path / "run", settings)
    asked: list[tuple[float, float]] = []
    update = training.learner.update

    def note(group: Any, rate: float) -> torch.Tensor:
        asked.append((training.progress.seconds, rate))
        return update(group, rate)

    training.learner.update = note  # type: ignore[method-assign, assignment]
    training.fit()
    assert 0.0 < asked[0][0] < clock.now - 1000.0
    for step, (now, rate) in enumerate(asked, start=1):
        fall = 1.0 - now / 30.0
        assert rate == pytest.approx(1e-2 * min(step / 3, fall), rel=1e-9)
    rows = training.metrics
    assert len(rows) > 1  # the plan in epochs says one
    assert asked[-1][0] < 30.0 <= rows[-1]["minutes"] * 60.0 < 40.0


def test_minutes_that_end_between_two_epochs_add_no_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: Clock
) -> None:
    training = begin(tmp_path / "run", replace(SETTINGS, minutes=5.0))
    save = training._save

    def save_slowly() -> None:
        save()
        clock.now += 400.0 if training.metrics else 0.0

    monkeypatch.setattr(training, "_save", save_slowly)
    training.fit()
    assert training.progress.epoch == len(training.metrics) == 1
    assert training.metrics[0]["minutes"] < 5.0  # the rest of the plan went by while it was saved
    again = begin(tmp_path / "run", replace(SETTINGS, minutes=5.0))
    assert again.resume()
    with recorded_updates() as recorded:
        again.fit()
    assert not recorded
    assert again.metrics == training.metrics


def test_a_resumed_training_goes_on_with_the_time_that_it_had_taken(
    tmp_path: Path, clock: Clock
) -> None:
    settings = replace(SETTINGS, minutes=1.0)
    kill_at_save(begin(tmp_path / "run", settings, save_steps=4), 6, after=True)
    clock.now += 1000.0  # nobody trains
    training = begin(tmp_path / "run", settings)
    assert training.resume()
    taken, begun = training.progress.seconds, clock.now
    assert taken > 20.0
    training.fit()
    assert clock.now - begun < 60.0 - taken + 10.0


def test_the_speed_counts_target_tokens_with_their_ends_by_the_clock(
    tmp_path: Path, clock: Clock
) -> None:
    training = begin(tmp_path / "run", replace(SETTINGS, epochs=2))
    readings = clock.now
    training.fit()
    tokens = sum(len(each.target) + 1 for each in training.task.train_set)
    for row in training.metrics:  # every second is a reading
        seconds = tokens / row["tokens_per_second"]
        assert seconds == round(seconds) <= clock.now - readings


def test_the_plan_that_the_command_line_names_last_counts(tmp_path: Path) -> None:
    """A run that was begun with minutes, and is resumed with epochs, is planned in epochs."""
    run = Run(tmp_path, TranslatorConfig)
    for begun, chosen, plan in (
        ({"minutes": 5.0}, {"epochs": 3}, (3, None)),
        ({"minutes": 5.0}, {"minutes": 7.0}, (SETTINGS.epochs, 7.0)),
        ({"epochs": 2}, {"minutes": 7.0}, (2, 7.0)),
        ({"minutes": 5.0}, {}, (SETTINGS.epochs, 5.0)),
    ):
        run.write_config(replace(SETTINGS, **begun))
        config = run.choose_config(SETTINGS, chosen, resume=True)
        assert (config.epochs, config.minutes) == plan
        half = Progress(epoch=1, seconds=60.0).part_done(config, 1.0)
        assert half == pytest.approx(1 / (config.minutes or 3))
