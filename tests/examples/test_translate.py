"""The program, run as a person runs it: most tests in this process, some in one of their own."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from tests.examples.tiny_run import PLAN

import translate
from common.run import Run
from translation import commands as translate_commands
from translation import training as translate_training
from translation.presets import Config
from translation.scoring import score
from translation.training import TranslationTraining

ASCII_ONLY = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
PROGRAM = str(Path(translate.__file__))


def run(
    *arguments: str, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [sys.executable, PROGRAM, *arguments],
        capture_output=True,
        timeout=120,
        env=os.environ | (environment or {}),
    )


def one_error_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    lines = captured.err.rstrip("\n").split("\n")
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0]


@pytest.mark.usefixtures("pictures")
def test_train_translate_and_evaluate_in_one_folder(
    tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "runs" / "first, try"
    assert translate.main(["train", "--run", str(folder), *files, *PLAN]) == 0
    assert "Test sentences, none of which is in the training data" in capsys.readouterr().out
    present = {path.name for path in folder.iterdir()}
    assert present == {
        *("config.json", "source.model", "target.model", "checkpoints", "best"),
        *("metrics.jsonl", "loss.png", "attention.png", "explorer.html", "corpus"),
    }
    assert translate.main(["translate", "--run", str(folder), "犬が走る。", "", "猫が眠る。"]) == 0
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 4
    assert lines[1] == lines[3] == ""
    output = tmp_path / "test.txt"
    assert translate.main(["evaluate", "--run", str(folder), "--output", str(output)]) == 0
    report = capsys.readouterr().out
    assert "BLEU" in report
    assert "tok:13a" in report
    assert "nc:6" in report
    assert output.read_text(encoding="utf-8").count("\n") == 1  # five in a hundred of thirty


def test_own_validation_and_test_files_are_used_and_scored_line_by_line(
    tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def held_out(split: str, pairs: list[tuple[str, str]]) -> list[str]:
        options = []
        for number, side in enumerate(("source", "target")):
            path = tmp_path / f"{split}.{side}"
            path.write_text("".join(f"{pair[number]}\n" for pair in pairs), encoding="utf-8")
            options += [f"--{split}-{side}", str(path)]
        return options

    run_options = ["--run", str(tmp_path / "run")]
    valid = held_out("valid", [("犬が歩く。", "The dog walks.")])
    test = held_out("test", [("猫が犬。", "A  cat’s dog."), ("鳥が歩く。", "The bird walks.")])
    assert translate.main(["train", *run_options, *files, *valid, *PLAN]) == 0
    head = capsys.readouterr().out
    assert head.startswith("29 training pairs, 1 validation pair, 1 test pair (test held out ")
    assert translate.main(["evaluate", *run_options]) == 0
    assert capsys.readouterr().out.startswith("1 test sentence\n")
    output = tmp_path / "out.txt"
    assert translate.main(["evaluate", *run_options, *test, "--output", str(output)]) == 0
    report = capsys.readouterr().out
    lines = output.read_text(encoding="utf-8").splitlines()
    expected = score(lines, ["A  cat’s dog.", "The bird walks."], tokenize="13a")
    assert report.startswith("2 test sentences\n")
    assert f"chrF {expected.chrf:.1f}" in report
    for refused in (valid[:2], test[2:]):
        assert translate.main(["train", *run_options, *files, *refused]) == 2
        assert "must be given together" in one_error_line(capsys)
    assert translate.main(["train", "--run", str(tmp_path / "toy"), *valid]) == 2
    assert one_error_line(capsys) == "error: --valid-source requires --corpus files"
    assert translate.main(["evaluate", *run_options, *test[:2]]) == 2
    assert "--test-source and --test-target must be given together" in one_error_line(capsys)
    assert translate.main(["train", "--resume", *run_options, *files, *test]) == 2
    assert "was begun with test_source=None" in one_error_line(capsys)


def test_runs_are_compared_in_a_table_and_two_pictures(
    tmp_path: Path, small_run: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    models = ["transformer", "rnn-additive", "rnn-fixed"]
    folders = [str(small_run(model)) for model in models]
    assert not (small_run("rnn-fixed") / "attention.png").exists()  # it has no attention
    capsys.readouterr()
    out = tmp_path / "out"
    assert translate.main(["compare", *folders, "--beam", "2", "--output", str(out)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    assert "BLEU by characters of the source" in captured.out
    for name in ("attention.png", "compare.png"):
        assert (out / name).is_file()
    content = json.loads((out / "compare.json").read_text(encoding="utf-8"))
    assert [result["model"] for result in content["results"]] == models
    assert translate.main(["compare", *folders, "--sample"]) == 2
    assert "(did you mean --sample of translate, evaluate?)" in one_error_line(capsys)
    assert translate.main(["compare", folders[2], "--output", str(out)]) == 0
    assert not (out / "attention.png").exists()  # that of other runs would be wrong here
    (tmp_path / "file").touch()
    capsys.readouterr()
    assert translate.main(["compare", *folders, "--output", str(tmp_path / "file")]) == 2
    assert "File exists" in one_error_line(capsys)
    assert translate.main(["train", "--resume", "--run", folders[0], "--model", "rnn"]) == 2
    assert "was begun with model=transformer, got rnn" in one_error_line(capsys)


def test_a_page_shows_all_attention_of_a_model(
    tmp_path: Path, small_run: Callable[[str], Path], capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.html"
    for model, blocks in (("transformer", 3), ("rnn", 1), ("rnn-fixed", 0)):
        run = ["explore", "--run", str(small_run(model)), "--output", str(page)]
        capsys.readouterr()
        explore = [*run, "--sentence", "犬が走る。", "--beam", "2"]
        if not blocks:
            assert translate.main(explore) == 2
            assert "holds a model without attention" in one_error_line(capsys)
            continue
        assert translate.main(explore) == 0
        *_, written, address = capsys.readouterr().out.splitlines()
        assert written == f"Written: {page}"
        assert address == page.as_uri()
        html = page.read_text(encoding="utf-8")
        text = html.partition('id="data">')[2].partition("</script>")[0]
        content = json.loads(text)
        assert len(content["maps"]) == blocks
    run = ["explore", "--run", str(small_run("rnn"))]
    assert translate.main([*run, "--sentence", " "]) == 2
    assert "--sentence must not be blank" in one_error_line(capsys)
    assert translate.main([*run, "--sentence", "犬", "--output", str(tmp_path / "a" / "b")]) == 2
    assert "does not exist" in one_error_line(capsys)


def test_accumulation_and_checkpoints_are_set_on_the_command_line(
    tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "run"
    options = ["--accumulate", "2", "--save-steps", "1", "--keep", "4"]
    assert translate.main(["train", "--run", str(folder), *files, *PLAN, *options]) == 0
    config = Run(folder, Config).read_config()
    assert config.accumulate == 2
    rows = Run(folder, Config).read_metrics()
    last = rows[-1]["step"]
    assert last == 2 * rows[0]["step"]
    saved = sorted(path.name for path in (folder / "checkpoints").iterdir())
    assert saved == [f"step-{step:08d}" for step in range(last - 3, last + 1)]
    for count, status in ((4, 0), (5, 2)):
        command = ["translate", "--run", str(folder), "--average-last", str(count), "犬が走る。"]
        assert translate.main(command) == status
    error = capsys.readouterr().err
    assert "holds 4 checkpoints, but --average-last 5 needs 5; train with --keep 5" in error


def test_training_is_compiled_where_the_command_line_says_so(
    tmp_path: Path, files: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled = []

    def note(function: Callable[..., object], *, dynamic: bool) -> Callable[..., object]:
        compiled.append((function, dynamic))
        return function

    monkeypatch.setattr(torch, "compile", note)
    command = ["train", "--run", str(tmp_path / "run"), *files, *PLAN]
    assert translate.main([*command, "--compile"]) == 0
    assert [(function.__name__, dynamic) for function, dynamic in compiled] == [
        ("compute_hidden", True)
    ]


def test_only_an_interrupted_training_names_resume(
    tmp_path: Path,
    files: list[str],
    trained: TranslationTraining,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    command = ["train", "--run", str(tmp_path / "run"), *files, *PLAN]
    stopped = "\nstopped (resume the training with --resume)\n"
    with monkeypatch.context() as patch:
        patch.setattr(TranslationTraining, "_save", interrupt)
        assert translate.main(command) == 130
        assert capsys.readouterr().err.endswith("\nstopped\n")  # nothing is left
    for owner, name in (  # within the training, and in the results that follow it
        (TranslationTraining, "_train_until_validation"),
        (translate_training, "show_results"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, interrupt)
            assert translate.main([*command, "--resume"]) == 130
        assert capsys.readouterr().err.endswith(stopped)
    monkeypatch.setattr(translate_commands, "decode_sentences", interrupt)
    assert translate.main(["translate", "--run", str(trained.run.folder), "犬が走る。"]) == 130
    assert capsys.readouterr().err.endswith("\nstopped\n")


def test_lines_from_a_file_and_from_standard_input_come_out_alike(
    tmp_path: Path,
    trained: TranslationTraining,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "\ufeff犬が走る。\r\n\r\n犬が\u2028走る。\n猫が眠る。".encode()
    file = tmp_path / "in.txt"
    file.write_bytes(text)
    folder = str(trained.run.folder)
    assert translate.main(["translate", "--run", folder, "--file", str(file)]) == 0
    of_file = capfd.readouterr().out
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text)))
    assert translate.main(["translate", "--run", folder]) == 0
    assert capfd.readouterr().out == of_file
    assert of_file.count("\n") == 4
    assert of_file.split("\n")[1] == ""


def test_several_translations_of_each_line_are_numbered_and_scored(
    trained: TranslationTraining, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(trained.run.folder)
    lines = ["犬が走る。", "", "猫が眠る。"]
    for options in (["--beam", "4"], ["--sample", "--seed", "1", "--top-k", "5"]):
        arguments = ["translate", "--run", folder, "--n-best", "3", *options, *lines]
        assert translate.main(arguments) == 0
        out = capsys.readouterr().out
        rows = [line.split("\t") for line in out.rstrip("\n").split("\n")]
        assert [row[0] for row in rows] == ["1", "1", "1", "2", "3", "3", "3"]
        assert all(len(row) == 3 for row in rows)
        assert rows[3] == ["2", "0.0000", ""]
        assert all(float(row[1]) <= 0.0 for row in rows)
        assert translate.main(arguments) == 0
        assert capsys.readouterr().out == out


def test_more_beams_than_words_are_refused(
    trained: TranslationTraining, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = str(trained.run.folder)
    assert translate.main(["translate", "--run", folder, "--beam", "999", "犬"]) == 2
    vocabulary = trained.task.tokenizers[1].vocab_size
    line = one_error_line(capsys)
    assert line == f"error: --beam must not exceed the vocabulary size {vocabulary}, got 999"


def test_a_folder_that_cannot_be_made_is_named(
    tmp_path: Path, files: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert translate.main(["train", "--run", str(tmp_path / "file" / "run"), *files]) == 2
    assert str(tmp_path / "file") in one_error_line(capsys)


@pytest.mark.slow
@pytest.mark.parametrize("closed", [0, 1, 2])
def test_closed_streams_leave_no_traceback(trained: TranslationTraining, closed: int) -> None:
    command = [sys.executable, PROGRAM, "translate", "--run", str(trained.run.folder)]
    program = f"import os; os.close({closed}); os.execv({sys.executable!r}, {command})"
    close = [sys.executable, "-c", program]
    result = subprocess.run(close, capture_output=True, timeout=120, input=b"")
    assert (result.returncode, result.stderr) == (0, b"")


def test_bad_bytes_on_standard_input_are_named_by_line(
    trained: TranslationTraining,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lines = io.BytesIO("犬。\n".encode() + b"\x8c\xa2\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(lines))
    assert translate.main(["translate", "--run", str(trained.run.folder)]) == 2
    assert one_error_line(capsys).startswith("error: standard input:2 is not UTF-8")


@pytest.mark.slow
def test_a_training_writes_utf_8_whatever_the_locale_says(tmp_path: Path, files: list[str]) -> None:
    result = run("train", "--run", str(tmp_path / "run"), *files, *PLAN, environment=ASCII_ONLY)
    assert result.returncode == 0, result.stderr
    assert "。\n" in result.stdout.decode("utf-8")


@pytest.mark.slow
def test_errors_are_utf_8_whatever_the_locale_says(trained: TranslationTraining) -> None:
    arguments = ("translate", "--file", "猫.txt", "--run", str(trained.run.folder))
    result = run(*arguments, environment=ASCII_ONLY)
    assert (result.returncode, "猫.txt" in result.stderr.decode("utf-8")) == (2, True)


@pytest.mark.slow
def test_sentences_on_the_command_line_are_read_in_any_locale(trained: TranslationTraining) -> None:
    arguments = ("translate", "--run", str(trained.run.folder), "猫が眠る。")
    plain = run(*arguments)
    assert plain.returncode == 0, plain.stderr
    again = run(*arguments, environment=ASCII_ONLY)
    assert (again.returncode, again.stdout) == (0, plain.stdout)


@pytest.mark.slow
def test_a_reader_that_leaves_early_ends_the_program_silently(trained: TranslationTraining) -> None:
    command = [sys.executable, PROGRAM, "translate", "--run", str(trained.run.folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, error = process.communicate("犬が走る。\n".encode() * 500, timeout=120)
    assert (process.returncode, error) == (1, b"")
