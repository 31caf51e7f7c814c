"""The museum: a page for each exhibit of ``examples/coursework/museum``.

Before the pages are read, an empty file ``museum/NAME.md`` is added for each exhibit. When it is
read, it is filled with the title, the story, the address of the thread, the code, what is mended,
and what the check reports on the broken and on the mended model. The list in ``museum/index.md``,
whose links lead to the files of the exhibits, leads to these pages instead.
"""

import re
from pathlib import Path

from sphinx.application import Sphinx

from coursework.museum.exhibit import Exhibit, code, difference, exhibits

PAGES = Path(__file__).parents[1] / "museum"


def add_pages(app: Sphinx) -> None:
    """Add an empty file for each exhibit, and remove those of exhibits that no longer exist."""
    for path in PAGES.glob("*.md"):
        if path.stem not in (*exhibits(), "index"):
            path.unlink()
    for name in exhibits():
        (PAGES / f"{name}.md").touch()


def complete(app: Sphinx, docname: str, source: list[str]) -> None:
    """Fill the page of an exhibit, and let the list lead to it."""
    folder, _, name = docname.partition("/")
    if docname == "museum/index":
        source[0] = re.sub(r"\]\(\S+/museum/(\w+)\.py\)", r"](\1.md)", source[0])
        source[0] += "\n".join(["", "```{toctree}", ":hidden:", "", *exhibits(), "```", ""])
    elif folder == "museum":
        source[0] = page(exhibits()[name])


def page(exhibit: Exhibit) -> str:
    """Return the Markdown of an exhibit's page; run the check on both models."""

    def block(language: str, text: str) -> str:
        return f"~~~~{{code-block}} {language}\n:class: exhibit\n\n{text}\n~~~~"

    def report(state: str) -> str:
        return block("text", str(exhibit.examine(exhibit.make(state))))

    parts = [
        f"# {exhibit.title}",
        *(each.replace("``", "`") for each in exhibit.story),
        f"Published: <{exhibit.source}>\\\nFound by: `{exhibit.found_by}`",
        f"## The code\n\n{block('python', code(exhibit.module))}",
        f"## What is mended\n\n{block('diff', difference(exhibit.module))}",
        f"## What the check reports\n\nOn the broken model:\n\n{report('broken')}",
        f"On the mended model:\n\n{report('mended')}",
    ]
    return "\n\n".join(parts) + "\n"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the functions that make the pages, and the style sheet."""
    app.connect("builder-inited", add_pages)
    app.connect("source-read", complete)
    app.add_css_file("museum.css")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
