"""Run folders: no program loses what others put there, or accepts what has changed."""

import errno
import io
import json
import os
import re
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from types import ModuleType
from typing import Any, TextIO

import pytest
import torch
from tests.examples.test_checkpoint import snapshot
from tests.examples.test_classify import order_matters
from tests.examples.test_translate import one_error_line
from tests.examples.tiny_run import SETTINGS, begin, make_corpus

import classify
import generate_text
import translate
from classification import commands as classify_commands
from classification.learning import Config as ClassifierConfig
from common.checkpoint import load_checkpoint, save_checkpoint
from common.errors import UserError
from common.files import FolderLock
from common.run import Run
from common.tokenizer import Tokenizer
from text import commands as text_commands
from text.learning import Config as TextConfig
from translation import commands as translate_commands
from translation import training as translate_training
from translation.presets import Config
from translation.run import load_translator

SIZES = ["--num-layers", "1", "--d-model", "16", "--num-heads", "2", "--d-ff", "24"]
PLANS = {
    translate: ["--epochs", "2", "--vocabulary", "80", "--batch-tokens", "64"],
    classify: [*SIZES, "--steps", "4", "--batch-size", "4", "--vocabulary", "60"],
    generate_text: [*SIZES, "--steps", "4", "--batch-size", "2", "--vocabulary", "60"],
}
PLANS_OF = {translate: "--epochs", classify: "--steps", generate_text: "--steps"}
KINDS = {translate: Config, classify: ClassifierConfig, generate_text: TextConfig}
TRAINERS = {
    translate: translate_training,
    classify: classify_commands,
    generate_text: text_commands,
}
LOADERS = {translate: "corpus_of", classify: "data_of", generate_text: "text_of"}
PICTURES = {
    translate: ["draw_attention"],
    classify: ["plot_accuracy", "plot_encoder_attention"],
    generate_text: ["plot_text_loss"],
}
PROGRAMS = pytest.mark.parametrize("program", list(PLANS), ids=lambda module: module.__name__)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> dict[ModuleType, list[str]]:
    """The options that name what each program learns from."""
    folder = tmp_path_factory.mktemp("data")
    corpus = make_corpus()
    pairs = [*corpus.train, *corpus.validation, *corpus.test]
    reviews = [f"{review.label}\t{review.text}" for review in order_matters(30)]
    texts = {
        "source": [pair.source for pair in pairs],
        "target": [pair.target for pair in pairs],
        "train": reviews[:24],
        "test": reviews[24:],
    }
    for name, lines in texts.items():
        (folder / name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    source, target, train, test = (str(folder / name) for name in texts)
    return {
        translate: ["--source-file", source, "--target-file", target],
        classify: ["--train-file", train, "--test-file", test],
        generate_text: ["--text", target],
    }


@pytest.fixture(autouse=True)
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the drawing, which takes longer than a tiny training, and the waiting for disks."""
    for program, names in PICTURES.items():
        for name in names:
            monkeypatch.setattr(TRAINERS[program], name, lambda *arguments, **options: None)
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture(scope="module")
def runs(
    tmp_path_factory: pytest.TempPathFactory, data: dict[ModuleType, list[str]]
) -> dict[ModuleType, Path]:
    """A finished run of each program; tests read it and leave it as it is."""
    folder = tmp_path_factory.mktemp("runs")
    with pytest.MonkeyPatch.context() as patch:
        no_pictures.__wrapped__(patch)  # type: ignore[attr-defined]
        for program, plan in PLANS.items():
            command = ["train", "--run", str(folder / program.__name__), *data[program], *plan]
            assert program.main(command) == 0
    return {program: folder / program.__name__ for program in PLANS}


def copy(run: Path, folder: Path) -> Path:
    shutil.copytree(run, folder)
    return folder


# Nothing of others is lost


@PROGRAMS
def test_an_interrupted_beginning_removes_only_what_it_made(
    program: ModuleType,
    tmp_path: Path,
    data: dict[ModuleType, list[str]],
    runs: dict[ModuleType, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "new" / "run"
    command = ["train", "--run", str(folder), *data[program], *PLANS[program]]

    def interrupted(*_: object, **__: object) -> None:
        shutil.copytree(runs[program], folder, dirs_exist_ok=True)  # by another process
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(TRAINERS[program], LOADERS[program], interrupted)
        assert program.main(command) == 130
    assert snapshot(folder) == snapshot(runs[program])
    shutil.rmtree(folder.parent)

    def alone(*arguments: Any, **options: Any) -> None:
        train(*arguments, **options)
        raise KeyboardInterrupt

    train = Tokenizer.train
    with monkeypatch.context() as patch:
        patch.setattr(Tokenizer, "train", alone)
        assert program.main(command) == 130
    assert snapshot(tmp_path) == {"new": None}


@PROGRAMS
def test_a_training_that_meets_another_writes_nothing(
    program: ModuleType,
    tmp_path: Path,
    data: dict[ModuleType, list[str]],
    runs: dict[ModuleType, Path],
    capsys: pytest.CaptureFixture[str],
) -> None:
    new, old = tmp_path / "new", copy(runs[program], tmp_path / "old")
    for folder, resume in ((new, []), (old, ["--resume"]), (old, [])):
        with FolderLock(folder):
            before = snapshot(folder)
            command = ["train", "--run", str(folder), *data[program], *PLANS[program], *resume]
            assert program.main(command) == 2
            assert f"another training is using {folder}" in one_error_line(capsys)
            assert snapshot(folder) == before


@PROGRAMS
def test_a_tokenizer_of_somebody_else_is_not_overwritten(
    program: ModuleType,
    tmp_path: Path,
    data: dict[ModuleType, list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    names = ["source.model", "target.model"] if program is translate else ["tokenizer.model"]
    for name in names:
        folder = tmp_path / name
        folder.mkdir()
        (folder / name).write_bytes(b"theirs")
        command = ["train", "--run", str(folder), *data[program], *PLANS[program]]
        assert program.main(command) == 2
        lines = capsys.readouterr().err.rstrip("\n").split("\n")
        assert f"error: {folder / name} exists already" in lines[-1]
        assert snapshot(folder) == {name: b"theirs"}


@PROGRAMS
def test_a_beginning_that_was_killed_begins_again(
    program: ModuleType,
    tmp_path: Path,
    data: dict[ModuleType, list[str]],
    runs: dict[ModuleType, Path],
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    for file in runs[program].glob("*.model"):
        shutil.copy(file, folder)
    (folder / ".lock").touch()
    command = ["train", "--run", str(folder), *data[program], *PLANS[program], "--resume"]
    assert program.main(command) == 0
    assert set(snapshot(folder)) == set(snapshot(runs[program]))


@PROGRAMS
def test_a_refused_command_changes_no_byte(
    program: ModuleType,
    tmp_path: Path,
    runs: dict[ModuleType, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = copy(runs[program], tmp_path / "run")
    before = snapshot(folder)
    plan = PLANS_OF[program]
    for options, message in (
        ([], "resume it with --resume"),
        (["--resume", "--seed", "3"], "was begun with seed=0, got 3"),
        (["--resume", plan, "0"], f"{plan}: must be a whole number "),
    ):
        assert program.main(["train", "--run", str(folder), *options]) == 2
        assert message in one_error_line(capsys)
        assert snapshot(folder) == before

    def changed(*_: object, **__: object) -> None:
        raise UserError("the corpus has changed")

    more = ["train", "--run", str(folder), "--resume", plan, "99"]
    with monkeypatch.context() as patch:
        patch.setattr(TRAINERS[program], LOADERS[program], changed)
        assert program.main(more) == 2
        assert snapshot(folder) == before
    for name in ("checkpoints", "best"):  # of another run with the same sizes
        (newest,) = sorted((folder / name).iterdir())[-1:]
        checkpoint = load_checkpoint(newest)
        config = checkpoint.state["config"] | {"seed": 1}
        shutil.move(folder / name, tmp_path / name)
        save_checkpoint(
            folder / name,
            step=checkpoint.step,
            tensors=checkpoint.tensors,
            state=checkpoint.state | {"config": config},
        )
        capsys.readouterr()
        mixed = snapshot(folder)
        assert program.main(more) == 2
        printed = " ".join(capsys.readouterr().err.split())  # with what is logged before it
        assert "belongs to another run: seed is 0 instead of 1" in printed
        assert snapshot(folder) == mixed
        shutil.rmtree(folder / name)
        shutil.move(tmp_path / name, folder / name)
    assert snapshot(folder) == before
    shutil.rmtree(folder / "checkpoints")
    assert program.main(["train", "--run", str(folder), "--resume"]) == 2
    assert "no checkpoint to resume from" in one_error_line(capsys)
    (folder / "config.json").unlink()
    before = snapshot(folder)
    assert program.main(["train", "--run", str(folder)]) == 2
    assert "holds weights but no config.json" in one_error_line(capsys)
    assert snapshot(folder) == before


@PROGRAMS
def test_a_plan_is_changed_once_it_is_accepted_and_carried_out(
    program: ModuleType, tmp_path: Path, runs: dict[ModuleType, Path]
) -> None:
    folder, plan = copy(runs[program], tmp_path / "run"), PLANS_OF[program].removeprefix("--")
    assert program.main(["train", "--run", str(folder), "--resume", f"--{plan}", "6"]) == 0
    assert json.loads((folder / "config.json").read_text())[plan] == 6
    rows = [json.loads(row) for row in (folder / "metrics.jsonl").read_text().splitlines()]
    done = [row[plan.removesuffix("s")] for row in rows]
    assert done == ([1, 2, 3, 4, 5, 6] if program is translate else [4, 6])


def test_a_corpus_that_is_encoded_again_stays_when_the_training_fails(
    tmp_path: Path, data: dict[ModuleType, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    _, source, _, target = data[translate]
    own = str(shutil.copy(source, tmp_path))  # other tests read that one
    files = ["--source-file", own, "--target-file", target]
    command = ["train", "--run", str(folder), *files, *PLANS[translate]]
    assert translate.main(command) == 0
    names = set(snapshot(folder))
    os.utime(own, (0, 0))  # so that the encoded corpus is stale

    def fail(*_: object) -> None:
        raise UserError("it fails")

    monkeypatch.setattr(translate_training, "train", fail)
    manifest = folder / "corpus" / "manifest.json"
    before = manifest.read_bytes()
    assert translate.main([*command, "--resume"]) == 2
    assert manifest.read_bytes() != before
    assert set(snapshot(folder)) == names


# Nothing that has changed is accepted


@PROGRAMS
def test_data_that_have_changed_are_refused(
    program: ModuleType,
    tmp_path: Path,
    data: dict[ModuleType, list[str]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, files = tmp_path / "run", [Path(word) for word in data[program][1::2]]
    own = [Path(shutil.copy(file, tmp_path)) for file in files]  # other tests read those
    named = [word for pair in zip(data[program][::2], map(str, own), strict=True) for word in pair]
    assert program.main(["train", "--run", str(folder), *named, *PLANS[program]]) == 0
    for path in own:
        path.write_bytes(path.read_bytes() + f"after\tone more for {path.name}\n".encode())
    capsys.readouterr()
    for command in (["evaluate"], ["train", "--resume", PLANS_OF[program], "99"]):
        assert program.main([*command, "--run", str(folder)]) == 2
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
    return 3 if name in ("steps", "epochs", "report_steps", "patience") else "x"


@PROGRAMS
@pytest.mark.parametrize("resealed", [False, True])
def test_every_edited_field_of_a_configuration_is_named(
    program: ModuleType, resealed: bool, tmp_path: Path, runs: dict[ModuleType, Path]
) -> None:
    folder = copy(runs[program], tmp_path / "run")
    free = {"format_version", "epochs", "minutes", "data_dir", "steps"}  # of the plan
    run: Any = Run(folder, KINDS[program])
    config: Any = run.read_config()

    def load() -> object:
        if program is translate:
            return load_translator(run, torch.device("cpu"))
        if program is classify:
            return classify_commands.load(run, run.read_config(), torch.device("cpu"))
        return text_commands.load(Namespace(run=folder, device="cpu"))

    load()
    written = run.config_file.read_bytes()
    for name in vars(config):
        if (resealed and name in free) or name == "format_version":
            continue
        changed = replace(config, **{name: other(getattr(config, name), name)})
        if resealed:
            run.write_config(changed)
        else:
            content = json.loads(written) | asdict(changed)
            run.config_file.write_text(json.dumps(content))
        named = config.TOKENIZERS[0] if name == "tokenizers" else name
        message = f"{named} is|not the tokenizer|make a valid model"
        message = r"config\.json has changed since" if name in free else message
        with pytest.raises(UserError, match=message):
            load()
    run.config_file.write_bytes(written)
    load()


@pytest.fixture(scope="module")
def two_epochs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        no_pictures.__wrapped__(patch)  # type: ignore[attr-defined]
        training = begin(tmp_path_factory.mktemp("runs") / "run", replace(SETTINGS, epochs=2))
        training.fit()
    return training.run.folder


@pytest.fixture
def tiny(tmp_path: Path, two_epochs: Path) -> Run[Config]:
    return Run(copy(two_epochs, tmp_path / "run"), Config)


@pytest.mark.parametrize(
    "change",
    [
        {"optimizer": {}},
        {"random": {"0.cpu": torch.zeros(3, dtype=torch.uint8)}},
        {"progress": {"pages": 3}},
        {"metrics": None},
        {"config": None},
    ],
)
def test_a_state_that_is_none_is_refused_in_one_line(
    tiny: Run[Config], change: dict[str, Any]
) -> None:
    path = max(tiny.checkpoints.iterdir())
    checkpoint = load_checkpoint(path)
    save_checkpoint(
        tiny.checkpoints,
        step=checkpoint.step,
        tensors=checkpoint.tensors | {k: v for k, v in change.items() if k in checkpoint.tensors},
        state=checkpoint.state | {k: v for k, v in change.items() if k in checkpoint.state},
    )
    with pytest.raises(UserError) as caught:
        begin(tiny.folder).resume()
    assert str(tiny.checkpoints) in str(caught.value)
    assert "\n" not in str(caught.value)


DEEP = "[" * 100_000 + "]" * 100_000


@PROGRAMS
@pytest.mark.parametrize(
    "text",
    [
        *(DEEP, '{"a": ' * 100_000, '{"\\ud800": 1}', '{"format_version": "\\ud800"}', "[]", "NaN"),
        *('{"format_version": true}', '{"format_version": 0}', '{"format_version": 1e99}', "\x00"),
        *('{"format_version": ' + "9" * 5000 + "}", '{"format_version": 4, "\\ud800": 1}'),
    ],
    ids=lambda text: text[:30].encode("unicode_escape").decode(),
)
def test_a_malformed_configuration_is_refused_in_one_line(
    program: ModuleType, text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(text)
    assert program.main(["evaluate", "--run", str(tmp_path)]) == 2
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


@PROGRAMS
def test_an_output_that_cannot_be_written_sets_the_exit_status(
    program: ModuleType,
    runs: dict[ModuleType, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for status, stream in outputs_that_fail():
        monkeypatch.setattr(sys, "stdout", stream)
        assert program.main(["evaluate", "--run", str(runs[program])]) == status
        assert ("error: No space left on device" in capsys.readouterr().err) == (status == 2)


def test_no_output_is_written_over_a_file_of_a_run(
    tmp_path: Path,
    runs: dict[ModuleType, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def work(*_: object, **__: object) -> None:
        raise AssertionError("it should be refused before")

    monkeypatch.setattr(translate_commands, "load_translator", work)
    folder, bags = (
        copy(runs[program], tmp_path / program.__name__)
        for program in PLANS
        if program is not generate_text
    )
    before = snapshot(tmp_path)
    (step,) = (folder / "best").iterdir()
    (tmp_path / "link").symlink_to(folder)
    files = [
        *(folder / "config.json", folder / "source.model", folder / "metrics.jsonl"),
        *(folder / "checkpoints" / "new", step / "new", bags / "bag" / "metrics.jsonl"),
        *(tmp_path / "link" / "config.json", folder / "best" / ".." / "config.json"),
    ]
    commands = [
        ["evaluate", "--output"],
        ["explore", "--sentence", "犬", "--output"],
    ]
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
    tmp_path: Path, runs: dict[ModuleType, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("comparison_figure", "side_by_side_figure"):
        monkeypatch.setattr(translate_commands, name, lambda *arguments, **options: None)
    theirs = tmp_path / "attention.png"
    theirs.write_bytes(b"theirs")
    command = ["compare", str(runs[translate]), "--output", str(tmp_path)]
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


@PROGRAMS
def test_a_training_that_fails_before_its_first_checkpoint_leaves_nothing_behind(
    program: ModuleType,
    tmp_path: Path,
    data: dict[ModuleType, list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "runs" / "run"
    command = ["train", "--run", str(folder), *data[program], *PLANS[program]]
    for options in ([], ["--resume"]):
        with (
            Path("/dev/full").open("w", encoding="utf-8") as full,
            monkeypatch.context() as patch,
        ):
            patch.setattr(sys, "stdout", full)
            assert program.main([*command, *options]) == 2
        assert snapshot(tmp_path) == {"runs": None}

    def refuse(self: Path, target: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", refuse)  # the last step of saving a checkpoint
        assert program.main(command) == 2
    assert not (folder / "config.json").exists()
    assert program.main(command) == 0


@PROGRAMS
def test_an_error_that_cannot_be_printed_sets_the_exit_status(
    program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _, stream in outputs_that_fail():
        monkeypatch.setattr(sys, "stderr", stream)
        assert program.main(["evaluate", "--run", str(tmp_path / "nowhere")]) == 2
        stream.flush()  # as Python does at its end


def test_a_message_with_a_name_that_is_not_utf_8_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stderr", io.TextIOWrapper(written))
    assert translate.main(["evaluate", "--run", str(tmp_path / "\udcff")]) == 2
    sys.stderr.flush()
    assert b"\xff holds no run" in written.getvalue()
