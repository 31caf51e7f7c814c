"""The book: every chapter has all its parts, runs, and shows no line that is too wide."""

import itertools
import re
import unicodedata
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from tests.test_language import texts

from cells import chapter_files, code_lines, notebook_text, read_cells
from execution import outputs_of

CODE_COLUMNS, BESIDE_COLUMNS, OUTPUT_COLUMNS = 72, 58, 48

QUICK = ("08_layer",)
"""What the fast tests run of the chapters: one of whole blocks."""

QUOTES = {  # what a chapter says of a training, and what the training prints
    "03_projections": [(r"an accuracy of about (0\.48)", r"^shared +(\S+)")],
    "04_scale": [(r"the entropy is about (1\.76)", r"^d = 64 +\S+ +(\S+)")],
    "05_masks": [(r"the loss is about (3\.2),", r"^no mask +\S+ +\S+ +\S+ +(\S+)")],
    "06_heads": [(r"scores about (0\.64)", r"^ +1 +(\S+)")],
    "10_encoder_decoder": [
        (r"(83) % of the symbols are right, but only about (28) %", r"^ +50 +\S+ +(\S+) +(\S+)"),
        (r"more than (99) % of the sequences", r"^ +400 +\S+ +\S+ +(\S+)"),
        (r"on the average about (0\.9)\.", r"^mean weight there: (\S+)"),
        (r"this one only about (84) %", r"^ +100 .* (\S+)\n +200 .*\ncorrect: 0"),
        (r"about (85) % of the symbols", r"^without\n.*\n +100 +\S+ +(\S+)"),
    ],
    "12_train": [(r"the first measurement, about (0\.67)", r"^ +50 +\S+ +\S+ +\S+ +(\S+)")],
    "14_look_inside": [
        (r"puts about (0\.7) of its weight", r"^head 1: .* (\S+)$"),
        (r"truth, (8) and (3) sentences", r"^decoder cross_attention +(\S+) +(\S+)"),
    ],
}


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


@that_run(chapter_files())
def test_a_chapter_runs_and_its_exercises_fail_until_they_are_solved(path: Path) -> None:
    outputs = outputs_of(path)  # raises if a cell fails, or a check passes too early
    assert any(re.search(r"\d", output) for output in outputs)
    assert [output for output in outputs if columns(output) > OUTPUT_COLUMNS] == []


@that_run([path for path in chapter_files() if path.stem in QUOTES])
def test_what_a_chapter_says_of_a_training_is_what_it_prints_as_far_as_cpus_agree(
    path: Path,
) -> None:
    source, printed = path.read_text("utf-8").replace("\n# ", " "), "\n".join(outputs_of(path))
    for sentence, output in QUOTES[path.stem]:
        said, found = re.search(sentence, source), re.search(output, printed, re.M)
        assert said, sentence
        assert found, output
        unit = 100 if "%" in sentence else 1
        for quoted, number in zip(said.groups(), found.groups(), strict=True):
            tolerance = 0.05 if "." in number else 1
            expected = pytest.approx(float(quoted) / unit, rel=0.1, abs=tolerance)
            assert float(number) == expected, sentence


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
            assert code_lines(cell.source) <= 15, cell.source
            assert columns(cell.source) <= BESIDE_COLUMNS, cell.source
    figures = re.findall(r"^!\[(.*?)\]\((figures/\w+\.svg)\)$", text, re.M | re.S)
    assert figures
    for description, name in figures:
        assert len(description) >= 40, description
        assert (path.parent / name).is_file(), name

    def asserts(role: str) -> list[bool]:
        found = (cell.source for cell in cells if cell.role == role)
        return [re.search(r"^ *assert ", source, re.M) is not None for source in found]

    assert any(asserts("proof")), "the implementation equals that of the library"
    imports = re.compile(r"^(from|import) transformer_blocks", re.M)
    assert any(imports.search(cell.source) for cell in code)
    assert "broken" in roles, "something is broken on purpose"
    places = [number for number, role in enumerate(roles) if role == "stub"]
    assert [roles[number : number + 3] for number in places] == 3 * [["stub", "check", "solution"]]
    assert all(asserts("check"))
    assert re.findall(r"^### Exercise (\d): \w", text, re.M) == ["1", "2", "3"]
    assert re.findall(r"^## (.*)", text, re.M)[-2:] == ["Exercises", "Where to go"]


@chapters
def test_the_notebook_is_up_to_date(path: Path) -> None:
    assert path.with_suffix(".ipynb").read_text(encoding="utf-8") == notebook_text(path)


@pytest.mark.slow
@chapters
def test_the_notebook_runs_from_top_to_bottom(path: Path) -> None:
    notebook = nbformat.read(path.with_suffix(".ipynb"), as_version=4)
    notebook.cells = [
        cell for cell in notebook.cells if not cell.source.startswith("# This cell takes")
    ]
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
