"""Programs: ``compile`` writes the search of a run, and ``translate --program`` translates with it.

The fast tests execute the step of a program in Python: to compile it takes minutes.
"""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.examples.tiny_run import make_corpus
from tests.programs import keep_programs

import translate
from common.tokenizer import EOS
from transformer_blocks.inference import Program, program
from translation import engines
from translation.training import TranslationTraining

SENTENCES = [pair.source for pair in make_corpus().train][:7]


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> dict[Path, Program]:
    """Return the programs that are saved, by their files."""
    return keep_programs(monkeypatch, engines)


@pytest.fixture
def call(trained: TranslationTraining, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command with the trained run; return its output, or its error."""

    def run(*arguments: str, folder: Path = trained.run.folder) -> str:
        capsys.readouterr()
        status = translate.main([arguments[0], "--run", str(folder), *arguments[1:]])
        captured = capsys.readouterr()
        lines = captured.err.splitlines()
        assert status == (2 if lines and lines[0].startswith("error: ") else 0), captured.err
        return " ".join(captured.err.split()) if status else captured.out

    return run


def parts(printed: str) -> list[str | float]:
    """Split lines at tabs; scores become numbers."""
    found = [part for line in printed.splitlines() for part in (*line.split("\t"), "\n")]
    return [float(part) if re.fullmatch(r"-?\d+\.\d{4}", part) else part for part in found]


@pytest.mark.parametrize("options", [["--beam", "1"], [], ["--beam", "3", "--int8"]])
def test_a_program_translates_as_the_model(
    options: list[str], saved: dict[Path, Program], call: Callable[..., str], tmp_path: Path
) -> None:
    file = tmp_path / "p.pt2"
    printed = call("compile", *options, "--output", str(file))
    assert printed.startswith("Compiling takes about three minutes.\nWritten: ")
    assert printed.split()[-2:] == ["(0.0", "MB)"]
    searching = ["--n-best", "3"] * (options[:2] != ["--beam", "1"])
    for lines in (SENTENCES, ["犬が走る。"], ["犬が走る。", "", "猫"]):
        expected = call("translate", *options, *searching, *lines)
        of_program = [each for each in options if each != "--int8"]
        found = call("translate", *of_program, *searching, "--program", str(file), *lines)
        assert parts(found) == [
            pytest.approx(each, abs=2e-4) if isinstance(each, float) else each  # a printed score
            for each in parts(expected)
        ]
    assert list(saved) == [file]


def test_a_program_is_written_into_the_run_unless_told_otherwise(
    trained: TranslationTraining, monkeypatch: pytest.MonkeyPatch, call: Callable[..., str]
) -> None:
    def note(model: Any, path: Path, **options: Any) -> None:
        written.append((path.name, options))
        path.touch()

    written: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(engines, "save_program", note)
    for options in ([], ["--int8", "--beam", "2"]):
        call("compile", *options)
        (trained.run.folder / written[-1][0]).unlink()
    assert written == [
        ("program.pt2", {"beam_size": 5, "end_id": EOS, "int8": False}),
        ("program-int8.pt2", {"beam_size": 2, "end_id": EOS, "int8": True}),
    ]


def test_what_a_program_cannot_do_is_refused(
    saved: dict[Path, Program],
    call: Callable[..., str],
    small_run: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    file = tmp_path / "p.pt2"
    call("compile", "--output", str(file), "--beam", "2")
    use = partial(call, "translate", "--program", str(file), "犬")
    assert use("--beam", "3").endswith("p.pt2, 2, got 3")
    assert use("--sample") == "error: --program cannot be combined with --sample"
    assert "--n-best must not exceed the beam size of the program" in use("--n-best", "3")
    assert use("--int8").startswith("error: --program cannot be combined with --int8")
    with monkeypatch.context() as patch:
        patch.setattr("translation.commands.choose_device", lambda _: torch.device("cuda"))
        assert use() == "error: --program requires --device cpu, got cuda"

    recurrent = partial(call, folder=small_run("rnn-fixed"))
    assert "only a Transformer can be compiled" in recurrent("compile")
    assert "only a Transformer can be" in recurrent("translate", "--program", str(file), "犬")
    assert "must not exceed the vocabulary size" in call("compile", "--beam", "999")
    assert "the folder" in call("compile", "--output", str(tmp_path / "none" / "p.pt2"))

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the model cannot be compiled: no compiler")

    monkeypatch.setattr(engines, "save_program", fail)
    other = str(tmp_path / "other.pt2")
    assert "the model cannot be compiled: no compiler" in call("compile", "--output", other)
    monkeypatch.undo()
    assert "no such file" in call("translate", "--program", other, "犬")
    assert "is no program that save_program wrote" in use()


@pytest.mark.slow
def test_a_compiled_program_translates_as_the_model(
    call: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(program.OPTIONS, "max_autotune_gemm", False)  # which takes most of the time
    file = str(tmp_path / "p.pt2")
    call("compile", "--output", file, "--beam", "3")
    for lines in (SENTENCES, ["犬が走る。"], ["犬が走る。", "", "猫が眠る。"]):
        expected = call("translate", "--beam", "3", *lines)
        assert call("translate", "--program", file, *lines) == expected
