"""The last lines of a program: an address that opens, and a command that can be pasted."""

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

import translate
from translation.training import translating_command

ROOT = Path(translate.__file__).parents[1]


def pasted(command: str) -> list[str]:
    """Return the arguments that a shell makes of a command that is a script of its own."""
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=True)
    return done.stdout.decode().split("\n")[:-1]


TINY = ["--epochs", "1", "--vocabulary", "80", "--batch-tokens", "64"]


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
    *_, address, command = call("train", "--run", folder, *files, *TINY).splitlines()
    page = folder / "explorer.html"
    before = page.read_bytes()
    assert address.isascii()
    assert Path(unquote(urlsplit(address).path)) == page.resolve()
    assert command.startswith(f"'{python}' ")
    program, *arguments = pasted(command)
    assert Path(program) == ROOT / "examples" / "translate.py"
    assert len(call(*arguments).splitlines()) == 1
    first, *_, last = call("explore", "--run", folder).splitlines()
    assert first == f"Without --sentence, a test sentence of {folder} is translated:"
    assert last == address
    assert page.read_bytes() == before


def test_without_attention_the_address_is_that_of_the_losses(
    files: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: Callable[..., str]
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = call("train", "--run", "a b", *files, *TINY, "--model", "rnn-fixed")
    *_, address, command = printed.splitlines()
    assert Path(unquote(urlsplit(address).path)) == (tmp_path / "a b" / "loss.png").resolve()
    python, program, *arguments = shlex.split(command)
    assert (python, Path(program)) == (sys.executable, ROOT / "examples" / "translate.py")
    assert len(call(*arguments).splitlines()) == 1


def test_a_sentence_that_looks_like_an_option_is_quoted_as_a_sentence() -> None:
    command = translating_command(Path("runs/demo"), "-1 度です。")
    assert command.endswith("translate.py translate --run runs/demo -- '-1 度です。'")


def test_make_demo_trains_and_scores() -> None:
    recipe = (ROOT / "Makefile").read_text(encoding="utf-8").partition("\ndemo:")[2]
    _, *programs = recipe.partition("\n\n")[0].splitlines()
    assert [program.split()[2] for program in programs] == ["train", "evaluate"]
