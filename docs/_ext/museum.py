"""The museum: a page for each exhibit of ``examples/coursework/museum``.

Before the pages are read, a file ``museum/NAME.md`` is written for each exhibit. It contains its
title and the directive ``.. exhibit:: NAME``, which shows the story, the address of the thread, the
code with the fault highlighted, what is mended, and what the check reports on the broken and on the
mended model. The check runs once in each build, when the page is read.

``.. exhibits::`` shows a card for each exhibit, by theme: its title, the lines that are mended, the
library in whose thread the fault was published, and the check that finds it. It puts the pages into
the table of contents. ``_static/widgets/museum.js`` filters the cards.
"""

import ast
import html
import re
from functools import cache
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from coursework import museum
from coursework.museum.exhibit import (
    FAULT,
    NOT_EXHIBITS,
    THEMES,
    Exhibit,
    code,
    difference,
    exhibits,
    format_result,
)
from transformer_blocks import inspection

PAGES = Path(__file__).parents[1] / "museum"
COLUMNS = 88  # of a report
FURTHER = {
    "masks": "05_masks blocks/masks",
    "padding": "11_text_to_batches blocks/masks",
    "layout and modes": "08_layer blocks/encoder",
    "positions": "07_positions blocks/embedding",
    "heads": "06_heads blocks/multi_head",
    "weights": "12_train blocks/builders",
    "loss": "12_train blocks/loss",
    "caches": "13_choose_words blocks/cache",
    "decoding": "13_choose_words tools/generation",
}
"""The chapter and the page of the reference that belong to a theme."""


@cache
def examined(name: str, state: str) -> str:
    """Report on the broken or on the mended model of an exhibit, once in a build."""
    exhibit = exhibits()[name]
    return format_result(exhibit.examine(exhibit.make(state)), COLUMNS)


def write_pages(app: Sphinx) -> None:
    """Write a file for each exhibit, and remove those of exhibits that no longer exist."""
    if not PAGES.is_relative_to(app.srcdir):
        return
    texts = {
        f"{name}.md": f"# {exhibit.title}\n\n```{{eval-rst}}\n.. exhibit:: {name}\n```\n"
        for name, exhibit in exhibits().items()
    }
    for path in PAGES.glob("*.md"):
        if path.name not in texts and path.name != "index.md":
            path.unlink()
    for name, text in texts.items():
        path = PAGES / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def fault_lines(source: str) -> list[int]:
    """Number the lines of the fault: the comments that mark it, and the statement after each."""
    statements = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.stmt)]
    lines = source.splitlines()
    found: set[int] = set()
    for number, line in enumerate(lines, 1):
        if not FAULT.search(line):
            continue
        if line.lstrip().startswith("#"):
            following = min(node.lineno for node in statements if node.lineno > number)
            ends = [node for node in statements if node.lineno == following]
        else:
            following = number
            ends = [node for node in statements if node.lineno <= number <= (node.end_lineno or 0)]
        last = min(node.end_lineno or node.lineno for node in ends)
        found |= {*range(number, max(last, number) + 1)}
    return sorted(found)


class ExhibitPage(SphinxDirective):
    """The directive ``exhibit``; its argument is the name of an exhibit."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Show the exhibit."""
        (name,) = self.arguments
        exhibit = exhibits()[name]
        module = exhibit.module
        shared = (Path(museum.__file__).with_name(f"{each}.py") for each in NOT_EXHIBITS)
        checks = Path(inspection.__file__).parent.rglob("*.py")
        for path in (module.__file__, __file__, *map(str, shared), *map(str, checks)):
            self.env.note_dependency(path or "")
        source = code(module)
        chapter, page = FURTHER[exhibit.theme].split()
        return [
            *self.parse("\n\n".join(exhibit.story)),
            *self.parse(
                f"| Published in {library(exhibit)}: `{exhibit.source} <{exhibit.source}>`__\n"
                f"| Found by: ``{exhibit.found_by}``\n"
                f"| Further reading: :doc:`/learn/{chapter}`, :doc:`/reference/{page}`, "
                ":doc:`all exhibits <index>`"
            ),
            self.section("The code", "code", self.block(source, "python", fault_lines(source))),
            self.section("What is mended", "mended", self.block(difference(module), "diff")),
            self.section(
                "What the check reports",
                "report",
                *self.parse("On the broken model:"),
                self.block(examined(name, "broken"), "text"),
                *self.parse("On the mended model:"),
                self.block(examined(name, "mended"), "text"),
            ),
        ]

    def block(self, text: str, language: str, highlighted: list[int] | None = None) -> nodes.Node:
        """Make a block of code."""
        options = {"hl_lines": highlighted} if highlighted else {}
        return nodes.literal_block(
            text, text, language=language, highlight_args=options, classes=["exhibit"]
        )

    def section(self, title: str, address: str, *body: nodes.Node) -> nodes.Node:
        """Make a section."""
        return nodes.section("", nodes.title("", title), *body, ids=[address])

    def parse(self, text: str) -> list[nodes.Node]:
        """Parse reStructuredText."""
        return self.parse_text_to_nodes(StringList(text.splitlines(), self.arguments[0]))


class ExhibitList(SphinxDirective):
    """The directive ``exhibits``."""

    def run(self) -> list[nodes.Node]:
        """List the exhibits by theme."""
        self.env.note_dependency(__file__)
        for exhibit in exhibits().values():
            self.env.note_dependency(exhibit.module.__file__ or "")
        contents = [".. toctree::", "   :hidden:", "", *(f"   {name}" for name in exhibits())]
        groups = []
        for theme in THEMES:
            cards = [card(exhibit) for exhibit in exhibits().values() if exhibit.theme == theme]
            title = f'<p class="rubric" role="heading" aria-level="3">{theme.capitalize()}</p>'
            groups.append(f'<div>{title}<ol class="chapters exhibits">{"".join(cards)}</ol></div>')
        shown = nodes.raw("", "\n".join(groups), format="html")
        return [*self.parse_text_to_nodes(StringList(contents, "exhibits")), shown]


def library(exhibit: Exhibit) -> str:
    """Name where a fault was published: the owner and name of a repository, or a forum's host."""
    host, *path = exhibit.source.removeprefix("https://").split("/")
    return "/".join(path[:2]) if host == "github.com" else host


def card(exhibit: Exhibit) -> str:
    """Return the HTML of an exhibit's card."""
    changes = "".join(
        f'<span class="{css}">{html.escape(line)}</span>'
        for sign, css in (("-", "gd"), ("+", "gi"))
        for line in changed(difference(exhibit.module), sign)
    )
    of, check = library(exhibit), exhibit.found_by
    return (
        f'<li data-library="{of}" data-check="{check}"><a href="{exhibit.name}.html">'
        f'<strong>{html.escape(exhibit.title)}</strong><code class="highlight">{changes}</code>'
        f"<small>{of}, found by <b>{check}</b></small></a></li>"
    )


def changed(lines: str, sign: str) -> list[str]:
    """List the first two statements of a difference with a sign, without what names a function."""
    found = [line[1:].strip() for line in lines.splitlines() if line.startswith(sign)]
    code = [line.partition("  #")[0] for line in found if re.match(r"(?!def |\"\"\"|#|$)", line)]
    return [f"{sign} {line}" for line in code[:2]]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directives, the function that makes the pages, and the style sheet."""
    app.add_directive("exhibit", ExhibitPage)
    app.add_directive("exhibits", ExhibitList)
    app.connect("builder-inited", write_pages)
    app.add_css_file("museum.css")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
