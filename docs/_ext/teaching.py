"""Teaching: what a teacher takes from the book, slides and notebooks without solutions.

    python docs/_ext/teaching.py FOLDER

writes into the folder ``slides.html``, with the question of each chapter and a slide for each of
its figures, and the notebooks of the chapters without the solutions of their exercises. The slides
are one file that loads nothing. In a browser, arrow keys and space turn them over; printed, each is
a page. What a figure shows is folded below it.
"""

import base64
import html
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat

from cells import LEARN, chapter_files, make_notebook, plain_markdown, read_cells

STYLE = """
html { scroll-snap-type: y mandatory; font: 3.2vmin/1.4 system-ui, sans-serif; color: #222; }
body { margin: 0; }
section { height: 100vh; box-sizing: border-box; padding: 4vmin 6vmin; scroll-snap-align: start;
  display: flex; flex-direction: column; justify-content: center; align-items: center; gap: 2vmin; }
h1 { font-size: 8vmin; margin: 0; } h2 { font-size: 4.5vmin; margin: 0; }
.question { font-size: 5vmin; max-width: 26em; text-align: center; }
img { min-height: 0; flex: 0 1 auto; width: min(100%, 130vmin); max-height: 66vh;
  object-fit: contain; }
details { font-size: 2.4vmin; max-width: 48em; } small { color: #666; }
@page { size: 297mm 167mm; margin: 0; } @media print { section { break-after: page; } }
"""
SCRIPT = """
addEventListener("keydown", (event) => {
  const step = { ArrowRight: 1, ArrowDown: 1, PageDown: 1, " ": 1, ArrowLeft: -1, ArrowUp: -1,
    PageUp: -1 }[event.key];
  if (!step || event.target.closest("summary")) return;
  event.preventDefault();
  const slide = Math.round(scrollY / innerHeight) + step;
  document.querySelectorAll("section")[slide]?.scrollIntoView();
});
"""
PART = re.compile(r"^## (.*)$|!\[([^\]]*)\]\((figures/[\w.]+)\)", re.M)


def slides(path: Path) -> Iterator[str]:
    """Yield the slides of a chapter as HTML: its question, and each figure with its heading."""
    cells = read_cells(path)
    text = "\n\n".join(cell.source for cell in cells if cell.kind == "markdown")
    title = heading = text.split("\n")[0].removeprefix("# ")
    question = re.findall(r"\*\*(.+?)\*\*", text, re.S)[0]
    yield f"<h1>{plain(title)}</h1>\n<p class=question>{plain(question)}</p>"
    for new_heading, description, file in PART.findall(text):
        heading = new_heading or heading
        if file:
            image = base64.b64encode((LEARN / file).read_bytes()).decode()
            yield (
                f"<h2>{plain(heading)}</h2>\n"
                f'<img alt="" src="data:image/svg+xml;base64,{image}">\n'
                f"<details><summary>What it shows</summary>{plain(description)}</details>\n"
                f"<small>Chapter {plain(title)}</small>"
            )


def plain(text: str) -> str:
    """Return text of one line as HTML, without the marks of Markdown and of formulas."""
    return html.escape(re.sub(r"[`$*\\]", "", " ".join(plain_markdown(text).split())))


def deck() -> str:
    """Return all slides as one page."""
    sections = "\n".join(
        f"<section>\n{slide}\n</section>" for path in chapter_files() for slide in slides(path)
    )
    head = (
        f'<meta charset="utf-8"><title>The Transformer, step by step</title><style>{STYLE}</style>'
    )
    return f'<!doctype html><html lang="en">{head}\n{sections}\n<script>{SCRIPT}</script></html>\n'


def without_solutions(path: Path) -> str:
    """Return the notebook of a chapter without the solutions of its exercises."""
    notebook = make_notebook(path)
    notebook.cells = [
        cell for cell in notebook.cells if not cell.source.startswith("<details><summary>Solution")
    ]
    return nbformat.writes(notebook) + "\n"


def main(folder: Path) -> None:
    """Write the slides and the notebooks."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "slides.html").write_text(deck(), encoding="utf-8")
    for path in chapter_files():
        (folder / f"{path.stem}.ipynb").write_text(without_solutions(path), encoding="utf-8")
    print(f"{folder / 'slides.html'} and {len(chapter_files())} notebooks are written")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
