"""Teaching: what a teacher takes from the book, slides and notebooks without solutions.

    python docs/_ext/teaching.py FOLDER

writes into the folder ``slides.html``, with the question of each chapter and a slide for each of
its figures, and the notebooks of the chapters without the solutions of their exercises. The slides
are one file that loads nothing. In a browser, arrow keys and space turn them over; printed, each is
a page. What a figure shows is folded below it.
"""

import html
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import nbformat

from cells import SOLUTION, chapter_files, embedded, make_notebook, plain_markdown, prose

PART = re.compile(r"^## (.*)$|!\[([^\]]*)\]\((figures/[\w.]+)\)", re.M)


def slides(path: Path) -> Iterator[str]:
    """Yield the slides of a chapter as HTML: its question, and each figure with its heading."""
    text = prose(path)
    title = heading = text.split("\n")[0].removeprefix("# ")
    question = re.findall(r"\*\*(.+?)\*\*", text, re.S)[0]
    yield f"<h1>{plain(title)}</h1>\n<p class=question>{plain(question)}</p>"
    for new_heading, description, file in PART.findall(text):
        heading = new_heading or heading
        if file:
            image = embedded(file)
            yield (
                f'<h2>{plain(heading)}</h2>\n<img alt="" src="{image}">\n'
                f"<details><summary>What it shows</summary>{plain(description)}</details>\n"
                f"<small>Chapter {plain(title)}</small>"
            )


def plain(text: str) -> str:
    """Return text of one line as HTML, without the marks of Markdown and of formulas."""
    return html.escape(re.sub(r"[`$*\\]", "", " ".join(plain_markdown(text).split())))


def main(folder: Path) -> None:
    """Write the slides and the notebooks."""
    folder.mkdir(parents=True, exist_ok=True)
    sections = [
        f"<section>\n{slide}\n</section>" for path in chapter_files() for slide in slides(path)
    ]
    page = Path(__file__).with_name("slides.html").read_text("utf-8")
    page = page.replace("SLIDES", "\n".join(sections))
    (folder / "slides.html").write_text(page, encoding="utf-8")
    for path in chapter_files():
        notebook = make_notebook(path)
        notebook.cells = [cell for cell in notebook.cells if not cell.source.startswith(SOLUTION)]
        nbformat.write(notebook, folder / f"{path.stem}.ipynb")
    print(f"{folder / 'slides.html'} and {len(chapter_files())} notebooks are written")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
