"""The course: right answers pass, wrong answers are refused, and their cause is shown."""

import importlib
import itertools
import json
import re
import shutil
import signal
import tomllib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch

import course
from coursework import commands, isolation, positions, training
from coursework.grader import TEMPLATE, Raised, Unit, are_equal, check, describe, evaluate
from coursework.museum.exhibit import exhibits
from coursework.units import UNITS
from transformer_blocks.inspection import check_soundness

SOLUTION = Path(__file__).parent / "course_solution"
PAGES = Path(course.__file__).parents[1] / "docs" / "howto"
numbers = itertools.count()
Build = Callable[..., ModuleType]


class Answer(NamedTuple):
    """An answer to a unit: the solution's file, in which each old text is replaced by a new one."""

    unit: str
    name: str
    edits: Any


ANSWERS = tomllib.loads(Path(__file__).with_name("course_answers.toml").read_text("utf-8"))
WRONG, RIGHT = ([Answer(**each) for each in ANSWERS[kind]] for kind in ("wrong", "right"))
OVER_QUERIES = next(each for each in WRONG if each.name == "a softmax over the queries")


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """Write the solution, with the edits of an answer, and import one of its units."""
    monkeypatch.syspath_prepend(tmp_path)

    def build(unit: str, *edits: Any) -> ModuleType:
        folder = tmp_path / f"answer_{next(numbers)}"
        shutil.copytree(SOLUTION, folder, ignore=shutil.ignore_patterns("__pycache__"))
        for old, new in edits:
            path = folder / f"{unit}.py"
            text = path.read_text("utf-8")
            assert old in text, old
            path.write_text(text.replace(old, new, 1), "utf-8")
        importlib.invalidate_caches()
        return importlib.import_module(f"{folder.name}.{unit}")

    return build


def name(answer: Answer) -> str:
    return f"{answer.unit}: {answer.name}"


def folder_of(module: ModuleType) -> str:
    return str(Path(module.__file__ or "").parent)


@pytest.mark.parametrize("unit", UNITS)
def test_the_solution_passes(build: Build, unit: str) -> None:
    assert list(check(UNITS[unit], build(unit))) == []


@pytest.mark.parametrize("answer", RIGHT, ids=name)
def test_a_right_answer_of_another_style_passes(build: Build, answer: Answer) -> None:
    assert list(check(UNITS[answer.unit], build(answer.unit, *answer.edits))) == []


def test_wrong_answers_are_refused_and_their_cause_is_shown(build: Build) -> None:
    missed, without_cause, with_another = [], [], []
    for answer in WRONG:
        finding = None
        for finding in check(UNITS[answer.unit], build(answer.unit, *answer.edits)):
            if finding.cause:
                break
        if finding is None:
            missed.append(name(answer))
        elif not finding.cause:
            without_cause.append(name(answer))
        elif finding.cause.name != answer.name:
            with_another.append((name(answer), finding.cause.name))
    assert missed == []
    assert len(without_cause + with_another) <= 0.1 * len(WRONG), (without_cause, with_another)


def test_every_known_mistake_is_wrong_and_recognised_and_its_exhibit_exists() -> None:
    for unit in UNITS.values():
        for mistake in unit.mistakes:
            findings = check(unit, unit.answer(mistake.edits))
            assert next(each.cause for each in findings if each.cause) == mistake
            assert mistake.exhibit in exhibits() or not mistake.exhibit


@pytest.mark.parametrize(
    ("unit", "old", "new", "text"),
    [
        ("positions", "return table", "return table.double()", "float64 instead of torch.float32"),
        ("positions", "return table", "return table.numpy()", "numpy.ndarray instead of Tensor(4"),
        ("positions", ", persistent=False", "", "item 0 is \"'table' in its state_dict()\""),
        ("masks", "return mask", "mask", "None instead of Tensor(5, 5)"),
        ("masks", "dtype=torch.bool", "dtype=None", "dtype is torch.float32 instead of torch.bool"),
        ("masks", "- query_length + 1", "- query_length", "key 0: True (hidden) instead of False"),
        ("embedding", "nn.Parameter(", "(", "item 0 is 'nothing' instead of 'weight (7, 6)'"),
        ("attention", "return weights @ value,", "return weights @ value  #", "got Tensor(2, 3, 5"),
        ("search", "return tokens", "return torch.tensor(tokens)", "item 0 is tensor("),
    ],
)
def test_what_is_wrong_with_a_result_is_named(
    build: Build, unit: str, old: str, new: str, text: str
) -> None:
    differences = [each.difference for each in check(UNITS[unit], build(unit, (old, new)))]
    assert any(text in each for each in differences), differences


ROW = torch.tensor([1e6, 1.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("got", "expected", "text"),
    [
        ([1, 2], [1, 2, 3], "item 2 is 'nothing' instead of 3, in [1, 2]"),
        ([1, 2], [1], "item 1 is 2 instead of 'nothing', in [1, 2]"),
        ([1, 5, 6], [1, 2, 3], "item 1 is 5 instead of 2, in [1, 5, 6]"),
        # a difference of 1 in a million is rounding, and one of 0.5 in 1 is not
        (
            ROW + torch.tensor([1.0, 0.0, 0.5, -0.25]),
            ROW,
            "at column 2: 1.5 instead of 1 (2 of 4 numbers differ, by at most 0.5)",
        ),
        (
            ROW * torch.tensor([1.0, torch.nan, 1.0, torch.inf]),
            ROW,
            "at column 1: nan instead of 1 (2 of 4 numbers differ, 2 are NaN or infinite)",
        ),
    ],
    ids=["shorter", "longer", "other", "largest", "not a number"],
)
def test_what_differs_first_and_by_how_much_is_told(got: Any, expected: Any, text: str) -> None:
    assert describe(got, expected, ["column"]) == text


def test_results_are_equal_only_if_both_are_right() -> None:
    assert not are_equal(Raised("raises"), Raised("raises"))
    assert not are_equal([torch.ones(2)], [torch.ones(2)])
    assert are_equal(ROW * torch.nan, ROW * torch.nan)
    assert are_equal(ROW, ROW * (1 + 1e-6))  # rounding
    assert not are_equal(ROW, ROW * (1 + 1e-4))


def test_the_template_has_a_file_for_each_unit_and_the_names_that_its_laws_judge() -> None:
    for unit, each in UNITS.items():
        module = importlib.import_module(f"coursework.template.{unit}")
        assert {*each.parts} <= vars(module).keys()
    assert {path.stem for path in TEMPLATE.glob("*.py")} - {"__init__"} == UNITS.keys()


def test_the_page_names_the_chapters_of_each_template() -> None:
    page = (PAGES / "take_the_course.md").read_text("utf-8")
    rows = re.findall(r"^\| \d+ \| `(\w+)` \|.*\| ([\d, ]+) \|$", page, re.M)
    assert [unit for unit, _ in rows] == list(UNITS)
    for unit, listed in rows:
        text = (TEMPLATE / f"{unit}.py").read_text("utf-8")
        (chapters,) = re.findall(r"Chapters? ([\d, and]+) of the book", text)
        assert re.findall(r"\d+", chapters) == listed.split(", ")


def test_a_package_begins_empty_and_is_solved_unit_by_unit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert course.main(["build", "masks"]) == 1  # what only begins is not solved
    assert "Fill my_transformer/masks.py" in capsys.readouterr().out
    assert course.main(["build", "masks"]) == 1
    assert "causal_mask: wrong" in capsys.readouterr().out
    solved = (SOLUTION / "masks.py").read_bytes()
    Path("my_transformer", "masks.py").write_bytes(solved)
    assert course.main(["build", "4"]) == 0
    assert "padding_mask: right\nSolved: 10 of 10 points." in capsys.readouterr().out
    assert course.main(["build", "tokens"]) == 1
    assert Path("my_transformer", "masks.py").read_bytes() == solved
    assert course.main(["build"]) == 0
    printed = capsys.readouterr().out
    assert (
        "4. masks: causal and padding masks (solved, 10 points)\n   5. attention: scaled" in printed
    )
    assert "tokens: byte-pair encoding (not solved yet, 0 points)" in printed
    assert "embedding: token embeddings\n" in printed
    assert course.main(["status"]) == 0
    printed = capsys.readouterr().out
    assert "units: 1 of 12 solved, 10 of 120 points." in printed
    assert printed.splitlines()[1] == "Next: python examples/course.py build tokens"
    monkeypatch.chdir("my_transformer")
    assert course.main(["build", "masks", "--folder", "."]) == 0
    assert course.main(["build", "maks"]) == 2
    assert "must be 1 to 12 or masks, got 'maks'" in capsys.readouterr().err
    for text in (
        "[1]",
        "{",
        '{"masks": {"causal_mask": null}}',
        '{"masks": {"causal_mask": "yes"}}',
        '{"masks": 1}',
    ):
        Path("progress.json").write_text(text, "utf-8")
        assert course.main(["status", "--folder", "."]) == 2
        assert "progress.json must hold what was solved" in capsys.readouterr().err


def test_a_unit_is_judged_with_where_by_how_much_and_why(
    build: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(build("attention", *OVER_QUERIES.edits))
    assert course.main(["build", "5", "--folder", folder]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "at batch 0, head 0, query 0, key 0: " in printed
    assert "numbers differ, by at most" in printed
    assert "A known mistake gives the same: a softmax over the queries." in printed
    assert "python examples/course.py museum softmax_over_queries" in printed
    assert "Also violated: as many queries as keys; masked keys have the weight zero" in printed
    assert course.main(["build", "heads", "--folder", folder]) == 1
    assert "needs units that are not solved yet: attention." in capsys.readouterr().out
    assert json.loads(Path(folder, "progress.json").read_text("utf-8"))["attention"] == {
        "attention_weights": 0,
        "scaled_dot_product_attention": 0,
        "hints": 0,
    }


IMPORT, BODY = "import torch\n", "    mask = torch.ones"
FAILS = {
    "bad syntax": (IMPORT, "import torch as\n", "masks.py raises SyntaxError: invalid syntax"),
    "error": (IMPORT, "{}['a']\n", "masks.py raises KeyError at masks.py:3: 'a'"),
    "exit": (IMPORT, "raise SystemExit(0)\n", "masks.py raises SystemExit at masks.py:3: 0"),
    "end": (IMPORT, "import os; os._exit(0)\n", "ends its process, with the exit status 0"),
    "loop": (IMPORT, "while True: pass\n", "is stopped at masks.py:3: it takes more than 1 second"),
    "no name": ("torch.ones", "torch.one", "raises AttributeError at masks.py:9"),
    "in a library": (BODY, f"    import json; json.loads('')\n{BODY}", "Error at masks.py:9: "),
    "exit in a law": (BODY, f"    raise SystemExit(0)\n{BODY}", "SystemExit at masks.py:9: 0"),
}


@pytest.mark.parametrize(("old", "new", "text"), FAILS.values(), ids=FAILS)
def test_code_that_fails_or_ends_or_never_ends_is_refused_with_its_line(
    build: Build,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    old: str,
    new: str,
    text: str,
) -> None:
    if "while" in new:  # the others have all the time that they need
        monkeypatch.setattr(isolation, "LIMIT", 1.0)
    folder = folder_of(build("tokens"))
    path = Path(folder, "masks.py")
    path.write_text(path.read_text("utf-8").replace(old, new), "utf-8")
    assert course.main(["build", "masks", "--folder", folder]) == 1
    captured = capfd.readouterr()
    assert text in " ".join(captured.out.split())
    assert captured.err == ""


def test_an_interruption_names_the_law_and_the_line(
    build: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a terminal does, the signal goes to both processes."""
    interrupt = "[os.kill(process, signal.SIGINT) for process in (os.getppid(), os.getpid())]"
    stop = f"    import os, signal, time; time.sleep(0.3); {interrupt}; time.sleep(60)\n"
    folder = folder_of(build("masks", (BODY, stop + BODY)))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background
    try:  # ignores the signal
        assert course.main(["build", "masks", "--folder", folder]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    printed = " ".join(capsys.readouterr().err.split())
    assert re.search(r"stopped in the law 'a position .*' at masks.py:9", printed)


def test_code_that_changes_its_input_is_refused_and_the_input_is_restored() -> None:
    unit, argument = Unit(positions.UNIT.file, "in place"), torch.ones(2)
    unit.calls("double", "", a_double=(argument,))
    unit.law("double")(lambda my: my.double(positions.X))
    before = positions.X.clone()
    for law in unit.laws:
        result = evaluate(unit, law, SimpleNamespace(double=lambda x: x.mul_(2)))
        assert result == Raised("changes its input in place; compute a new tensor")
    assert argument.equal(torch.ones(2))
    assert positions.X.equal(before)


def test_a_class_is_graded_by_the_tests_that_the_page_for_teachers_shows(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = (PAGES / "teach_a_class.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    shutil.copytree(folder_of(build("attention", *OVER_QUERIES.edits)), tmp_path / "my_transformer")
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    assert names["test_unit"].pytestmark[0].args == ("unit", list(UNITS))
    names["test_unit"]("masks")
    with pytest.raises(AssertionError):
        names["test_unit"]("attention")


def test_the_readers_modules_learn_to_translate_and_their_attention_is_shown(
    build: Build, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = SimpleNamespace(**{unit: build(unit) for unit in UNITS})
    monkeypatch.setattr(training, "D_MODEL", 32)
    orders = itertools.islice(itertools.permutations(["one", "two", "three", "four"]), 8)
    pairs = [(" ".join(order), " ".join(order[::-1])) for order in orders]
    score, page = training.train(mine, pairs, pairs, updates=500, merges=20)
    assert score > 60  # 83 or more from each of 30 seeds, at most 30 without positions
    model = training.Translator(mine, 20, 20)
    source, target = (torch.randint(3, 20, (2, length)) for length in (5, 4))
    source[1, 3:] = target[1, 3:] = training.PAD
    example = {"source": source, "target": target}
    soundness = check_soundness(model, example, padding_id=training.PAD)
    assert set(soundness.violated) <= {"device"}, soundness  # the solution's masks are on the CPU
    repeated = torch.full((1, 4), 5)  # only positions tell these tokens apart
    memory, mask = model.eval().encode(repeated)
    for each in (memory, model.decode(repeated, memory, mask)):
        assert (each[0, 1:] - each[0, :1]).abs().amax(-1).min() > 1e-3
    assert capsys.readouterr().out.endswith(f"BLEU {score:.1f} of 8 test sentences\n")
    names = ["Encoder self-attention", "Decoder self-attention", "Cross-attention"]
    assert [each.name for each in page.maps] == names


def test_a_training_begins_only_when_all_laws_hold_also_if_a_unit_ends_its_process(
    build: Build,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(commands, "UNITS", {unit: UNITS[unit] for unit in [*UNITS][:3]})
    folder, page = folder_of(build("masks")), tmp_path / "attention.html"
    Path(folder, "tokens.py").write_text("import os; os._exit(3)\n", "utf-8")
    assert course.main(["train", "--folder", folder, "--page", str(page)]) == 1
    printed = capsys.readouterr().out
    assert "tokens.py ends its process, with the exit status 3" in printed
    assert printed.count("Solved: ") == 2
    assert not page.exists()
