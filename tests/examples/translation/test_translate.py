"""The program, run as a person runs it: most tests in this process, some in one of their own."""

import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import torch
from tests.examples.tiny_run import PLAN, TranslationTraining
from tests.explorer.page import data_of

import translate
from common.checkpoint import checkpoint_paths, step_of
from common.run import Run
from common.searches import beam
from common.training import Training
from transformer_blocks.inference import prepare
from translation import commands as translate_commands
from translation.arguments import BEAM_SIZE, LENGTH_PENALTY
from translation.decoding import load_translator
from translation.decoding import translate as translate_sentences
from translation.presets import TranslatorConfig
from translation.scoring import score

PROGRAM = str(Path(translate.__file__))


def one_error_line(capsys: pytest.CaptureFixture[str]) -> str:
    captured = capsys.readouterr()
    lines = captured.err.rstrip("\n").split("\n")
    assert len(lines) == 1
    assert lines[0].startswith("error: ")
    return lines[0]


def test_own_validation_and_test_files_are_used_and_scored_line_by_line(
    tmp_path: Path, files: list[str], call: Callable[..., str], refused: Callable[..., str]
) -> None:
    def held_out(split: str, sources: str, targets: str) -> list[str]:
        (tmp_path / f"{split}.ja").write_text(sources, encoding="utf-8")
        (tmp_path / f"{split}.en").write_text(targets, encoding="utf-8")
        path = f"{tmp_path}/{split}"
        return [f"--{split}-source", f"{path}.ja", f"--{split}-target", f"{path}.en"]

    run, output = ("--run", tmp_path / "run"), tmp_path / "out.txt"
    valid = held_out("valid", "犬が歩く。\n", "The dog walks.\n")
    test = held_out("test", "猫が犬。\n鳥が歩く。\n", "A  cat’s dog.\nThe bird walks.\n")
    other = ["--test-source", valid[1], "--test-target", valid[3]]
    head = call("train", *run, *files, *valid, *test, *PLAN)
    assert head.startswith("30 training pairs, 1 validation pair, 2 test pairs, preset")
    report = call("evaluate", *run, "--output", output)
    assert call("translate", *run, "--file", tmp_path / "test.ja") == output.read_text("utf-8")
    lines, references = output.read_text("utf-8").splitlines(), ["A  cat’s dog.", "The bird walks."]
    expected = score(lines, references, tokenize="13a")
    assert report.startswith(f"2 test sentences\n  BLEU {expected.bleu:.1f} ")
    assert f"chrF {expected.chrf:.1f} " in report
    for arguments, error in (
        (["train", *run, *files, *valid[:2]], "must be given together"),
        (["train", *run, *files, *test[2:]], "must be given together"),
        (["train", "--run", tmp_path / "toy", *valid], "--valid-source requires --corpus files"),
        (["train", "--resume", *run, *files, *valid, *other], "was begun with test_source="),
    ):
        assert error in refused(*arguments)


def test_runs_are_compared_in_a_table_and_two_pictures(
    tmp_path: Path,
    small_run: Callable[[str], Path],
    call: Callable[..., str],
    refused: Callable[..., str],
) -> None:
    models = ["transformer", "rnn-additive", "rnn-fixed"]
    folders, out = [small_run(model) for model in models], tmp_path / "out"
    assert not (folders[2] / "attention.png").exists()  # it has no attention
    printed = call("compare", *folders, "--beam", "2", "--output", out)
    assert "BLEU by characters of the source" in printed
    assert {path.name for path in out.iterdir()} == {"attention.png", "compare.png", "compare.json"}
    content = json.loads((out / "compare.json").read_text(encoding="utf-8"))
    assert [result["model"] for result in content["results"]] == models
    call("compare", folders[2], "--output", out)
    assert not (out / "attention.png").exists()  # that of other runs would be wrong here
    (tmp_path / "file").touch()
    for arguments, error in (
        (["compare", *folders, "--file", "a"], "Unknown option: --file"),
        (["compare", *folders, "--output", tmp_path / "file"], "File exists"),
        (
            ["train", "--resume", "--run", folders[0], "--model", "rnn"],
            "model=transformer, got rnn",
        ),
    ):
        assert error in refused(*arguments)


def test_a_page_shows_all_attention_of_a_model(
    tmp_path: Path,
    small_run: Callable[[str], Path],
    call: Callable[..., str],
    refused: Callable[..., str],
) -> None:
    page, sentence = tmp_path / "page.html", ["--sentence", "犬が走る。"]
    for model, blocks in (("transformer", 3), ("rnn", 1)):
        run = ["--run", small_run(model), "--output", page]
        *_, written, address = call("explore", *run, *sentence, "--beam", "2").splitlines()
        assert (written, address) == (f"Written: {page}", page.as_uri())
        assert len(data_of(page.read_text(encoding="utf-8"))["maps"]) == blocks
    for model, options, error in (
        ("rnn-fixed", sentence, "holds a model without attention"),
        ("rnn", ["--sentence", " "], "--sentence must not be blank"),
        ("rnn", [*sentence, "--output", tmp_path / "a" / "b"], "does not exist"),
    ):
        assert error in refused("explore", "--run", small_run(model), *options)


def test_each_subword_of_a_translation_is_aligned_with_one_of_the_source(
    small_run: Callable[[str], Path], call: Callable[..., str], refused: Callable[..., str]
) -> None:
    sentence, translation = ["--sentence", "犬が走る。"], ["--translation", "The dog runs."]
    for model, layer in (("transformer", "decoder.layers.0.cross_"), ("rnn", "decoder_")):
        folder = small_run(model)
        run = ["--run", folder]
        source, target, head, _, *rows = call("align", *run, *sentence, *translation).splitlines()
        assert (source, target) == (sentence[1], translation[1])
        assert re.fullmatch(rf"{layer}attention, head \d", head)
        sources, targets, weights = zip(*(line.split() for line in rows), strict=True)
        assert "".join(targets) == "▁The▁dog▁runs.</s>"
        pieces = load_translator(Run(folder, TranslatorConfig), torch.device("cpu")).source
        assert {*sources} <= {*pieces.subwords(pieces.encode(source)), "</s>"}
        assert all(0 < float(weight) <= 1 for weight in weights)
        found = call("align", *run, "--beam", "2", *sentence).split("\n")[1]
        assert found == call("translate", *run, "--beam", "2", source).rstrip("\n")
    for model, options, error in (
        ("rnn-fixed", sentence, "holds a model without attention"),
        ("rnn", [*sentence, "--translation", " "], "--translation must not be blank"),
        ("rnn", ["--sentence", " ", *translation], "--sentence must not be blank"),
        ("rnn", translation, "--translation requires --sentence"),
    ):
        assert error in refused("align", "--run", small_run(model), *options)


def test_accumulation_and_checkpoints_are_set_on_the_command_line(
    tmp_path: Path, files: list[str], call: Callable[..., str]
) -> None:
    run = Run(tmp_path / "run", TranslatorConfig)
    call("train", "--run", run.folder, *files, *PLAN, "--accumulate", "2", "--save-steps", "1")
    assert run.read_config().accumulate == 2
    steps = [json.loads(line)["step"] for line in run.metrics.read_text().splitlines()]
    assert steps[-1] == 2 * steps[0]
    saved = [step_of(path) for path in checkpoint_paths(run.checkpoints)]
    assert saved == [steps[-1] - 1, steps[-1]]


def test_a_run_with_a_shared_vocabulary_is_trained_resumed_used_and_scored(
    tmp_path: Path, files: list[str], call: Callable[..., str], refused: Callable[..., str]
) -> None:
    folder = tmp_path / "run"
    run = ["--run", folder]
    call("train", *run, *files, *PLAN, "--shared-vocabulary")
    assert {path.name for path in folder.glob("*.model")} == {"shared.model"}
    config = Run(folder, TranslatorConfig).read_config()
    assert config.shared_vocabulary
    assert config.tokenizers.keys() == {"shared"}

    again = ["train", *run, "--resume", "--epochs", "3"]
    assert "with shared_vocabulary=True" in refused(*again, "--no-shared-vocabulary")
    call(*again)

    trained = load_translator(Run(folder, TranslatorConfig), torch.device("cpu"))
    state = trained.model.state_dict(keep_vars=True)
    assert state["source_embedding.weight"] is state["output.weight"]
    for text in ("犬が走る。", "The dog runs."):  # one tokenizer encodes both languages
        assert trained.source.decode(trained.target.encode(text)) == text
    trained = trained._replace(model=prepare(trained.model))
    expected = translate_sentences(trained, ["犬が走る。"], search=beam(BEAM_SIZE, LENGTH_PENALTY))
    assert call("translate", *run, "犬が走る。").splitlines() == expected
    assert "BLEU" in call("evaluate", *run)


def test_only_an_interrupted_training_names_resume(
    tmp_path: Path,
    files: list[str],
    trained: TranslationTraining,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    train = ["train", "--run", str(tmp_path / "run"), *files, *PLAN]
    resume, word = [*train, "--resume"], "\nstopped\n"
    named = "\nstopped (resume the training with --resume)\n"
    for owner, name, command, message in (
        (Training, "_save", train, word),  # nothing is left
        (Training, "_train_until_validation", resume, named),
        (translate_commands, "show_results", resume, named),  # after the training
        (
            *(translate_commands, "decode_sentences"),
            *(["translate", "--run", str(trained.run.folder), "犬が走る。"], word),
        ),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(owner, name, interrupt)
            assert translate.main(command) == 130
        assert capsys.readouterr().err.endswith(message)


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


def test_what_a_command_cannot_do_is_named(
    trained: TranslationTraining, tmp_path: Path, files: list[str], refused: Callable[..., str]
) -> None:
    size = trained.task.tokenizers[1].vocab_size
    line = refused("translate", "--run", trained.run.folder, "--beam", "999", "犬")
    assert line == f"error: --beam must not exceed the vocabulary size {size}, got 999"
    (tmp_path / "file").touch()
    assert str(tmp_path / "file") in refused("train", "--run", tmp_path / "file" / "run", *files)


def test_bad_bytes_on_standard_input_are_named_by_line(
    trained: TranslationTraining, refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = io.BytesIO("犬。\n".encode() + b"\x8c\xa2\n")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(lines))
    line = refused("translate", "--run", trained.run.folder)
    assert line.startswith("error: standard input:2 is not UTF-8")


@pytest.mark.slow
def test_sentences_and_errors_are_utf_8_whatever_the_locale_says(
    trained: TranslationTraining, call: Callable[..., str]
) -> None:
    command = ["translate", "--run", str(trained.run.folder), "猫が眠る。"]
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
    for options, status, said in (([], 0, call(*command)), (["--file", "猫.txt"], 2, "猫.txt")):
        done = subprocess.run(
            [sys.executable, PROGRAM, *command[: 4 - bool(options)], *options],
            capture_output=True,
            timeout=300,
            env=os.environ | ascii_only,
            check=False,
        )
        assert done.returncode == status
        assert said in (done.stdout + done.stderr).decode("utf-8")


@pytest.mark.slow
def test_a_reader_that_leaves_early_ends_the_program_silently(trained: TranslationTraining) -> None:
    command = [sys.executable, PROGRAM, "translate", "--run", str(trained.run.folder)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe) as process:
        assert process.stdout is not None
        process.stdout.close()
        _, error = process.communicate("犬が走る。\n".encode() * 500, timeout=300)
    assert (process.returncode, error) == (1, b"")


# ------------------------------------------------------------------ the last lines of a training


def pasted(command: str) -> list[str]:
    """Return the arguments that a shell makes of a command that is a script of its own."""
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=True)
    return done.stdout.decode().split("\n")[:-1]


def test_the_address_opens_and_the_command_can_be_pasted_also_if_names_must_be_quoted(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    python = tmp_path / "my bin" / "python"  # prints its arguments, a line for each
    python.parent.mkdir()
    python.write_text("#!/bin/sh\nprintf '%s\\n' \"$@\"\n", encoding="utf-8")
    python.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(python))
    folder = Path("it's 練習", "a & b")
    *_, address, command = call("train", "--run", folder, *files, *PLAN).splitlines()
    page = folder / "explorer.html"
    before = page.read_bytes()
    assert address.isascii()
    assert Path(unquote(urlsplit(address).path)) == page.resolve()
    assert command.startswith(f"'{python}' ")
    program, *arguments = pasted(command)
    assert program == PROGRAM
    assert len(call(*arguments).splitlines()) == 1
    first, *_, last = call("explore", "--run", folder).splitlines()
    assert first == f"Without --sentence, a test sentence of {folder} is translated:"
    assert last == address
    assert page.read_bytes() == before


def test_a_sentence_that_looks_like_an_option_is_quoted_as_a_sentence() -> None:
    command = translate_commands.translating_command(Path("runs/demo"), "-1 度です。")
    run = shlex.quote(str(Path("runs/demo").resolve()))
    assert command.endswith(f"translate.py translate --run {run} -- '-1 度です。'")


def test_make_demo_trains_and_scores() -> None:
    recipe = (
        (Path(PROGRAM).parents[1] / "Makefile").read_text(encoding="utf-8").partition("\ndemo:")[2]
    )
    _, *programs = recipe.partition("\n\n")[0].splitlines()
    assert [program.split()[2] for program in programs] == ["train", "evaluate"]
