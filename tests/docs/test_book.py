"""The book: every chapter has all its parts, runs, and shows no line that is too wide."""

import ast
import builtins
import importlib.util
import itertools
import json
import re
import symtable
import tomllib
import unicodedata
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from tests.docs.test_language import texts

from cells import (
    INSTALL,
    LEARN,
    LONG,
    Output,
    chapter_files,
    make_notebook,
    read_cells,
    stored_outputs,
)
from execution import execute

DOCS = LEARN.parent
CODE_COLUMNS, BESIDE_COLUMNS, OUTPUT_COLUMNS = 72, 58, 48

QUICK = ("08_layer",)
"""What the fast tests run of the chapters: one of whole blocks."""

FIGURE = r"!\[([^]]*)\]\((figures/\w+\.svg)\)"
UNPRINTED = [  # numbers in descriptions of figures that stand for lengths, angles and bars only
    *(("figures/dials.svg", number) for number in ("5.7", "0.57", "0.06")),
    *(("figures/nucleus.svg", number) for number in ("0.08", "0.05", "0.5")),
]
NUMBERS = tomllib.loads((LEARN / "numbers.toml").read_text("utf-8"))
"""What a chapter's text takes from its outputs: expressions of sentences and of their sources."""


def that_run(paths: list[Path]) -> pytest.MarkDecorator:
    """Mark a test of chapters that run, most of which are slow."""
    slow = [pytest.mark.slow]
    return pytest.mark.parametrize(
        "path", [pytest.param(p, id=p.stem, marks=slow * (p.stem not in QUICK)) for p in paths]
    )


chapters = pytest.mark.parametrize("path", chapter_files(), ids=lambda path: path.stem)


def columns(text: str) -> int:
    """Return the width of the widest line; a Japanese or Korean character counts two columns."""
    wide = re.compile("[\u1100-\U0010ffff]")
    return max(len(wide.sub(_columns, line)) for line in text.split("\n"))


def _columns(match: re.Match[str]) -> str:
    return "xx" if unicodedata.east_asian_width(match[0]) in "WF" else "x"


def prose(path: Path) -> str:
    return "\n\n".join(cell.source for cell in read_cells(path) if cell.kind == "markdown")


def outputs_of(path: Path) -> list[str]:
    return [output.text for output in stored_outputs(path)]


@that_run(chapter_files())
def test_a_chapter_runs_and_its_exercises_fail_until_they_are_solved(path: Path) -> None:
    def without_numbers(outputs: list[Output]) -> list[str]:  # each CPU rounds in its own way
        return [re.sub(r" *-?\d[\d.,e+-]*", "#", output.text) for output in outputs]

    found = execute(path)  # raises if a cell fails, or a check passes too early
    assert without_numbers(found) == without_numbers(stored_outputs(path)), "make notebooks"


@chapters
def test_what_a_chapter_prints_is_not_too_wide(path: Path) -> None:
    outputs = outputs_of(path)
    assert any(re.search(r"\d", output) for output in outputs)
    assert [output for output in outputs if columns(output) > OUTPUT_COLUMNS] == []


def comments(path: Path) -> str:
    """Return the texts that directly follow code, up to their first heading, without tables."""
    pairs = itertools.pairwise(read_cells(path))
    found = [
        after.source for cell, after in pairs if (cell.kind, after.kind) == ("code", "markdown")
    ]
    text = "\n".join(re.split(r"^#", each, maxsplit=1, flags=re.M)[0] for each in found)
    text = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    return re.sub(r"^(\||!\[).*|`[^`]*`|\$[^$]*\$|section [\d.]+|\]\(.*?\)", "", text, flags=re.M)


def unexplained(text: str, numbers: dict[str, str]) -> list[str]:
    """Return the decimal numbers and percentages of a text that are in none of the sentences."""
    text = re.sub(r"\s+", " ", text)
    for sentence in numbers:
        text = re.sub(sentence, lambda found: re.sub(r"[\d.]+", "", found[0]), text)
    return re.findall(r"(?<![\w.])(?:\d+\.\d+(?!\w|\.\d)|\d+(?= %))", text)


def disagreements(text: str, numbers: dict[str, str], source: str) -> list[tuple[str, str, str]]:
    """Return the sentences with a number that is not that of its source, with both numbers."""
    wrong = []
    for sentence, expression in numbers.items():
        said, found = re.search(sentence, text), re.search(expression, source, re.M)
        assert said, sentence
        assert found, expression
        for place, number in enumerate(found.groups(), 1):
            quoted, printed = said[place], float(number)
            if re.match(r"( to [\d.]+)? %", said.string[said.end(place) :]) and printed <= 1:
                printed *= 100
            unit = 10.0 ** -len(quoted.partition(".")[2])
            is_rough = "about" in said.string[said.start(place) - 40 : said.start(place)]
            tolerance = max(0.1 * printed, 0.05) if is_rough else unit
            if abs(float(quoted) - printed) > 1.001 * tolerance:
                wrong.append((sentence, quoted, number))
    return wrong


@chapters
def test_every_number_in_a_text_after_code_has_a_source(path: Path) -> None:
    assert unexplained(comments(path), NUMBERS.get(path.stem, {})) == []


@pytest.mark.parametrize("name", NUMBERS)
def test_a_number_in_a_text_is_that_of_its_source_as_far_as_cpus_agree(name: str) -> None:
    path = LEARN / f"{name}.py"
    written = path.read_text("utf-8")
    named = set(re.findall(r"/(\w+)\.(?:py|json|svg)", written))
    data = [*DOCS.glob("experiments/results/*.json"), *DOCS.glob("images/data/*.json")]
    files = [DOCS / "results.md", *(file for file in data if file.stem in named)]
    source = "\n".join([*outputs_of(path), *(file.read_text("utf-8") for file in files)])
    text = re.sub(r"\s+(# *)?", " ", written)
    assert disagreements(text, NUMBERS[path.stem], source) == []


@chapters
def test_a_number_in_the_description_of_a_figure_is_shown_recorded_or_printed(path: Path) -> None:
    unknown = []
    for description, name in re.findall(FIGURE, prose(path)):
        data = DOCS / "images" / "data" / f"{Path(name).stem}.json"
        shown = "".join(re.findall(r">[^<]*", (path.parent / name).read_text("utf-8")))
        recorded = data.read_text("utf-8") if data.is_file() else ""
        found = re.findall(r"\d+\.?\d*(?:e-\d+)?", "\n".join([shown, recorded, *outputs_of(path)]))
        for said in re.findall(r"(?<![\w.])\d+\.\d+(?!\w|\.\d)", description):
            unit = 10.0 ** -len(said.partition(".")[2])
            if not any(abs(float(said) - float(each)) < 0.51 * unit for each in found):
                unknown.append((name, said))
    assert unknown == [pair for pair in UNPRINTED if pair[0] in prose(path)]


def test_the_figure_of_the_circuits_shows_the_training_that_its_chapter_prints() -> None:
    data = json.loads((DOCS / "images" / "data" / "circuits.json").read_text("utf-8"))
    [output] = [each for each in outputs_of(LEARN / "14_look_inside.py") if "update " in each]
    drawn = {update: numbers for update, *numbers in data["numbers"]["induction"][0]}
    printed = [[float(each) for each in line.split()] for line in output.splitlines()[1:]]
    assert len(printed) == 11
    for update, loss, *scores in printed:
        assert drawn[int(update)] == pytest.approx([loss, *scores], abs=0.0051), update


@pytest.mark.parametrize(
    ("text", "unknown", "wrong"),
    [
        ("The loss falls to 0.25, in 12.5 % of the time.", [], []),
        ("The loss falls to 0.29, in 12.5 % of the time.", [], [("0.29", "0.253")]),
        ("The loss falls to 0.25, in 11.5 % of the time.", [], [("11.5", "0.125")]),
        ("The loss falls to 0.25, in 12.5 % of the time, from 2.08.", ["2.08"], []),
        ("The loss falls to 0.25, in 12.5 % of the time. 7 % are left.", ["7"], []),
    ],
)
def test_a_wrong_number_and_one_without_a_source_are_found(
    text: str, unknown: list[str], wrong: list[tuple[str, str]]
) -> None:
    numbers = {r"falls to (\S+), in (\S+) % of": r"^loss (\S+)\ntime (\S+)$"}
    assert unexplained(text, numbers) == unknown
    found = disagreements(text, numbers, "loss 0.253\ntime 0.125")
    assert [pair for _, *pair in found] == [list(pair) for pair in wrong]


def test_every_comparison_of_floats_in_a_text_has_an_absolute_tolerance() -> None:
    arguments = re.compile(r"allclose(\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\))")
    calls = [(name, call) for name, text in texts().items() for call in arguments.findall(text)]
    assert len(calls) > 80
    assert len(calls) == sum(text.count("allclose(") for text in texts().values())
    assert [(name, call) for name, call in calls if "atol=" not in call] == []


@chapters
def test_a_chapter_has_all_its_parts_and_no_line_that_is_too_wide(path: Path) -> None:
    cells, text = read_cells(path), prose(path)
    roles, code = [cell.role for cell in cells], [cell for cell in cells if cell.kind == "code"]
    assert text.startswith(f"# {int(path.stem[:2])} ")
    assert re.search(r"\A# .*\n\n\*\*[^*]*\?\*\*", text), "it begins with a question"
    assert len(text.split()) >= 500
    assert [cell for cell in code if columns(cell.source) > CODE_COLUMNS] == []

    assert "formula" in roles
    for cell, following in itertools.pairwise(cells):
        if cell.role == "formula":
            assert "$$" in cell.source
            assert following.role == "implementation"
    for cell in cells:
        if cell.role == "implementation":
            lines = [line.strip() for line in cell.source.splitlines()]
            assert len([line for line in lines if line and line[0] not in '#"']) <= 15, cell.source
            assert columns(cell.source) <= BESIDE_COLUMNS, cell.source
    figures = re.findall(FIGURE, text)
    assert figures
    for description, name in figures:
        assert len(description) >= 40, description
        assert (path.parent / name).is_file(), name

    def asserts(role: str) -> list[bool]:
        found = (cell.source for cell in cells if cell.role == role)
        return [re.search(r"^ *assert ", source, re.M) is not None for source in found]

    assert any(asserts("proof")), "the implementation equals that of the library"
    imports = re.compile(r"^(from|import) (transformer_blocks|translation)", re.M)
    assert any(imports.search(cell.source) for cell in code)
    assert "broken" in roles, "something is broken on purpose"
    places = [number for number, role in enumerate(roles) if role == "stub"]
    assert [roles[number : number + 3] for number in places] == 3 * [["stub", "check", "solution"]]
    assert all(asserts("check"))
    assert re.findall(r"^### Exercise (\d): \w", text, re.M) == ["1", "2", "3"]
    assert len(re.findall(r"^\*(?:Easy|Medium|Hard), about \d+ minutes\.\*$", text, re.M)) == 3
    assert text.count("<details><summary>Hint</summary>\n\n") == 3
    titles = re.findall(r"^## (.*)", text, re.M)
    assert titles[-3:] == ["Exercises", "What you can do now", "Where to go"]


def bound(source: str) -> set[str]:
    """Return the names that code binds outside of its functions and classes."""
    symbols = symtable.symtable(source, "cell", "exec").get_symbols()
    return {each.get_name() for each in symbols if each.is_assigned() or each.is_imported()}


def used(source: str) -> set[str]:
    """Return the names that code reads and does not bind in a function of its own."""
    names: set[str] = set()
    tables = [symtable.symtable(source, "cell", "exec")]
    while tables:
        table = tables.pop()
        is_module = table.get_type() == "module"
        found = (each for each in table.get_symbols() if each.is_global() or is_module)
        names |= {each.get_name() for each in found if each.is_referenced()}
        tables += table.get_children()
    return names


def needed_of_others(path: Path) -> list[tuple[int, set[str]]]:
    """Return for each exercise the names that only another exercise or a long cell binds."""
    known, exercises = set(dir(builtins)), list[str]()
    for cell in read_cells(path):
        if cell.role == "stub":
            exercises.append("")
        if cell.role in ("stub", "check", "solution"):
            exercises[-1] += cell.source + "\n"
        elif cell.kind == "code" and cell.role != "recorded":
            known |= bound(cell.source)
    missing = [used(source) - bound(source) - known for source in exercises]
    return [(number, names) for number, names in enumerate(missing, 1) if names]


@chapters
def test_every_check_of_an_exercise_says_what_is_wrong(path: Path) -> None:
    checks = [ast.parse(cell.source) for cell in read_cells(path) if cell.role == "check"]
    found = [each for tree in checks for each in ast.walk(tree) if isinstance(each, ast.Assert)]
    assert len(found) >= 3
    assert [ast.unparse(each) for each in found if each.msg is None] == []


@chapters
def test_an_exercise_needs_no_other_one(path: Path) -> None:
    assert needed_of_others(path) == []


def test_a_name_from_another_exercise_is_found(tmp_path: Path) -> None:
    exercise = '# %% tags=["stub"]\ndef f(x):\n    return x\n\n# %% tags=["check"]\n'
    first, second = "size = 2\nassert f(size) == size\n", "assert [f(y) for y in range(size)]\n"
    path = tmp_path / "99_name.py"
    path.write_text(f"# %%\nimport torch\n\n{exercise}{first}\n{exercise}{second}", "utf-8")
    assert needed_of_others(path) == [(2, {"size"})]


@chapters
def test_the_notebook_is_up_to_date(path: Path) -> None:
    text = path.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert text == nbformat.writes(make_notebook(path, stored_outputs(path))) + "\n"


@chapters
def test_a_notebook_installs_shows_outputs_and_announces_errors(path: Path) -> None:
    install, *cells = nbformat.read(path.with_suffix(".ipynb"), as_version=4).cells
    assert "%pip install" in install.source
    for cell, made in zip(read_cells(path), cells, strict=True):
        assert "```{" not in made.source
        assert "](figures/" not in made.source
        assert "_build/html/learn/" in made.source if "{widget}" in cell.source else True
        if cell.role == "check":
            assert made.source.startswith("# Raises an error, shown in red, until")
            assert not made.outputs
        elif cell.kind == "code" and cell.role not in ("solution", "stub"):
            assert bool(made.outputs) >= bool(re.search(r"^print\(", cell.source, re.M))


def test_the_first_cell_says_what_is_missing_outside_of_the_repository(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    code = INSTALL.replace("%pip install", "pass  #")
    exec(code, {})  # the library is installed
    assert Path.cwd() == tmp_path
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="name the folder of its repository"):
        exec(code, {})
    exec(code.replace('"../.."', repr(str(DOCS.parent))), {})
    assert Path.cwd() == LEARN


@pytest.mark.slow
@chapters
def test_the_notebook_runs_from_top_to_bottom(path: Path) -> None:
    notebook = nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    notebook.cells = [cell for cell in notebook.cells if not cell.source.startswith(LONG)]
    client = NotebookClient(
        notebook, kernel_name="python3", extra_arguments=["--log-level=ERROR"], timeout=120
    )
    client.execute(cwd=str(path.parent))  # only the checks of unsolved exercises may fail
    failed = [
        cell
        for cell in notebook.cells
        if any(output.output_type == "error" for output in cell.get("outputs", []))
    ]
    assert len(failed) == 3
