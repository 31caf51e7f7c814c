"""The museum: a page for each exhibit of ``examples/coursework/museum``.

Before the pages are read, a file ``museum/NAME.md`` is written for each exhibit, with its title.
When it is read, the story, the address of the thread, the code with the fault highlighted, what is
mended, and what the check reports on the broken and on the mended model are added as Markdown.

The line ``EXHIBITS`` of ``museum/index.md`` becomes a card for each exhibit, by theme: its title,
the lines that are mended, the library in whose thread the fault was published, and the check that
finds it. ``_static/widgets/museum.js`` filters the cards.
"""

import ast
import html
import inspect
import re
from pathlib import Path

from sphinx.application import Sphinx

from coursework.museum import exhibit as of
from coursework.museum.exhibit import FAULT, THEMES, Exhibit, difference, exhibits
from transformer_blocks import inspection

PAGES = Path(__file__).parents[1] / "museum"
COLUMNS = 88  # of a report
FURTHER = {
    "masks": "05_masks blocks/masks",
    "padding": "13_text_to_batches blocks/masks",
    "layout and modes": "09_layer blocks/encoder",
    "positions": "08_positions blocks/embedding",
    "heads": "06_heads blocks/multi_head",
    "weights": "14_train blocks/builders",
    "loss": "14_train blocks/loss",
    "caches": "16_choose_words blocks/cache",
    "decoding": "16_choose_words tools/generation",
}
"""The chapter and the page of the reference that belong to a theme."""


def write_pages(app: Sphinx) -> None:
    """Write a file for each exhibit, and remove those of exhibits that no longer exist."""
    for path in PAGES.glob("*.md"):
        if path.stem not in (*exhibits(), "index"):
            path.unlink()
    for name, exhibit in exhibits().items():
        path, text = PAGES / f"{name}.md", f"# {exhibit.title}\n"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def complete(app: Sphinx, docname: str, source: list[str]) -> None:
    """Add to a page of the museum what its exhibit shows."""
    name = docname.removeprefix("museum/")
    if docname == "museum/index":
        source[0] = source[0].replace("\nEXHIBITS\n", cards())
        modules = [exhibit.module for exhibit in exhibits().values()]
    elif docname.startswith("museum/"):
        source[0] += page(exhibits()[name])
        modules = [exhibits()[name].module]
    else:
        return
    shared = [Path(of.__file__).with_name(f"{each}.py") for each in of.NOT_EXHIBITS]
    checks = Path(inspection.__file__).parent.rglob("*.py")
    for path in (__file__, *map(inspect.getfile, modules), *shared, *checks):
        app.env.note_dependency(str(path))


def page(exhibit: Exhibit) -> str:
    """Return the Markdown of an exhibit's page, below its title; run the check on both models."""
    source = of.code(exhibit.module)
    chapter, reference = FURTHER[exhibit.theme].split()
    lines = ",".join(map(str, fault_lines(source)))
    story = "\n\n".join(exhibit.story)
    reports = {
        state: of.format_result(exhibit.examine(exhibit.make(state)), COLUMNS)
        for state in ("broken", "mended")
    }
    return f"""
```{{eval-rst}}
{story}

| Published in {library(exhibit)}: `{exhibit.source} <{exhibit.source}>`__
| Found by: ``{exhibit.found_by}``
| Further reading: :doc:`/learn/{chapter}`, :doc:`/reference/{reference}`,
  :doc:`all exhibits <index>`
```

## The code

{block("python", source, f":emphasize-lines: {lines}")}

## What is mended

{block("diff", difference(exhibit.module))}

## What the check reports

On the broken model:

{block("text", reports["broken"])}

On the mended model:

{block("text", reports["mended"])}
"""


def block(language: str, text: str, option: str = "") -> str:
    """Return a block of code, whose lines wrap."""
    return f"~~~~{{code-block}} {language}\n:class: exhibit\n{option}\n\n{text}\n~~~~"


def fault_lines(source: str) -> list[int]:
    """Number the lines of the fault: the comments that mark it, and the statement after each."""
    statements = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    lines = source.splitlines()
    found: set[int] = set()
    for number, line in enumerate(lines, 1):
        if not FAULT.search(line):
            continue
        code = number
        if line.lstrip().startswith("#"):
            code = min(node.lineno for node in statements if node.lineno > number)
        ends = [node.end_lineno or 0 for node in statements if node.lineno <= code]
        found |= {*range(number, min(end for end in ends if end >= code) + 1)}
    return sorted(found)


def library(exhibit: Exhibit) -> str:
    """Name where a fault was published: the owner and name of a repository, or a forum's host."""
    host, *path = exhibit.source.removeprefix("https://").split("/")
    return "/".join(path[:2]) if host == "github.com" else host


def cards() -> str:
    """Return the HTML of the cards by theme, and the table of contents with their pages."""
    groups = []
    for theme in THEMES:
        shown = [card(exhibit) for exhibit in exhibits().values() if exhibit.theme == theme]
        title = f'<p class="rubric" role="heading" aria-level="3">{theme.capitalize()}</p>'
        groups.append(f'<div>{title}<ol class="chapters exhibits">{"".join(shown)}</ol></div>')
    contents = "\n".join(["```{toctree}", ":hidden:", "", *exhibits(), "```"])
    return "\n".join(["", "```{raw} html", *groups, "```", "", contents, ""])


def card(exhibit: Exhibit) -> str:
    """Return the HTML of an exhibit's card."""
    changes = "".join(
        f'<span class="{css}">{html.escape(line)}</span>'
        for sign, css in (("-", "gd"), ("+", "gi"))
        for line in changed(difference(exhibit.module), sign)
    )
    place, check = library(exhibit), exhibit.found_by
    return (
        f'<li data-library="{place}" data-check="{check}"><a href="{exhibit.name}.html">'
        f'<strong>{html.escape(exhibit.title)}</strong><code class="highlight">{changes}</code>'
        f"<small>{place}, found by <b>{check}</b></small></a></li>"
    )


def changed(lines: str, sign: str) -> list[str]:
    """List the first two statements of a difference with a sign, without what names a function."""
    found = [line[1:].strip() for line in lines.splitlines() if line.startswith(sign)]
    code = [line.partition("  #")[0] for line in found if re.match(r"(?!def |\"\"\"|#|$)", line)]
    return [f"{sign} {line}" for line in code[:2]]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the functions that make the pages, and the style sheet."""
    app.connect("builder-inited", write_pages)
    app.connect("source-read", complete)
    app.add_css_file("museum.css")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
