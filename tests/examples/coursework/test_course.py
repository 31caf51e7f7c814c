"""The course: right answers pass, wrong answers are refused, and their cause is shown."""

import importlib
import itertools
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
from coursework.commands import TEMPLATE
from coursework.grader import Raised, Unit, are_equal, check, describe, evaluate
from coursework.museum.exhibit import exhibits
from coursework.units import UNITS
from transformer_blocks.inspection import check_soundness

SOLUTION = Path(__file__).parent / "course_solution"
numbers = itertools.count()
Build = Callable[..., ModuleType]


class Answer(NamedTuple):
    """An answer to a unit: the solution's file, in which each old text is replaced by a new one."""

    unit: str
    name: str
    edits: Any


ANSWERS = tomllib.loads(Path(__file__).with_name("course_answers.toml").read_text("utf-8"))
WRONG, RIGHT = ([Answer(**each) for each in ANSWERS[kind]] for kind in ("wrong", "right"))


@pytest.fixture
def build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Build:
    """Write the solution, with the edits of an answer, and import one of its units."""
    monkeypatch.syspath_prepend(tmp_path)

    def build(unit: str, answer: Answer | None = None) -> ModuleType:
        folder = tmp_path / f"answer_{next(numbers)}"
        folder.mkdir()
        for path in SOLUTION.glob("*.py"):
            text = path.read_text("utf-8")
            for old, new in answer.edits if answer and answer.unit == path.stem else ():
                assert old in text, old
                text = text.replace(old, new, 1)
            (folder / path.name).write_text(text, "utf-8")
        importlib.invalidate_caches()
        return importlib.import_module(f"{folder.name}.{unit}")

    return build


def name(answer: Answer) -> str:
    return f"{answer.unit}: {answer.name}"


def folder_of(module: ModuleType) -> str:
    return str(Path(module.__file__ or "").parent)


OVER_QUERIES = next(each for each in WRONG if each.name == "a softmax over the queries")


@pytest.mark.parametrize("unit", UNITS)
def test_the_solution_passes(build: Build, unit: str) -> None:
    assert list(check(UNITS[unit], build(unit))) == []


@pytest.mark.parametrize("answer", RIGHT, ids=name)
def test_a_right_answer_of_another_style_passes(build: Build, answer: Answer) -> None:
    assert list(check(UNITS[answer.unit], build(answer.unit, answer))) == []


def test_wrong_answers_are_refused_and_their_cause_is_shown(build: Build) -> None:
    missed, without_cause, with_another = [], [], []
    for answer in WRONG:
        findings = list(check(UNITS[answer.unit], build(answer.unit, answer)))
        causes = [each.cause.name for each in findings if each.cause]
        if not findings:
            missed.append(name(answer))
        elif not causes:
            without_cause.append(name(answer))
        elif causes[0] != answer.name:
            with_another.append((name(answer), causes))
    assert missed == []
    assert len(without_cause + with_another) <= 0.1 * len(WRONG), (without_cause, with_another)


def test_a_nan_that_is_replaced_after_the_softmax_is_found_in_the_gradient(build: Build) -> None:
    edits = [
        (
            "scores.masked_fill(mask, -math.inf)",
            "scores + mask.float().masked_fill(mask, -math.inf)",
        ),
        ("weights.masked_fill(mask, 0.0)", "weights.nan_to_num()"),
    ]
    answer = Answer("attention", "replaced", edits)
    (finding,) = check(UNITS["attention"], build("attention", answer))
    assert "gradients of a fully masked query" in finding.title
    assert "nan instead of 0" in finding.difference
    assert "are NaN or infinite" in finding.difference


@pytest.mark.parametrize(
    ("unit", "old", "new", "text"),
    [
        (
            "positions",
            "return table",
            "return table.double()",
            "sinusoidal_table() must be float32",
        ),
        ("positions", "return table", "return table.tolist()", "be Tensor, got a list of 40 items"),
        ("positions", "return table", "return table.numpy()", "be Tensor, got a numpy.ndarray"),
        ("positions", ", persistent=False", "", "unexpected: state_dict() holds 'table'"),
        ("masks", "return mask", "mask", "causal_mask() must be Tensor, got None"),
        ("masks", "dtype=torch.bool", "dtype=None", "dtype is torch.float32 instead of torch.bool"),
        ("masks", "- query_length + 1", "- query_length", "key 0: True (hidden) instead of False"),
        ("embedding", "nn.Parameter(", "(", "unexpected: weight is not an nn.Parameter"),
        ("tokens", "append(best)", "append(''.join(best))", "must be tuple[str, str], got 'es'"),
        ("tokens", "merges, voc", "merges, *voc", "must be tuple[list[tuple[str, str]], dict[str"),
        ("tokens", "merges, vocabulary", "merges, [0]", "[1] must be dict[str, int], got"),
        ("attention", "return weights @ value,", "return", "tuple[Tensor, Tensor], got Tensor("),
    ],
)
def test_a_result_of_a_wrong_type_is_named(
    build: Build, unit: str, old: str, new: str, text: str
) -> None:
    answer = Answer(unit, text, [(old, new)])
    differences = [each.difference for each in check(UNITS[unit], build(unit, answer))]
    assert any(text in each for each in differences), differences


def test_an_interrupted_check_names_the_law_and_the_line(build: Build) -> None:
    edits = [("    merged: list[str] = []", "    raise KeyboardInterrupt")]
    answer = Answer("tokens", "stops", edits)
    with pytest.raises(KeyboardInterrupt, match=r"in the law 'every .*' at tokens.py:\d"):
        list(check(UNITS["tokens"], build("tokens", answer)))


def test_every_known_mistake_is_wrong_and_recognised() -> None:
    for unit in UNITS.values():
        source = Path(unit.answer().__file__ or "").read_text("utf-8")
        for mistake in unit.mistakes:
            assert all(old in source for old, _ in mistake.edits), mistake.name
            findings = check(unit, unit.answer(mistake.edits))
            assert next(each.cause for each in findings if each.cause) == mistake


def test_every_exhibit_that_is_named_exists() -> None:
    named = {each.exhibit for unit in UNITS.values() for each in unit.mistakes} - {""}
    assert named <= exhibits().keys()


def test_the_template_has_a_file_for_each_unit_and_the_names_that_its_laws_judge() -> None:
    for unit, each in UNITS.items():
        module = importlib.import_module(f"coursework.template.{unit}")
        assert {law.of for law in each.laws} <= vars(module).keys()
    files = {path.stem for path in TEMPLATE.glob("*.py")} - {"__init__"}
    assert list(UNITS) == [unit for unit in UNITS if unit in files]
    assert files == UNITS.keys()


def test_the_page_names_the_chapters_of_each_template() -> None:
    page = Path(course.__file__).parents[1] / "docs" / "howto" / "take_the_course.md"
    rows = re.findall(r"^\| \d+ \| `(\w+)` \|.*\| ([\d, ]+) \|$", page.read_text("utf-8"), re.M)
    named = {}
    for unit in UNITS:
        text = (TEMPLATE / f"{unit}.py").read_text("utf-8")
        (chapters,) = re.findall(r"Chapters? ([\d, and]+) of the book", text)
        named[unit] = re.findall(r"\d+", chapters)
    assert {unit: numbers.split(", ") for unit, numbers in rows} == named


def test_a_new_package_is_empty_and_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert course.main(["new", "my_empty"]) == 0
    assert course.main(["check", "masks", "--package", "my_empty"]) == 1
    assert "not written yet" in capsys.readouterr().out
    with Path("my_empty", "masks.py").open("a", encoding="utf-8") as file:
        file.write("\n\ndef padding_mask(tokens, padding_id=0):\n    return tokens\n")
    assert course.main(["status", "--package", "my_empty"]) == 0
    rows = capsys.readouterr().out.splitlines()
    assert len(rows) == len(UNITS)
    assert rows.pop(3).endswith("5 of 5 laws fail")
    assert all(row.endswith("empty") for row in rows)
    assert course.main(["new", "my_empty"]) == 2
    assert course.main(["new", "torch"]) == 2
    assert course.main(["check", "maks", "--package", "my_empty"]) == 2
    assert course.main(["check", "masks", "--package", "nowhere"]) == 2
    assert course.main(["status", "--package", "nowhere"]) == 2
    shutil.copytree("my_empty", "json")
    assert course.main(["check", "masks", "--package", "json"]) == 2
    printed = capsys.readouterr().err
    assert "did you mean masks?" in printed
    assert "that no other module has, got 'json'" in printed
    monkeypatch.chdir("my_empty")
    assert course.main(["check", "masks", "--package", "."]) == 1


def test_a_check_prints_where_by_how_much_and_why(
    build: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = folder_of(build("attention", OVER_QUERIES))
    assert course.main(["check", "masks", "--package", folder]) == 0
    assert course.main(["check", "5", "--package", folder]) == 1
    printed = " ".join(capsys.readouterr().out.split())
    assert "at batch 0, head 0, query 0, key 0: " in printed
    assert "numbers differ, by at most" in printed
    assert "A known mistake gives the same: a softmax over the queries." in printed
    assert "python examples/course.py museum softmax_over_queries" in printed
    assert course.main(["check", "heads", "--package", folder]) == 1
    assert "It needs units that do not pass yet: attention." in capsys.readouterr().out


IMPORT, BODY = "import torch\n", "    mask = torch.ones"
FAILS = {
    "bad syntax": (IMPORT, "import torch as\n", "cannot be imported: SyntaxError: "),
    "error": (IMPORT, "{}['a']\n", "cannot be imported: KeyError at masks.py:3: 'a'"),
    "exit": (IMPORT, "raise SystemExit(0)\n", "cannot be imported: SystemExit at masks.py:3: 0"),
    "end": (IMPORT, "import os; os._exit(0)\n", "ends its process, with the exit status 0"),
    "loop": (IMPORT, "while True: pass\n", "is stopped at masks.py:3: it takes more than 1 second"),
    "no name": ("torch.ones", "torch.one", "raises AttributeError at masks.py:9"),
    "in a library": (BODY, f"    import json; json.loads('')\n{BODY}", "Error at masks.py:9: "),
    "exit in a law": (BODY, f"    raise SystemExit(0)\n{BODY}", "SystemExit at masks.py:9: 0"),
    "end in a law": (BODY, f"    import os; os._exit(0)\n{BODY}", "with the exit status 0"),
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
    monkeypatch.setattr(isolation, "LIMIT", 1.0)
    folder = folder_of(build("tokens", Answer("masks", "fails", ((old, new),))))
    assert course.main(["check", "masks", "--package", folder]) == 1
    captured = capfd.readouterr()
    assert text in " ".join(captured.out.split())
    assert captured.err == ""


def test_a_unit_that_ends_its_process_is_listed_and_the_others_are_checked(
    build: Build, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "UNITS", {name: UNITS[name] for name in ("masks", "loss")})
    old, new, _ = FAILS["end"]
    folder = folder_of(build("tokens", Answer("masks", "ends", ((old, new),))))
    assert course.main(["status", "--package", folder]) == 0
    masks, loss = capsys.readouterr().out.splitlines()
    assert masks.endswith("ends its process, with the exit status 0")
    assert loss.endswith("passed")
    assert course.main(["check", "all", "--package", folder]) == 1


def test_an_interruption_of_the_program_names_the_line_of_the_check(
    build: Build, capsys: pytest.CaptureFixture[str]
) -> None:
    """As a terminal does, the signal goes to both processes."""
    interrupt = "[os.kill(process, signal.SIGINT) for process in (os.getppid(), os.getpid())]"
    new = f"import os, signal, time; time.sleep(0.3); {interrupt}; time.sleep(60)\n"
    folder = folder_of(build("tokens", Answer("masks", "stops", ((IMPORT, new),))))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background
    try:  # ignores the signal
        assert course.main(["check", "masks", "--package", folder]) == 130
    finally:
        signal.signal(signal.SIGINT, before)
    assert "stopped at masks.py:3" in capsys.readouterr().err


def test_code_that_changes_its_input_is_refused_and_the_input_is_restored(build: Build) -> None:
    edit = ("        return x + self.table", "        x += self.table")
    end = ("x.shape[1]]\n", "x.shape[1]]\n        return x\n")
    answer = Answer("positions", "in place", (edit, end))
    before = positions.X.clone()
    finding = next(check(UNITS["positions"], build("positions", answer)))
    assert finding.difference == (
        "SinusoidalPositionalEncoding(6, 11)(Tensor(3, 5, 6)): "
        "changes its input in place; compute a new tensor"
    )
    assert positions.X.equal(before)


def test_arguments_of_a_law_that_a_call_changes_are_restored_too() -> None:
    unit, argument = Unit(positions.UNIT.file, "in place"), torch.ones(2)
    unit.calls("double", "", a_double=(argument,))
    result = evaluate(unit, unit.laws[0], SimpleNamespace(double=lambda x: x.mul_(2)))
    assert isinstance(result, Raised)
    assert argument.equal(torch.ones(2))


def test_a_class_is_graded_by_the_tests_that_the_page_for_teachers_shows(
    build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = Path(course.__file__).parents[1] / "docs" / "howto" / "teach_a_class.md"
    (code,) = re.findall(r"```python\n(.*?)```", page.read_text("utf-8"), re.S)
    shutil.copytree(folder_of(build("attention", OVER_QUERIES)), tmp_path / "my_transformer")
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
    score, page = training.train(mine, pairs, pairs, updates=300, merges=20)
    assert score > 90
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


def test_a_training_begins_only_when_all_laws_hold(
    build: Build, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    answer, page = next(each for each in WRONG if each.unit == "embedding"), tmp_path / "a.html"
    folder = folder_of(build("embedding", answer))
    assert course.main(["train", "--package", folder, "--page", str(page)]) == 1
    assert capsys.readouterr().out.startswith("embedding: ")
    assert not page.exists()


def test_an_error_equals_nothing_not_even_the_same_error() -> None:
    assert not are_equal(Raised("raises"), Raised("raises"))


ROW = torch.tensor([1e6, 1.0, 1.0, 2.0])


@pytest.mark.parametrize(
    ("got", "expected", "text"),
    [
        ([1, 2], [1, 2, 3], "item 2 is 'nothing' instead of 3, in [1, 2]"),
        ([1, 2], [1], "item 1 is 2 instead of 'nothing', in [1, 2]"),
        ([1, 5, 6], [1, 2, 3], "item 1 is 5 instead of 2, in [1, 5, 6]"),
        (ROW > 2, ROW, "the dtype is torch.bool instead of torch.float32"),
        # a difference of 1 in a million is rounding, and one of 0.5 in 1 is not
        (
            ROW + torch.tensor([1.0, 0.0, 0.5, -0.25]),
            ROW,
            "at column 2: 1.5 instead of 1 (2 of 4 numbers differ, by at most 0.5)",
        ),
    ],
    ids=["shorter", "longer", "other", "dtype", "largest"],
)
def test_what_differs_first_and_by_how_much_is_told(got: Any, expected: Any, text: str) -> None:
    assert describe(got, expected, ["column"]) == text
