"""Programs: ``compile`` writes the search of a run, and ``translate --program`` translates with it.

The fast tests execute the step of a program in Python: to compile it takes minutes.
"""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.examples.tiny_run import make_corpus
from tests.inference.programs import keep_programs

from common.tokenizer import EOS
from transformer_blocks.inference import Program, program
from translation import engines
from translation.training import TranslationTraining

SENTENCES = [pair.source for pair in make_corpus().train][:7]


@pytest.fixture
def saved(monkeypatch: pytest.MonkeyPatch) -> dict[Path, Program]:
    """Return the programs that are saved, by their files."""
    return keep_programs(monkeypatch, engines)


def parts(printed: str) -> list[str | float]:
    """Split lines at tabs; scores become numbers."""
    found = [part for line in printed.splitlines() for part in (*line.split("\t"), "\n")]
    return [float(part) if re.fullmatch(r"-?\d+\.\d{4}", part) else part for part in found]


@pytest.fixture
def run(trained: TranslationTraining) -> tuple[str, Path]:
    """Return the option of the trained run."""
    return "--run", trained.run.folder


@pytest.mark.parametrize("options", [["--beam", "1"], [], ["--beam", "3", "--int8"]])
def test_a_program_translates_as_the_model(
    options: list[str],
    run: tuple[str, Path],
    saved: dict[Path, Program],
    call: Callable[..., str],
    tmp_path: Path,
) -> None:
    file = tmp_path / "p.pt2"
    printed = call("compile", *run, *options, "--output", file)
    assert printed.startswith("Compiling takes about three minutes.\nWritten: ")
    assert printed.split()[-2:] == ["(0.0", "MB)"]
    searching = ["--n-best", "3"] * (options[:2] != ["--beam", "1"])
    of_program = [*(each for each in options if each != "--int8"), "--program", file]
    for lines in (SENTENCES, ["犬が走る。"], ["犬が走る。", "", "猫"]):
        expected, found = (
            parts(call("translate", *run, *each, *searching, *lines))
            for each in (options, of_program)
        )
        assert found == [
            pytest.approx(each, abs=2e-4) if isinstance(each, float) else each  # a printed score
            for each in expected
        ]
    assert list(saved) == [file]


def test_a_program_is_written_into_the_run_unless_told_otherwise(
    run: tuple[str, Path], monkeypatch: pytest.MonkeyPatch, call: Callable[..., str]
) -> None:
    def note(model: Any, path: Path, **options: Any) -> None:
        written.append((path.name, options))
        path.touch()

    written: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(engines, "save_program", note)
    for options in ([], ["--int8", "--beam", "2"]):
        call("compile", *run, *options)
        (run[1] / written[-1][0]).unlink()
    assert written == [
        ("program.pt2", {"beam_size": 5, "end_id": EOS, "int8": False}),
        ("program-int8.pt2", {"beam_size": 2, "end_id": EOS, "int8": True}),
    ]


def test_what_a_program_cannot_do_is_refused(
    run: tuple[str, Path],
    saved: dict[Path, Program],
    call: Callable[..., str],
    refused: Callable[..., str],
    small_run: Callable[[str], Path],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the model cannot be compiled: no compiler")

    file, recurrent = tmp_path / "p.pt2", ("--run", small_run("rnn-fixed"))
    call("compile", *run, "--output", file, "--beam", "2")
    use = ["translate", *run, "犬", "--program", file]
    for arguments, error in (
        ([*use, "--beam", "3"], "p.pt2, 2, got 3"),
        ([*use, "--sample"], "error: --program cannot be combined with --sample"),
        ([*use, "--n-best", "3"], "--n-best must not exceed the beam size of the program"),
        ([*use, "--int8"], "error: --program cannot be combined with --int8"),
        (["compile", *recurrent], "only a Transformer can be compiled"),
        (["translate", *recurrent, "--program", file, "犬"], "only a Transformer can be"),
        (["compile", *run, "--beam", "999"], "must not exceed the vocabulary size"),
        (["compile", *run, "--output", tmp_path / "none" / "p.pt2"], "the folder"),
    ):
        assert error in refused(*arguments)
    with monkeypatch.context() as patch:
        patch.setattr("translation.commands.choose_device", lambda _: torch.device("cuda"))
        assert refused(*use) == "error: --program requires --device cpu, got cuda"
    monkeypatch.setattr(engines, "save_program", fail)
    assert "the model cannot be compiled: no compiler" in refused("compile", *run)
    monkeypatch.undo()
    assert "is no program that save_program wrote" in refused(*use)
    assert "no such file" in refused(*use[:-1], tmp_path / "other.pt2")


@pytest.mark.slow
def test_a_compiled_program_translates_as_the_model(
    run: tuple[str, Path],
    call: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setitem(program.OPTIONS, "max_autotune_gemm", False)  # which takes most of the time
    file = tmp_path / "p.pt2"
    call("compile", *run, "--output", file, "--beam", "3")
    for lines in (SENTENCES, ["犬が走る。"], ["犬が走る。", "", "猫が眠る。"]):
        expected = call("translate", *run, "--beam", "3", *lines)
        assert call("translate", *run, "--program", file, *lines) == expected
