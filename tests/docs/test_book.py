"""The book: every chapter has all its parts, runs, and shows no line that is too wide."""

import ast
import functools
import importlib.util
import itertools
import re
import tomllib
from pathlib import Path
from unicodedata import east_asian_width

import nbformat
import pytest

from cells import (
    INSTALL,
    LEARN,
    Cell,
    chapter_files,
    make_notebook,
    prose,
    read_cells,
)
from execution import execute, main

DOCS = LEARN.parent
CODE_COLUMNS, BESIDE_COLUMNS, OUTPUT_COLUMNS = 72, 58, 48

QUICK = ("09_layer",)
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
    widths = [[1 + (east_asian_width(each) in "WF") for each in line] for line in text.split("\n")]
    return max(map(sum, widths))


@functools.cache
def outputs_of(path: Path) -> list[str]:
    return [cell.output for cell in read_cells(path)]


@that_run(chapter_files())
def test_a_chapter_runs_and_its_exercises_fail_until_they_are_solved(path: Path) -> None:
    def without_numbers(cells: list[Cell]) -> list[str]:  # each CPU rounds in its own way
        return [re.sub(r" *-?\d[\d.,e+-]*", "#", cell.output) for cell in cells]

    found = execute(path)  # raises if a cell fails, or a check passes too early
    assert without_numbers(found) == without_numbers(read_cells(path)), "make notebooks"


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
        assert len(description) > 40, name
        data = DOCS / "images" / "data" / f"{Path(name).stem}.json"
        shown = "".join(re.findall(r">[^<]*", (path.parent / name).read_text("utf-8")))
        recorded = data.read_text("utf-8") if data.is_file() else ""
        source = "\n".join([shown, recorded, *outputs_of(path)])
        found = {float(each) for each in re.findall(r"\d+\.?\d*(?:e-\d+)?", source)}
        for said in re.findall(r"(?<![\w.])\d+\.\d+(?!\w|\.\d)", description):
            unit = 10.0 ** -len(said.partition(".")[2])
            if not any(abs(float(said) - each) < 0.51 * unit for each in found):
                unknown.append((name, said))
    assert unknown == [pair for pair in UNPRINTED if pair[0] in prose(path)]


@chapters
def test_a_chapter_has_all_its_parts_and_no_line_that_is_too_wide(path: Path) -> None:
    cells, text = read_cells(path), prose(path)
    assert re.search(rf"\A# {int(path.stem[:2])} .*\n\n\*\*[^*]*\?\*\*", text), "a question"
    assert [each for each in outputs_of(path) if columns(each) > OUTPUT_COLUMNS] == []
    assert [
        cell for cell in cells if cell.kind == "code" and columns(cell.source) > CODE_COLUMNS
    ] == []
    roles = [cell.role for cell in cells]
    assert {"formula", "implementation", "proof", "broken"} <= {*roles}
    for cell, following in itertools.pairwise(cells):
        if cell.role == "formula":
            assert "$$" in cell.source
            assert following.role == "implementation"
        if cell.role == "implementation":
            assert columns(cell.source) <= BESIDE_COLUMNS, cell.source
    places = [number for number, role in enumerate(roles) if role == "stub"]
    assert [roles[each : each + 3] for each in places] == 3 * [["stub", "check", "solution"]]
    assert len(re.findall(r"^\*(?:Easy|Medium|Hard), about \d+ minutes\.\*$", text, re.M)) == 3
    assert text.count("<details><summary>Hint</summary>\n\n") == 3


def test_the_map_of_the_book_gives_each_part_its_chapter() -> None:
    numbers = {path.stem[3:]: str(int(path.stem[:2])) for path in chapter_files()}
    texts = re.findall(r">([^<]+)</text>", (LEARN / "figures" / "map.svg").read_text("utf-8"))
    for part, names in {
        "tokens": ["text_to_batches"],
        "embeddings, positions": ["embeddings", "positions"],
        "feed-forward network": ["layer"],
        "causal self-attention": ["masks"],
        "cross-attention": ["encoder_decoder"],
        "train all of it": ["train", "optimiser"],
        "choose the next token": ["choose_words"],
        "measure, look inside": ["measure", "look_inside"],
        "before, and since 2017": ["before_transformers", "since_2017"],
    }.items():
        number = texts[texts.index(part) + 1]
        assert number == ", ".join(numbers[each] for each in names), part


@chapters
def test_every_check_of_an_exercise_says_what_is_wrong(path: Path) -> None:
    checks = [ast.parse(cell.source) for cell in read_cells(path) if cell.role == "check"]
    found = [each for tree in checks for each in ast.walk(tree) if isinstance(each, ast.Assert)]
    assert len(found) >= 3
    assert [ast.unparse(each) for each in found if each.msg is None] == []


@chapters
def test_the_notebook_is_up_to_date(path: Path) -> None:
    text = path.with_suffix(".ipynb").read_text(encoding="utf-8")
    assert text == nbformat.writes(make_notebook(read_cells(path))) + "\n"


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


def test_no_solution_is_in_a_notebook_for_students(tmp_path: Path) -> None:
    main(without_solutions=tmp_path)
    for path in chapter_files():
        made = (tmp_path / f"{path.stem}.ipynb").read_text("utf-8")
        text = "\n".join(each.source for each in nbformat.reads(made, as_version=4).cells)
        cells = read_cells(path)
        solutions = [each.source for each in cells if each.role == "solution"]
        assert len(solutions) >= 3
        assert [each for each in solutions if each in text] == []
        assert all(each.source in text for each in cells if each.role == "check")
