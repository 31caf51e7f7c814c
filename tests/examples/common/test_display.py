"""What a training shows in terminals of several widths, and in a pipe."""

import logging
import math
import re
from dataclasses import replace
from itertools import pairwise
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


def ends_of_columns(line: str) -> set[int]:
    """Return the positions at which the columns of a table end."""
    joined = line.replace("train ", "train_").replace("valid ", "valid_")
    return {i for i, (a, b) in enumerate(pairwise(f"{joined} ")) if a != " " and b == " "}


@pytest.mark.parametrize("columns", [80, 60])
def test_a_training_shows_one_line_of_progress_below_its_table_and_changes_no_bit(
    tmp_path: Path, trained: TranslationTraining, columns: int
) -> None:
    training = begin(tmp_path / "run")
    translate = training.task.sample

    def translate_and_draw(model: Any) -> str:
        assert not model.training
        torch.rand(7)  # as a sample that is generated at random
        return translate(model)

    training.task.sample = translate_and_draw  # type: ignore[method-assign]
    with terminal(columns) as screen:
        training.fit()
    assert fingerprint(training) == fingerprint(trained)

    assert all(cell_len(line) <= columns for line in [*screen.lines, *screen.drawn])
    assert not any("%" in line for line in screen.lines)  # the bar is gone
    blank, header, *rest = screen.lines
    assert blank == rest.pop() == ""
    samples = [line for line in rest if line.startswith("      ")]
    valid = {pair.source for pair in training.task.corpus.validation}
    assert len({line.split()[0] for line in samples} & valid) == 1
    if columns == 80:
        assert [line.split()[1] for line in samples] == ["→"] * 6
    rows = [line for line in rest if line not in samples]
    assert [row.split()[0] for row in rows] == ["1", "2", "3", "4", "5", "6"]
    for row, metrics in zip(rows, training.metrics, strict=True):
        assert ends_of_columns(row) <= ends_of_columns(header)
        numbers = [float(cell) for cell in row.split()[1:5]]
        names = ("train_loss", "validation_loss", "validation_bleu", "minutes")
        assert numbers == pytest.approx([metrics[name] for name in names], abs=0.06)
    assert re.search(r"\033\[32m +1 ", screen.raw)  # the best row

    assert percents(screen) == sorted(percents(screen))
    assert percents(screen)[0] == 0
    assert percents(screen)[-1] == 100
    for number in range(1, 7) if columns == 80 else ():
        assert any(f"epoch {number} of 6  loss " in bar for bar in screen.bars)
    if columns == 80:
        assert any("validation" in bar for bar in screen.bars)
        assert all(bar.endswith(" left") for bar in screen.bars)


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
    assert screen.lines == ["a message", ""]
    assert percents(screen)[-1] == 60


@pytest.mark.parametrize("name", ["bleu", "accuracy", "perplexity"])
@pytest.mark.parametrize("place", ["epoch", "step"])
def test_the_table_of_every_task_fits_into_80_columns(name: str, place: str) -> None:
    figures = {"validation_loss": 12.3456, f"validation_{name}": 99.987}
    row = {"epoch": 12, "step": 123456, "train_loss": 10.5, "minutes": 1234.5, **figures}
    with terminal(80) as screen, Display(place) as display:
        display.update(0.5, "step 123,456 of 250,000")
        display.report(row, is_best=True)
    header, line = screen.lines[1:3]
    assert ends_of_columns(line) <= ends_of_columns(header)
    assert all(cell_len(line) <= 80 for line in [*screen.lines, *screen.drawn])


def test_only_the_first_of_several_processes_shows_anything() -> None:
    with terminal(80) as screen, Display("step", is_shown=False) as display:
        display.update(0.5, "")
        assert not display.is_terminal
    assert screen.raw == ""
