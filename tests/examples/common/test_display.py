"""What a training shows in terminals of several widths, and in a pipe."""

import logging
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from rich.cells import cell_len
from tests.examples.common.terminals import Screen, terminal
from tests.examples.common.test_training import fingerprint, kill_at_save
from tests.examples.tiny_run import SETTINGS, TranslationTraining, begin

import common.terminal
from common.terminal import Display, LogHandler


@pytest.fixture(autouse=True)
def _every_update_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(common.terminal, "INTERVAL", 0.0)


def percents(screen: Screen) -> list[int]:
    """Return the percentages of all bars that were drawn."""
    return [int(bar.partition("%")[0].split()[-1]) for bar in screen.bars]


def test_a_training_shows_one_line_of_progress_below_its_table_and_changes_no_bit(
    tmp_path: Path, trained: TranslationTraining
) -> None:
    training = begin(tmp_path / "run")
    translate = training.task.sample

    def translate_and_draw(model: Any) -> str:
        assert not model.training
        torch.rand(7)  # as a sample that is generated at random
        return translate(model)

    training.task.sample = translate_and_draw  # type: ignore[method-assign]
    with terminal(80) as screen:
        training.fit()
    assert fingerprint(training) == fingerprint(trained)
    assert all(cell_len(line) <= 80 for line in screen.lines)
    _, *rest = (line for line in screen.lines if line not in screen.bars)
    for row, sample, metrics in zip(rest[::2], rest[1::2], training.metrics, strict=True):
        names = ("epoch", "train_loss", "validation_loss", "validation_bleu", "minutes")
        expected = [metrics[name] for name in names]
        assert [float(cell) for cell in row.split()[:5]] == pytest.approx(expected, abs=0.06)
        assert sample.startswith("      ")
        assert "。 → " in sample
    assert re.search(r"\033\[32m +1 ", screen.raw)  # the best row
    assert percents(screen) == sorted(percents(screen))
    assert percents(screen)[0] == 0
    assert percents(screen)[-1] == 100
    for place in ("validation", *(f"epoch {number} of 6  loss " for number in range(1, 7))):
        assert any(place in bar for bar in screen.bars)
    assert all(bar.endswith(" left") for bar in screen.bars)
    assert "\033[2K" in screen.raw.rpartition("%")[2]  # the bar is gone


def test_a_resumed_training_begins_its_bar_at_the_part_that_is_done(
    tmp_path: Path, trained: TranslationTraining
) -> None:
    folder = tmp_path / "run"
    kill_at_save(begin(folder, save_steps=4), 4, after=True)
    training = begin(folder)
    assert training.resume()
    epochs = training.progress.epoch + training.progress.batches / 7
    assert epochs > 1
    with terminal(80) as screen:
        training.fit()
    assert percents(screen)[0] == math.floor(100 * epochs / 6)
    assert fingerprint(training) == fingerprint(trained)


def test_a_pipe_receives_one_line_for_each_epoch_and_no_sample_is_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    training = begin(tmp_path / "run", replace(SETTINGS, epochs=2))

    def fail(model: object) -> str:
        raise AssertionError("nobody would see it")

    training.task.sample = fail  # type: ignore[method-assign]
    training.fit()
    captured = capsys.readouterr()
    assert captured.err == ""
    lines = captured.out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == ["epoch", "1", "2"]
    assert "train loss" in lines[1]
    assert "valid BLEU" in lines[1]


def test_a_message_of_the_log_is_not_written_into_the_bar(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with terminal(80) as screen:
        monkeypatch.setattr(logging.getLogger(), "handlers", [LogHandler()])  # no other's
        with Display("epoch") as display:
            display.update(0.5, "epoch 1 of 2")
            logging.getLogger("common").warning("a message")
            display.update(0.6, "epoch 1 of 2")
    assert [line for line in screen.lines if line not in screen.bars] == ["a message"]
    assert percents(screen)[-1] == 60


def test_only_the_first_of_several_processes_shows_anything() -> None:
    with terminal(80) as screen, Display("step", is_shown=False) as display:
        display.update(0.5, "")
        assert not display.is_terminal
    assert screen.raw == ""
