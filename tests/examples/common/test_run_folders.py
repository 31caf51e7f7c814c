"""Run folders: no program loses what others put there, or accepts what has changed."""

import errno
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import pytest
import torch
from matplotlib.image import imread
from tests.examples.classification.test_classify import write_reviews
from tests.examples.common.test_checkpoint import snapshot
from tests.examples.tiny_run import PLAN, TranslationTraining, begin, write_files
from tests.examples.translation.test_translate import one_error_line

import classify
import generate_text
import translate
from classification import commands as classify_commands
from classification.learning import ClassifierConfig
from common import plots
from common.checkpoint import load_checkpoint, save_checkpoint
from common.errors import UserError
from common.files import FolderLock
from common.run import Run
from common.tokenizer import Tokenizer
from text import commands as text_commands
from text.learning import TextConfig
from translation import commands as translate_commands
from translation.decoding import load_translator
from translation.presets import TranslatorConfig

SIZES = ["--num-layers", "1", "--d-model", "16", "--num-heads", "2", "--d-ff", "24"]


@dataclass
class Program:
    """A program that trains.

    Attributes:
        module: Its module.
        config: The class of its configuration.
        commands: The module that trains.
        loader: The name of what loads its data there.
        files: The names of the files that only its runs hold.
        length: The option of how long it trains.
        plan: The options of a small training.
        data: The options that name what it learns from.
        run: A finished run; tests read it and leave it as it is.
    """

    module: Any
    config: Any
    commands: ModuleType
    loader: str
    files: set[str]
    length: str
    plan: list[str]
    data: list[str] = field(default_factory=list)
    run: Path = Path()

    @property
    def name(self) -> str:
        return str(self.module.__name__)

    def train(self, folder: Path, *options: str) -> int:
        """Train in a folder; return the exit status."""
        command = ["train", "--run", str(folder), *self.data, *self.plan, *options]
        return int(self.module.main(command))

    def call(self, command: str, folder: Path, *options: str) -> int:
        """Call a command with options of its own alone; return the exit status."""
        return int(self.module.main([command, "--run", str(folder), *options]))


TRANSLATE = Program(
    *(translate, TranslatorConfig, translate_commands, "corpus_of"),
    {"source.model", "target.model", "loss.png", "attention.png", "explorer.html"},
    *("--epochs", PLAN),
)
CLASSIFY = Program(
    *(classify, ClassifierConfig, classify_commands, "data_of"),
    {"tokenizer.model", "loss.png", "attention.png"},
    *("--steps", [*SIZES, "--steps", "4", "--batch-size", "4", "--vocabulary", "60"]),
)
GENERATE = Program(
    *(generate_text, TextConfig, text_commands, "text_of"),
    {"tokenizer.model", "loss.png"},
    *("--steps", [*SIZES, "--steps", "4", "--batch-size", "2", "--vocabulary", "60"]),
)
PROGRAMS = TRANSLATE, CLASSIFY, GENERATE


@pytest.fixture(autouse=True)
def _hasty_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(scope="module", autouse=True)
def _runs(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Write what the programs learn from, and finish a run of each."""
    folder = tmp_path_factory.mktemp("runs")
    TRANSLATE.data, CLASSIFY.data = write_files(folder), write_reviews(folder)
    GENERATE.data = ["--text", TRANSLATE.data[3]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plots, "as_png", lambda _: b"")  # to draw takes longer than to train
        for program in PROGRAMS:
            program.run = folder / program.name
            assert program.train(program.run) == 0


@pytest.fixture(params=PROGRAMS, ids=lambda program: program.name)
def program(request: pytest.FixtureRequest) -> Program:
    found: Program = request.param
    return found


def copy(run: Path, folder: Path) -> Path:
    shutil.copytree(run, folder)
    return folder


@pytest.mark.usefixtures("pictures")
def test_a_finished_run_holds_its_files_and_pictures(program: Program, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "first, try"
    assert program.train(folder) == 0
    shared = {"config.json", "checkpoints", "best", "metrics.jsonl"}
    assert {path.name for path in folder.iterdir()} == shared | program.files
    for picture in folder.glob("*.png"):
        assert imread(picture).ndim == 3


# Nothing of others is lost


def test_an_interrupted_beginning_removes_only_what_it_made(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "new" / "run"

    def interrupted(*_: object, **__: object) -> None:
        shutil.copytree(program.run, folder, dirs_exist_ok=True)  # by another process
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(program.commands, program.loader, interrupted)
        assert program.train(folder) == 130
    assert snapshot(folder) == snapshot(program.run)
    shutil.rmtree(folder.parent)

    def alone(*arguments: Any, **options: Any) -> None:
        train(*arguments, **options)
        raise KeyboardInterrupt

    train = Tokenizer.train
    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "train", alone)
        assert program.train(folder) == 130
    assert snapshot(tmp_path) == {"new": None}


def test_a_training_that_meets_another_writes_nothing(
    program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new, old = tmp_path / "new", copy(program.run, tmp_path / "old")
    for folder, resume in ((new, []), (old, ["--resume"]), (old, [])):
        with FolderLock(folder):
            before = snapshot(folder)
            assert program.train(folder, *resume) == 2
            assert f"another training is using {folder}" in one_error_line(capsys)
            assert snapshot(folder) == before


def test_a_tokenizer_of_somebody_else_is_not_overwritten(
    program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in (name for name in program.files if name.endswith(".model")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_bytes(b"theirs")
        assert program.train(folder) == 2
        lines = capsys.readouterr().err.rstrip("\n").split("\n")
        assert f"error: {folder / name} exists already" in lines[-1]
        assert snapshot(folder) == {name: b"theirs"}


def test_a_beginning_that_was_killed_begins_again(program: Program, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for file in program.run.glob("*.model"):
        shutil.copy(file, folder)
    (folder / ".lock").touch()
    assert program.train(folder, "--resume") == 0
    found, expected = (
        {re.sub("-[0-9a-f]{16}", "", name) for name in snapshot(each)}  # without checksums
        for each in (folder, program.run)
    )
    assert found == expected


def test_a_refused_command_changes_no_byte(
    program: Program,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, plan = copy(program.run, tmp_path / "run"), program.length

    def refuse(message: str, *options: str) -> None:
        before = snapshot(folder)
        capsys.readouterr()
        assert program.call("train", folder, *options) == 2
        assert message in " ".join(capsys.readouterr().err.split())
        assert snapshot(folder) == before

    refuse("resume it with --resume")
    refuse("was begun with seed=0, got 3", "--resume", "--seed", "3")
    refuse(f'"0" for {plan}. Must be >= 1', "--resume", plan, "0")

    def changed(*_: object, **__: object) -> None:
        raise UserError("the corpus has changed")

    more = "--resume", plan, "99"
    with monkeypatch.context() as patch:
        patch.setattr(program.commands, program.loader, changed)
        refuse("the corpus has changed", *more)
    run: Any = Run(folder, program.config)
    other_config = replace(run.read_config(), seed=1).identity
    for weights in (run.checkpoints, run.best):  # of another run with the same sizes
        shutil.move(weights, tmp_path / weights.name)
        save_again(tmp_path / weights.name, weights, config=other_config)
        refuse("belongs to another run", *more)
        shutil.rmtree(weights)
        shutil.move(tmp_path / weights.name, weights)
    shutil.rmtree(run.checkpoints)
    refuse("no checkpoint to resume from", "--resume")
    run.config_file.unlink()
    refuse("holds weights but no config.json")


def save_again(source: Path, folder: Path, **changes: Any) -> None:
    """Save the newest checkpoint of a folder into another one, with parts of it changed."""
    checkpoint = load_checkpoint(max(source.iterdir()))
    tensors, state = (
        parts | {name: changes[name] for name in parts.keys() & changes.keys()}
        for parts in (checkpoint.tensors, checkpoint.state)
    )
    save_checkpoint(folder, step=checkpoint.step, tensors=tensors, state=state)


def test_a_plan_is_changed_once_it_is_accepted_and_carried_out(
    program: Program, tmp_path: Path
) -> None:
    folder, plan = copy(program.run, tmp_path / "run"), program.length.removeprefix("--")
    assert program.call("train", folder, "--resume", program.length, "6") == 0
    assert json.loads((folder / "config.json").read_text())[plan] == 6
    rows = [json.loads(row) for row in (folder / "metrics.jsonl").read_text().splitlines()]
    done = [row[plan.removesuffix("s")] for row in rows]
    assert done == ([1, 2, 3, 4, 5, 6] if program is TRANSLATE else [4, 6])


# Nothing that has changed is accepted


def test_data_that_have_changed_are_refused(
    program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, files = tmp_path / "run", [Path(word) for word in program.data[1::2]]
    own = [Path(shutil.copy(file, tmp_path)) for file in files]  # other tests read those
    named = [word for pair in zip(program.data[::2], map(str, own), strict=True) for word in pair]
    assert program.call("train", folder, *named, *program.plan) == 0
    for path in own:
        path.write_bytes(path.read_bytes() + f"after\tone more for {path.name}\n".encode())
    capsys.readouterr()
    for command, *options in (["evaluate"], ["train", "--resume", program.length, "99"]):
        assert program.call(command, folder, *options) == 2
        assert "changed since the run began" in one_error_line(capsys)


def test_a_configuration_is_refused_where_any_bit_or_any_field_was_changed(
    program: Program, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run: Any = Run(copy(program.run, tmp_path / "run"), program.config)
    config, written = run.read_config(), run.config_file.read_bytes()
    for place in range(len(written)):
        changed = bytearray(written)
        changed[place] ^= 1 << place % 7
        run.config_file.write_bytes(changed)
        with suppress(UserError):
            assert run.read_config() == config  # as 1E-05 is 1e-05
    for name in vars(config).keys() - {*program.config.CHANGEABLE}:
        assert replace(config, **{name: "another"}).identity != config.identity, name
    run.write_config(replace(config, seed=1))
    assert program.call("evaluate", run.folder) == 2
    assert "with another configuration" in " ".join(capsys.readouterr().err.split())


@pytest.fixture
def run(tmp_path: Path, trained: TranslationTraining) -> Run[TranslatorConfig]:
    """A copy of a finished run of the translator, to be damaged."""
    return Run(copy(trained.run.folder, tmp_path / "run"), TranslatorConfig)


def test_another_or_a_damaged_tokenizer_is_refused_and_a_missing_one_named(
    run: Run[TranslatorConfig],
) -> None:
    path = run.tokenizer_file("source")
    saved = path.read_bytes()
    for content in (run.tokenizer_file("target").read_bytes(), saved[:-1], saved[:-1] + b"?", b""):
        path.write_bytes(content)
        with pytest.raises(UserError, match=f"{path} is not the tokenizer that this run was"):
            run.load_tokenizers(run.read_config())
    path.unlink()
    with pytest.raises(OSError, match=f"No such file .*'{path}'"):
        run.load_tokenizers(run.read_config())


def test_a_run_without_weights_says_so(run: Run[TranslatorConfig]) -> None:
    shutil.rmtree(run.best)
    with pytest.raises(UserError, match="holds no weights yet"):
        load_translator(run, torch.device("cpu"))


@pytest.mark.parametrize(
    "change", [{"optimizer": {}}, {"progress": {"pages": 3}}, {"metrics": None}, {"config": None}]
)
def test_a_state_that_is_none_is_refused_in_one_line(
    run: Run[TranslatorConfig], change: dict[str, Any]
) -> None:
    save_again(run.checkpoints, run.checkpoints, **change)
    with pytest.raises(UserError, match=rf"\A.*{run.checkpoints}.*\Z"):
        begin(run.folder).resume()


@pytest.mark.parametrize(
    "text",
    [
        *("[" * 100_000 + "]" * 100_000, '{"a": ' * 100_000, '{"\\ud800": 1}', "[]", "NaN", "\x00"),
        '{"seed": ' + "9" * 5000 + "}",
    ],
    ids=lambda text: text[:30].encode("unicode_escape").decode(),
)
def test_a_malformed_configuration_is_refused_in_one_line(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(text)
    assert TRANSLATE.call("evaluate", tmp_path) == 2
    error = one_error_line(capsys)
    assert str(tmp_path / "config.json") in error
    assert len(error) < 1000


def outputs_that_fail() -> Iterator[tuple[int, TextIO]]:
    """Standard outputs that fail at the first line, each with the exit status it leads to."""
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w", encoding="utf-8", buffering=1) as unread:  # noqa: PTH123
        yield 1, unread
    with Path("/dev/full").open("w", encoding="utf-8", buffering=1) as full:
        yield 2, full


def test_an_output_that_cannot_be_written_sets_the_exit_status(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for status, stream in outputs_that_fail():
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", stream)
            assert program.call("evaluate", program.run) == status
    for _, stream in outputs_that_fail():
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stream)
            assert program.call("evaluate", tmp_path / "nowhere") == 2
        stream.flush()  # as Python does at its end


def test_no_output_is_written_over_a_file_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(translate_commands, "load_translator", None)  # it is refused before
    folder, link = copy(TRANSLATE.run, tmp_path / "run"), tmp_path / "link"
    before = snapshot(folder)
    link.symlink_to(folder)
    files = [
        *(folder / "config.json", folder / "source.model", folder / "metrics.jsonl"),
        *(folder / "checkpoints" / "new", folder / "best" / "new"),
        *(link / "config.json", folder / "best" / ".." / "config.json"),
    ]
    for file in files:
        for command in (["evaluate"], ["explore", "--sentence", "犬"]):
            assert translate.main([*command, "--output", str(file), "--run", str(folder)]) == 2
            assert "belongs to the run" in one_error_line(capsys)
    for output in (folder, link, folder / "best", folder / "checkpoints" / "new"):
        assert translate.main(["compare", str(folder), "--output", str(output)]) == 2
        assert re.search("holds a run|belongs to the run", one_error_line(capsys))
    assert snapshot(folder) == before


def test_a_comparison_removes_only_the_picture_of_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(translate_commands, "attention_along", lambda *_: [])
    monkeypatch.setattr(translate_commands, "comparison_figure", lambda *_, **__: None)
    theirs = tmp_path / "attention.png"
    theirs.write_bytes(b"theirs")
    command = ["compare", str(TRANSLATE.run), "--output", str(tmp_path)]
    for remains in (True, False):  # there was no comparison before the first one
        assert translate.main(command) == 0
        assert theirs.exists() == remains


def test_a_training_that_fails_before_its_first_checkpoint_leaves_nothing_behind(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "runs" / "run"
    for options in ([], ["--resume"]):
        with Path("/dev/full").open("w", encoding="utf-8") as full, monkeypatch.context() as patch:
            patch.setattr(sys, "stdout", full)
            assert program.train(folder, *options) == 2
        assert snapshot(tmp_path) == {"runs": None}

    replace = Path.replace

    def refuse(self: Path, target: Path) -> Path:
        if target.suffix == ".safetensors":  # the last step of saving a checkpoint
            raise OSError(errno.ENOSPC, "No space left on device")
        return replace(self, target)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", refuse)
        assert program.train(folder) == 2
    assert not (folder / "config.json").exists()
    assert program.train(folder) == 0


def test_a_message_with_a_name_that_is_not_utf_8_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(written))
    assert translate.main(["evaluate", "--run", str(tmp_path / "\udcff")]) == 2
    sys.stderr.flush()
    assert b"\xff holds no run" in written.getvalue()
