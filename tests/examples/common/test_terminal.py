"""The command lines in a terminal: quick, no wider than it, and helpful about mistakes."""

import importlib
import io
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.examples.translation.test_translate import one_error_line

import classify
import generate_text
import translate
from classification.commands import new_config as new_classifier
from common.options import Parser
from common.program import run_program
from common.tables import format_table
from common.terminal import cells, colour, counted, fit, width, wrap
from text.commands import new_config as new_text
from translation import arguments
from translation.pairs import SMALL_PARALLEL_ENJA
from translation.presets import ATTENTIONS, PRESETS
from translation.presets import new_config as new_translator
from translation.training import TranslationTraining

PROGRAMS = (
    *("translate", "classify", "generate_text", "ablate"),
    *(f"pretrained.{name}" for name in ("bert", "generate", "marian", "t5", "convert")),
)
HEAVY = "torch numpy matplotlib sentencepiece sacrebleu safetensors tqdm filelock".split()  # noqa: SIM905


class Terminal(io.StringIO):
    """An output that is a terminal, as far as a program can find out."""

    def isatty(self) -> bool:
        return True


def all_parsers() -> Iterator[tuple[str, Parser]]:
    """Yield the parser of each program and of each of its commands, by name."""
    found: list[Parser] = []

    def stop(parser: Parser, *_: object) -> None:
        found.append(parser)
        raise SystemExit

    for program in PROGRAMS:
        main = importlib.import_module(program).main
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Parser, "parse_args", stop)
            with pytest.raises(SystemExit):
                main([])
        yield program, found[-1]
        for name, each in found[-1].commands.items():
            yield f"{program} {name}", each


PARSERS = dict(all_parsers())
every_parser = pytest.mark.parametrize("name", PARSERS)


# ------------------------------------------------------------------ quick, and in 80 columns


DRIVER = f"""
import contextlib, importlib, sys
sys.path.insert(0, sys.argv[1])
for line in sys.stdin.read().splitlines():
    program, *words = line.split()
    print("#", line)
    sys.argv = [program.rpartition(".")[2] + ".py"]
    with contextlib.suppress(SystemExit):
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
    return screen.raw.replace("\r\n", "\n")


@pytest.mark.parametrize("columns", [80, 44])
def test_a_command_line_is_answered_before_torch_is_imported(columns: int) -> None:
    lines = [f"{name} --help" for name in PARSERS]
    lines += [
        f"{name} --no-such-option-at-all-and-a-long-name-that-does-not-fit" for name in PARSERS
    ]
    lines += ["translate", "translate trian", "generate_text generate --greedy --seed 1"]
    lines += ["pretrained.generate FOLDER --top-k 3", "pretrained.marian FOLDER"]
    lines += ["classify classify --file x a", "translate translate --file x a"]
    output = in_a_terminal("\n".join(lines), columns)
    parts = re.findall(r"^# (.*)\n((?:(?!# ).*\n)*)loaded: (.*)\n", output, re.MULTILINE)
    assert [line for line, _, _ in parts] == lines
    for line, printed, loaded in parts:
        assert loaded == "[]", line
        if line.endswith("--help"):
            assert printed.startswith("usage: ")
        else:
            assert printed.startswith("error: ")
            assert "Traceback" not in printed
        for each in printed.splitlines():
            is_whole = each.startswith(("    python", "        ", "  -")) and columns < 80
            assert is_whole or cells(each) <= columns, (line, each)


@every_parser
def test_a_description_has_no_markup(name: str) -> None:
    text = PARSERS[name].format_help()
    assert "`" not in text
    assert "  -h, --help" in text


def test_lines_are_broken_by_the_cells_that_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    assert wrap("犬が 水を 飲みました。 a b", 10, indent=" ") == [
        "犬が 水を",
        " 飲みました。",
        " a b",
    ]
    monkeypatch.setenv("COLUMNS", "44")
    text = "  one line of words that does not fit into the terminal\n" + "x" * 60
    lines = fit(text, Terminal()).split("\n")
    assert lines[0].startswith("  one line")
    assert lines[1].startswith("    ")
    assert max(map(cells, lines[:-1])) <= 44
    assert lines[-1] == "x" * 60  # a word stays whole
    assert " ".join(" ".join(lines).split()) == " ".join(text.split())
    with open(os.devnull) as pipe:  # noqa: PTH123
        assert fit(text, pipe) == text


def test_the_width_is_that_of_the_terminal_and_at_least_40(monkeypatch: pytest.MonkeyPatch) -> None:
    for columns, expected in (("132", 132), ("10", 40)):
        monkeypatch.setenv("COLUMNS", columns)
        assert width() == expected


def test_colours_are_for_terminals_that_show_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    assert colour("loss", "red", Terminal()) == "\033[31mloss\033[0m"
    with open(os.devnull) as pipe:  # noqa: PTH123
        assert colour("loss", "red", pipe) == "loss"
    for name, value in (("NO_COLOR", "1"), ("TERM", "dumb")):
        with monkeypatch.context() as patch:
            patch.setenv(name, value)
            assert colour("loss", "red", Terminal()) == "loss"


@pytest.mark.parametrize(
    ("given", "imported", "count"),
    [
        ({}, False, "10000"),
        ({}, True, None),  # too late
        ({"OMP_WAIT_POLICY": "active"}, False, None),
        ({"GOMP_SPINCOUNT": "7"}, False, "7"),
    ],
)
def test_waiting_threads_soon_stop_spinning_unless_the_user_has_chosen(
    given: dict[str, str], imported: bool, count: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", {"TERM": "dumb", **given})
    if not imported:
        monkeypatch.delitem(sys.modules, "torch")
    assert run_program(lambda: None) == 0
    assert os.environ.get("GOMP_SPINCOUNT") == count


def test_a_table_that_is_too_wide_is_continued_below() -> None:
    header = ["run", *(f"column {number}" for number in range(9))]
    rows = [["訳", *"123456789"], ["run of mine", *"987654321"]]
    whole = format_table(header, rows, words=1)
    assert max(map(cells, whole.split("\n"))) > 80
    parts = format_table(header, rows, words=1, width=40).split("\n\n")
    assert len(parts) > 1
    found: dict[str, list[str]] = {}
    for part in parts:
        lines = part.split("\n")
        assert max(map(cells, lines)) <= 40
        for line, name in zip(lines, ("run", "訳", "run of mine"), strict=True):
            found.setdefault(name, []).extend(re.split("  +", line.removeprefix(name).strip()))
    assert [found["run"], found["訳"], found["run of mine"]] == [header[1:], *(r[1:] for r in rows)]


def test_the_outputs_of_a_translator_fit_into_80_columns(
    trained: TranslationTraining, files: list[str]
) -> None:
    from tests.examples.common.terminals import terminal  # not on Windows

    test = ["--test-source", files[1], "--test-target", files[3]]
    with terminal(80, colours=False) as screen:
        command = ["evaluate", "--run", str(trained.run.folder), *test, "--beam", "1"]
        assert translate.main(command) == 0
        assert translate.main(["evaluate", "--run", "a folder that does not exist " * 4]) == 2
    lines = re.split("[\r\n]+", screen.raw)
    assert "30 test sentences" in lines
    assert any(line.startswith("error: a folder that") for line in lines)
    assert all(cells(line) <= 80 for line in lines)


# ------------------------------------------------------------------ defaults


@every_parser
def test_every_option_names_its_default(name: str) -> None:
    for action in PARSERS[name]._actions:
        needs_value = bool(action.option_strings) and action.nargs != 0 and not action.required
        is_optional = not action.option_strings and action.nargs == "*"
        if needs_value or is_optional:
            assert action.help, action.dest
            assert "default" in action.help, action.dest
            if action.default is not None and action.option_strings:
                assert str(action.default) in action.help.partition("default")[2], action.dest


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
    for action in PARSERS[name]._actions:
        if getattr(toy, action.dest, None) is not None:
            told = re.search(
                r"\(default: ([^ ;)]*)(?: for the toy.* else (.*)\))?", action.help or ""
            )
            assert told, action.dest
            values = getattr(toy, action.dest), getattr(own, action.dest)
            expected = [format(x, "g" if type(x) is float else "") for x in values]
            assert [told[1], told[2] or told[1]] == expected, action.dest
            checked += 1
    assert checked > 9


def test_the_help_names_the_defaults_of_the_presets() -> None:
    checked = 0
    for action in PARSERS["translate train"]._actions:
        for preset, config in PRESETS.items():
            if found := re.search(rf"default:? by preset:.*?{preset} ([\d.]+)", action.help or ""):
                assert float(found[1]) == getattr(config, action.dest), action.dest
                checked += 1
    assert checked == 14  # the learning rate of base is the schedule of the paper
    assert new_translator({}).preset == "tiny"


def test_the_names_on_the_command_line_are_those_of_the_code() -> None:
    assert ("transformer", *ATTENTIONS) == arguments.MODELS
    assert tuple(PRESETS) == arguments.PRESETS
    assert SMALL_PARALLEL_ENJA in arguments.CORPORA


def test_an_option_of_one_meaning_has_one_name() -> None:
    meanings: dict[str, set[str]] = {}
    for parser in PARSERS.values():
        for action in parser._actions:
            if action.option_strings and action.help:
                meaning = re.split(r" \(|;|,", action.help)[0]
                meanings.setdefault(meaning, set()).add(action.option_strings[-1])
    assert [names for names in meanings.values() if len(names) > 1] == [
        {"--valid-target", "--test-target", "--target-file"}
    ]


# ------------------------------------------------------------------ mistakes


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("translate translate --bean 3 x", "unknown option --bean (did you mean --beam?)"),
        ("translate translate --bean=3 x", "unknown option --bean (did you mean --beam?)"),
        ("translate train --bean 4", "--bean (did you mean --beam of translate, evaluate, "),
        ("translate explore --sample", "(did you mean --sample of translate, evaluate?)"),
        ("classify classify --stes 4 x", "unknown option --stes (did you mean --steps of train?)"),
        ("translate trian", "invalid choice: 'trian' (choose from "),
        ("translate train --preset smal", "--preset: invalid choice: 'smal' (choose from "),
        ("translate train toy", "unexpected argument toy"),
        ("translate translate --be 3 x", "unknown option --be (did you mean --beam?)"),
        ("translate train --zz 3", "unknown option --zz (see --help)"),
        ("classify evaluate --rum x", "unknown option --rum (did you mean --run?)"),
        ("generate_text generate --top_k 3", "unknown option --top_k (did you mean --top-k?)"),
        ("ablate run --sentense 3", "unknown option --sentense (did you mean --sentences?)"),
        ("pretrained.marian m x --beams 3", "unknown option --beams (did you mean --beam?)"),
        ("translate translate --file f x", "give sentences or --file, not both"),
        ("classify classify --file f x", "give texts or --file, not both"),
        ("pretrained.generate m --sample x", "unexpected argument x"),
        ("translate", "required"),
        ("translate train --epochs 0", "must be a whole number above 0, got '0'"),
        ("translate train --minutes nan", "must be a number above 0"),
        ("translate train --epochs 1 --minutes 1", "not allowed with"),
        ("translate train --dropout 1.5", "--dropout: must be a number in [0, 1), got '1.5'"),
        ("translate train --data-dir .", "belongs to small_parallel_enja"),
        ("translate train --to fr", "from ja to en or from en to ja, got ja to fr"),
        ("translate train --source-file a.txt", "--source-file and --target-file"),
        ("translate train --device cuda", "no CUDA device"),
        ("translate evaluate --output no/where.txt", "the folder no does not exist"),
        ("translate evaluate --run nowhere", "nowhere holds no run"),
        ("translate translate --beam 0 犬", "--beam: must be a whole number above 0, got '0'"),
        ("translate translate --top-p 0.9 犬", "--top-p requires --sample"),
        ("translate translate --sample --beam 3 犬", "--beam cannot be combined with --sample"),
        ("translate translate --n-best 9 犬", "a beam of at least that size, got --beam 5"),
        (f"translate translate --sample --n-best {'9' * 20} 犬", "a whole number from 1 to 1000"),
        ("classify train --steps 0", "must be a whole number from 1 to 1000000, got '0'"),
        ("classify train --train-file a", "--train-file and --test-file must be given together"),
        ("classify train --train-file a --test-file b", "cannot read"),
        ("classify evaluate --run nowhere", "nowhere holds no run"),
        ("generate_text train --text nowhere.txt", "cannot read"),
        ("generate_text train --d-model 10 --num-heads 3", "do not make a valid model"),
        ("generate_text train --d-model 9 --num-heads 3", "d_k must be even, got d_k=3"),
        ("generate_text train --vocabulary 5", "the vocabulary size must be from"),
        ("generate_text evaluate --run nowhere", "nowhere holds no run"),
        ("generate_text generate --top-p 0", "must be a number in (0, 1], got '0'"),
        ("generate_text generate --temperature 0", "must be a number above 0"),
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
    assert chosen() == "run: runs/old\n"
    make_run(trained, runs / "new", minutes=5)
    assert chosen() == "run: runs/new (latest of 2; choose with --run)\n"
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
    assert chosen() == "run: runs/new (latest of 2; choose with --run)\n"
    shutil.rmtree(runs / "new")
    shutil.rmtree(runs / "old")
    assert chosen(2) == none
