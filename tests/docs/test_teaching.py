"""What teachers take from the book: slides, and notebooks without solutions."""

from pathlib import Path

import nbformat
import pytest

from cells import chapter_files, read_cells
from teaching import main, plain


def test_every_figure_has_a_slide_and_no_solution_is_in_a_notebook(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(tmp_path)
    deck = (tmp_path / "slides.html").read_text("utf-8")
    figures = 0
    for path in chapter_files():
        cells = read_cells(path)
        figures += sum(cell.source.count("](figures/") for cell in cells if cell.kind != "code")
        notebook = nbformat.read(tmp_path / f"{path.stem}.ipynb", as_version=4)
        text = "\n".join(cell.source for cell in notebook.cells)
        solutions = [each.source for each in cells if each.role == "solution"]
        assert len(solutions) >= 3
        assert not [each for each in solutions if each in text]
        title = cells[0].source.split("\n")[0].removeprefix("# ")
        assert f"<h1>{plain(title)}</h1>" in deck
    assert deck.count("<img ") == figures > 40
    assert deck.count("<section>") == figures + len(chapter_files())
    assert "://" not in deck  # nothing is loaded
    assert str(len(chapter_files())) in capsys.readouterr().out
