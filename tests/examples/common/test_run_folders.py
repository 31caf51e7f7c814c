"""Run folders: no program loses what others put there, or accepts what has changed."""

import errno
import io
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
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
from translation import training as translate_training
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
    *(translate, TranslatorConfig, translate_training, "corpus_of"),
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
    folder = copy(program.run, tmp_path / "run")
    before = snapshot(folder)
    plan = program.length
    for options, message in (
        ([], "resume it with --resume"),
        (["--resume", "--seed", "3"], "was begun with seed=0, got 3"),
        (["--resume", plan, "0"], f'"0" for {plan}. Must be >= 1'),
    ):
        assert program.call("train", folder, *options) == 2
        assert message in one_error_line(capsys)
        assert snapshot(folder) == before

    def changed(*_: object, **__: object) -> None:
        raise UserError("the corpus has changed")

    more = "train", folder, "--resume", plan, "99"
    with monkeypatch.context() as patch:
        patch.setattr(program.commands, program.loader, changed)
        assert program.call(*more) == 2
        assert snapshot(folder) == before
    run: Any = Run(folder, program.config)
    other_config = replace(run.read_config(), seed=1).identity
    for name in ("checkpoints", "best"):  # of another run with the same sizes
        (newest,) = sorted((folder / name).iterdir())[-1:]
        checkpoint = load_checkpoint(newest)
        shutil.move(folder / name, tmp_path / name)
        save_checkpoint(
            folder / name,
            step=checkpoint.step,
            tensors=checkpoint.tensors,
            state=checkpoint.state | {"config": other_config},
        )
        capsys.readouterr()
        mixed = snapshot(folder)
        assert program.call(*more) == 2
        printed = " ".join(capsys.readouterr().err.split())  # with what is logged before it
        assert "belongs to another run" in printed
        assert snapshot(folder) == mixed
        shutil.rmtree(folder / name)
        shutil.move(tmp_path / name, folder / name)
    assert snapshot(folder) == before
    shutil.rmtree(folder / "checkpoints")
    assert program.call("train", folder, "--resume") == 2
    assert "no checkpoint to resume from" in one_error_line(capsys)
    (folder / "config.json").unlink()
    before = snapshot(folder)
    assert program.call("train", folder) == 2
    assert "holds weights but no config.json" in one_error_line(capsys)
    assert snapshot(folder) == before


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


def other(value: object, name: str) -> object:
    """Another value that is in the range of its field."""
    match value:
        case bool():
            return not value
        case int():
            return value + 2 if name == "num_heads" else value + 1
        case float():
            return value / 2 if value else 0.5
        case str():
            return "rnn" if value == "transformer" else f"{value}x"
        case list():
            return [*value[::-1]]
        case dict():
            return {key: str(text)[::-1] for key, text in value.items()}
    if name in ("minutes", "peak_rate"):
        return 0.5
    return 3 if name in ("steps", "epochs", "report_steps") else "x"


@pytest.mark.parametrize("resealed", [False, True])
def test_every_edited_field_of_a_configuration_is_refused(
    program: Program, resealed: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run: Any = Run(copy(program.run, tmp_path / "run"), program.config)
    config, written = run.read_config(), run.config_file.read_bytes()
    free = {"epochs", "minutes", "data_dir", "steps"} if resealed else set()  # of the plan
    for name in vars(config).keys() - free:
        changed = replace(config, **{name: other(getattr(config, name), name)})
        if resealed:
            run.write_config(changed)
        else:
            run.config_file.write_text(json.dumps(json.loads(written) | asdict(changed)))
        assert program.call("evaluate", run.folder) == 2
        message = r"config\.json was changed, or"
        if resealed:
            message = "with another configuration|not the tokenizer|make a valid model"
        assert re.search(message, " ".join(capsys.readouterr().err.split())), name
    run.config_file.write_bytes(written)
    assert program.call("evaluate", run.folder) == 0


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
    with pytest.raises(UserError, match=f"cannot read the tokenizer {path}: No such file"):
        run.load_tokenizers(run.read_config())


def test_a_run_without_weights_says_so(run: Run[TranslatorConfig]) -> None:
    shutil.rmtree(run.best)
    with pytest.raises(UserError, match="holds no weights yet"):
        load_translator(run, torch.device("cpu"))


@pytest.mark.parametrize(
    "change",
    [
        {"optimizer": {}},
        {"progress": {"pages": 3}},
        {"metrics": None},
        {"config": None},
    ],
)
def test_a_state_that_is_none_is_refused_in_one_line(
    run: Run[TranslatorConfig], change: dict[str, Any]
) -> None:
    checkpoint = load_checkpoint(max(run.checkpoints.iterdir()))
    save_checkpoint(
        run.checkpoints,
        step=checkpoint.step,
        tensors=checkpoint.tensors | {k: v for k, v in change.items() if k in checkpoint.tensors},
        state=checkpoint.state | {k: v for k, v in change.items() if k in checkpoint.state},
    )
    with pytest.raises(UserError) as caught:
        begin(run.folder).resume()
    assert str(run.checkpoints) in str(caught.value)
    assert "\n" not in str(caught.value)


DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize(
    "text",
    [
        *(DEEP, '{"a": ' * 100_000, '{"\\ud800": 1}', "[]", "NaN", "\x00"),
        '{"seed": ' + "9" * 5000 + "}",
    ],
    ids=lambda text: text[:30].encode("unicode_escape").decode(),
)
def test_a_malformed_configuration_is_refused_in_one_line(
    program: Program, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(text)
    assert program.call("evaluate", tmp_path) == 2
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
    program: Program, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for status, stream in outputs_that_fail():
        monkeypatch.setattr(sys, "stdout", stream)
        assert program.call("evaluate", program.run) == status
        assert ("error: No space left on device" in capsys.readouterr().err) == (status == 2)


def test_no_output_is_written_over_a_file_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("it should be refused before")

    monkeypatch.setattr(translate_commands, "load_translator", work)
    folder = copy(TRANSLATE.run, tmp_path / "run")
    before = snapshot(tmp_path)
    (tmp_path / "link").symlink_to(folder)
    files = [
        *(folder / "config.json", folder / "source.model", folder / "metrics.jsonl"),
        *(folder / "checkpoints" / "new", folder / "best" / "new"),
        *(tmp_path / "link" / "config.json", folder / "best" / ".." / "config.json"),
    ]
    commands = [["evaluate", "--output"], ["explore", "--sentence", "犬", "--output"]]
    for command in commands:
        for file in files:
            assert translate.main([*command, str(file), "--run", str(folder)]) == 2
            assert "belongs to the run" in one_error_line(capsys)
    for output in (folder, tmp_path / "link", folder / "best", folder / "checkpoints" / "new"):
        assert translate.main(["compare", str(folder), "--output", str(output)]) == 2
        assert re.search("holds a run|belongs to the run", one_error_line(capsys))
    (tmp_path / "link").unlink()
    assert snapshot(tmp_path) == before


def test_a_comparison_removes_only_the_picture_of_an_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("comparison_figure", "side_by_side_figure"):
        monkeypatch.setattr(translate_commands, name, lambda *arguments, **options: None)
    theirs = tmp_path / "attention.png"
    theirs.write_bytes(b"theirs")
    command = ["compare", str(TRANSLATE.run), "--output", str(tmp_path)]
    with monkeypatch.context() as patch:
        patch.setattr(translate_commands, "attention_along", lambda *_: [])
        assert translate.main(command) == 0
        assert theirs.read_bytes() == b"theirs"  # there was no comparison before
        assert translate.main(command) == 0
        assert not theirs.exists()
    theirs.write_bytes(b"of the comparison before")

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(translate_commands, "side_by_side_figure", interrupted)
    assert translate.main(command) == 130
    assert theirs.read_bytes() == b"of the comparison before"


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


def test_an_error_that_cannot_be_printed_sets_the_exit_status(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _, stream in outputs_that_fail():
        monkeypatch.setattr(sys, "stderr", stream)
        assert program.call("evaluate", tmp_path / "nowhere") == 2
        stream.flush()  # as Python does at its end


def test_a_message_with_a_name_that_is_not_utf_8_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(written))
    assert translate.main(["evaluate", "--run", str(tmp_path / "\udcff")]) == 2
    sys.stderr.flush()
    assert b"\xff holds no run" in written.getvalue()
