"""The command lines in a terminal: quick, no wider than it, and helpful about mistakes."""

import importlib
import inspect
import os
import re
import shutil
import subprocess
import sys
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from docstring_parser import parse as parse_docstring
from rich.cells import cell_len
from tests.examples.tiny_run import TranslationTraining
from tests.examples.translation.test_translate import one_error_line

import ablate
import classification.arguments
import classify
import course
import generate_text
import pretrained
import text.arguments
import translate
from classification.commands import new_config as new_classifier
from common.options import Flag
from common.terminal import counted, say, table
from text.commands import new_config as new_text
from translation import arguments

COMMANDS: dict[str, Any] = {
    **{f"translate {each.__name__.lower()}": each for each in arguments.COMMANDS},
    **{
        f"{program} {each.lower()}": getattr(module, each)
        for program, module, names in (
            ("classify", classification.arguments, "Train Evaluate Classify"),
            ("generate_text", text.arguments, "Train Evaluate Generate Explore"),
            ("course", course, "Build Debug Status Examine Museum Train"),
        )
        for each in names.split()
    },
    "ablate": ablate.Ablate,
    "pretrained": pretrained.Pretrained,
}
"""The dataclass of each command."""
PROGRAMS = {name.split()[0] for name in COMMANDS}
HEAVY = "torch numpy matplotlib sentencepiece sacrebleu safetensors filelock".split()  # noqa: SIM905


def texts_of(command: Any) -> dict[str, str]:
    """Return the help of each option of a command, which stands in its docstring."""
    found: dict[str, str] = {}
    for kind in command.__mro__:
        for each in parse_docstring(inspect.getdoc(kind) or "").params:
            found.setdefault(each.arg_name, each.description or "")
    return found


# ------------------------------------------------------------------ quick, and in 80 columns


DRIVER = f"""
import contextlib, importlib, sys
sys.path.insert(0, sys.argv[1])
for line in sys.stdin.read().splitlines():
    program, *words = line.split()
    print("#", line)
    sys.argv = [program.rpartition(".")[2] + ".py"]
    importlib.import_module(program).main(words)
    loaded = [name for name in {HEAVY} if name in sys.modules]
    print("loaded:", loaded)
    if loaded:
        break
"""


def in_a_terminal(stdin: str, columns: int) -> str:
    """Run the driver with a terminal as its output, and return what it prints."""
    from tests.examples.common.terminals import terminal  # not on Windows

    command = [sys.executable, "-c", DRIVER, str(Path(translate.__file__).parent)]
    environment = {**os.environ, "NO_COLOR": "1"}
    environment.pop("COLUMNS", None)
    with terminal(columns) as screen:
        out, lines = sys.stdout, stdin.encode()
        subprocess.run(command, input=lines, stdout=out, stderr=out, env=environment, check=True)
    return re.sub(r"\033\[\d*m", "", screen.raw).replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [80, 50])
def test_a_command_line_is_answered_before_torch_is_imported(columns: int) -> None:
    lines = [f"{name} --help" for name in (*COMMANDS, *PROGRAMS)]
    lines += [f"{name} --no-such-option-and-a-long-name-that-does-not-fit" for name in COMMANDS]
    lines += ["translate", "translate trian", "generate_text generate --greedy --seed 1"]
    lines += ["pretrained FOLDER a --top-k 3", "pretrained FOLDER"]
    lines += ["classify classify --file x a", "translate translate --file x a"]
    output = in_a_terminal("\n".join(lines), columns)
    parts = re.findall(r"^# (.*)\n((?:(?!# ).*\n)*)loaded: (.*)\n", output, re.MULTILINE)
    assert [line for line, _, _ in parts] == lines
    for line, printed, loaded in parts:
        assert loaded == "[]", line
        assert printed.startswith("Usage: " if line.endswith("--help") else "error: "), printed
        assert "Traceback" not in printed
        assert "`" not in printed
        assert all(cell_len(each) <= columns for each in printed.splitlines()), printed


def test_lines_are_broken_in_a_terminal_only_by_the_cells_that_they_take(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.examples.common.terminals import terminal  # not on Windows

    line = "[bold] :cat: https://a.b " + "犬 が 水 を 飲 み ま し た 。 " * 9
    say(line)
    assert capsys.readouterr().out == f"{line}\n"
    with terminal(60) as screen:
        say(line)
    assert "".join(screen.lines).replace(" ", "") == line.replace(" ", "")
    assert all(50 < cell_len(each) <= 60 for each in screen.lines[:-1])
    assert "\033" not in screen.raw
    with terminal(60) as screen:
        say("best", style="green")
        monkeypatch.setenv("NO_COLOR", "1")
        say("best", style="green")
    assert screen.raw == "\033[32mbest\033[0m\r\nbest\r\n"


def test_a_table_is_aligned_and_whole_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [("犬", "1", "a" * 90), ("cat", "1,200", "[b]")]
    say(table(("", "number", "text"), rows, words=1))
    header, *lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines] == [list(row) for row in rows]
    assert lines[1].index("1,200") + 5 == header.index("number") + 6


# ------------------------------------------------------------------ defaults


@pytest.mark.parametrize("name", COMMANDS)
def test_every_option_is_explained_and_names_its_default(name: str) -> None:
    texts, types = texts_of(COMMANDS[name]), get_type_hints(COMMANDS[name], include_extras=True)
    for each in fields(COMMANDS[name]):
        assert texts[each.name], each.name
        is_told = each.default not in (None, (), "") or types[each.name] == Flag
        assert is_told or each.default is MISSING or "default" in texts[each.name], each.name


@pytest.mark.parametrize(
    ("name", "new_config", "files"),
    [
        ("classify train", new_classifier, {"train_file": "a", "test_file": "b"}),
        ("generate_text train", new_text, {"text": "a"}),
    ],
)
def test_the_help_names_the_defaults_of_a_configuration(
    name: str, new_config: Any, files: dict[str, str]
) -> None:
    toy, own = new_config({}), new_config(files)
    assert 0 < toy.warmup_steps <= toy.steps / 5
    assert 0 < toy.report_steps <= toy.steps / 5
    checked = 0
    for option, help_text in texts_of(COMMANDS[name]).items():
        if getattr(toy, option, None) is not None:
            told = re.search(
                r"\(default: ([^ ;)]*)(?: for the toy.* else (.*)\))?", help_text.replace("\n", " ")
            )
            assert told, option
            values = getattr(toy, option), getattr(own, option)
            expected = [format(x, "g" if type(x) is float else "") for x in values]
            assert [told[1], told[2] or told[1]] == expected, option
            checked += 1
    assert checked > 9


# ------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("translate translate --bean 3 x", "Unknown option: --bean. Did you mean --beam?"),
        ("translate translate --be 3 x", "Unknown option: --be. Did you mean --beam?"),
        ("translate trian", 'Unknown command "trian". Did you mean "train"?'),
        ("translate train --preset smal", 'Invalid value "smal" for --preset. Choose from: '),
        ("translate train toy", "toy"),
        ("pretrained m x --beams 3", "Did you mean --beam?"),
        ("translate translate --file f x", "give sentences or --file, not both"),
        ("classify classify --file f x", "give texts or --file, not both"),
        ("translate", "a command is required, one of train, translate, "),
        ("translate train --epochs 0", 'Invalid value "0" for --epochs. Must be >= 1'),
        ("translate train --epochs 1.5", "Invalid value for --epochs: "),
        ("translate train --minutes nan", 'Invalid value "nan" for --minutes'),
        ("translate train --epochs 1 --minutes 1", "--minutes cannot be combined with --epochs"),
        ("translate train --dropout 1.5", 'Invalid value "1.5" for --dropout. Must be < 1'),
        ("translate train --data-dir .", "belongs to small_parallel_enja"),
        ("translate train --to fr", "from ja to en or from en to ja, got ja to fr"),
        ("translate train --source-file a.txt", "--source-file and --target-file"),
        ("translate train --device cuda", "no CUDA device"),
        ("translate evaluate --output no/where.txt", "the folder no does not exist"),
        ("translate evaluate --run nowhere", "nowhere holds no run"),
        ("classify train --train-file a", "--train-file and --test-file must be given together"),
        ("classify train --train-file a --test-file b", "b: No such file"),
        ("generate_text train --text nowhere.txt", "nowhere.txt: No such file"),
        ("generate_text train --d-model 10 --num-heads 3", "do not make a valid model"),
        ("generate_text train --vocabulary 5", "the vocabulary size must be from"),
        ("generate_text generate --top-p 0", "Must be > 0"),
        ("generate_text generate --greedy --top-k 3", "--top-k cannot be combined with --gr"),
    ],
)
def test_an_impossible_command_is_refused_in_one_line_and_leaves_nothing(
    command: str,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs" / "damaged").mkdir(parents=True)
    (tmp_path / "runs" / "damaged" / "config.json").touch()
    program, *words = command.split()
    assert importlib.import_module(program).main(words) == 2
    assert message in one_error_line(capsys)
    left = [path.name for path in sorted(tmp_path.rglob("*"))]
    assert left == ["runs", "damaged", "config.json"]


# ------------------------------------------------------------------ the latest run


def make_run(trained: TranslationTraining, folder: Path, *, minutes: int) -> Path:
    """Copy a run to a folder; it is as old as ``minutes`` say."""
    shutil.copytree(trained.run.folder, folder)
    (weights,) = (folder / "best").iterdir()
    time = weights.stat().st_mtime - 60 * minutes
    os.utime(weights, (time, time))
    return folder


def test_a_number_has_its_noun_in_singular_or_plural() -> None:
    found = [counted(number, noun) for noun in ("epoch", "batch") for number in (0, 1, 1200)]
    wanted = "0 epochs, 1 epoch, 1,200 epochs, 0 batches, 1 batch, 1,200 batches"
    assert ", ".join(found) == wanted


def test_the_latest_trained_run_of_the_program_is_taken_and_named(
    trained: TranslationTraining,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    runs = tmp_path / "runs"

    def chosen(status: int = 0) -> str:
        assert translate.main(["translate", "犬が走る。", "--beam", "1"]) == status
        return capsys.readouterr().err

    train = "train one with python examples/translate.py train, or name one with --run"
    none = f"error: runs/ holds no trained run of this program; {train}\n"
    assert chosen(2) == none
    make_run(trained, runs / "old", minutes=9)
    assert chosen() == "run: runs/old (the latest; choose with --run)\n"
    make_run(trained, runs / "new", minutes=5)
    assert chosen() == "run: runs/new (the latest; choose with --run)\n"
    assert classify.main(["classify", "a"]) == generate_text.main(["evaluate"]) == 2
    assert capsys.readouterr().err.count("holds no trained run of this program") == 2

    # None of these is newer and can be used.
    shutil.rmtree(make_run(trained, runs / "begun", minutes=0) / "best")
    damaged = make_run(trained, runs / "damaged", minutes=1)
    (damaged / "config.json").write_text("{")
    changed = make_run(trained, runs / "changed", minutes=1)
    text = (changed / "config.json").read_text("utf-8")
    (changed / "config.json").write_text(text.replace('"seed": 0', '"seed": 1'), "utf-8")
    (runs / "file").touch()
    (runs / "empty").mkdir()
    assert chosen() == "run: runs/new (the latest; choose with --run)\n"
    shutil.rmtree(runs / "new")
    shutil.rmtree(runs / "old")
    assert chosen(2) == none
