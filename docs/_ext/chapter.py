"""The reference on the site: what its Markdown pages do not have in the repository.

The pages of ``docs/reference`` are made by ``reference_pages.py``. On the site, the heading of each
name is the place to which other pages link with ``:func:`` and the like, under the path from which
the name is imported. The code of each class or function follows its description, without its
docstrings, which the page shows already; source files are therefore named without a link. A hidden
table of contents orders the pages of each folder.
"""

import ast
import inspect
import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

import reference_pages

BLOCKS = "blocks", "variants"  # folders whose code is shown at once, if it is short
LONG = 60  # lines; longer code is shown after a click


class details(nodes.General, nodes.Element):  # noqa: N801  (a docutils node, named after its HTML)
    """A part of the page that is shown or hidden by a click on its summary."""


def code_of(thing: Any, is_block: bool) -> details:
    """Return the code of a class or function, opened if it is short and part of a block."""
    code = without_docstrings(inspect.getsource(thing))
    is_open = is_block and len(code.splitlines()) <= LONG
    return details("", nodes.literal_block(code, code, language="python"), is_open=is_open)


def without_docstrings(source: str) -> str:
    """Remove all docstrings, those of attributes too, from the code of a class or function."""
    lines: list[str | None] = list(inspect.cleandoc(f"\n{source}").splitlines())
    for node in ast.walk(ast.parse("\n".join(map(str, lines)))):
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for statement in filter(reference_pages.is_text, node.body):
            first, end = statement.lineno - 1, statement.end_lineno or statement.lineno
            while statement is node.body[0] and end < len(lines) and lines[end] == "":
                end += 1
            lines[first:end] = [None] * (end - first)
            if len(node.body) == 1:
                lines[first] = " " * statement.col_offset + "..."
                if end < len(lines):  # the blank line that separates it from what follows
                    lines[end - 1] = ""
    code = "\n".join(line for line in lines if line is not None)
    return re.sub(r"  # noqa\b.*", "", code).rstrip()


def visit_details(translator: Any, node: details) -> None:
    """Output the beginning of the element."""
    opened = " open" if node["is_open"] else ""
    translator.body.append(f'<details class="code"{opened}><summary>Code</summary>\n')


def depart_details(translator: Any, node: details) -> None:
    """Output the end of the element."""
    translator.body.append("</details>\n")


def adapt(app: Sphinx, name: str, source: list[str]) -> None:
    """Name the source files without links, and add the contents to a folder's first page."""
    source[0] = re.sub(r"^File: \[(.+)\]\(.+\)$", r"File: `\1`", source[0], flags=re.M)
    if found := re.fullmatch(r"reference/(\w+)/index", name):
        pages = "\n".join(f"/{docname(each)}" for each in reference_pages.children(found[1]))
        source[0] += f"\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n"


class Complete(SphinxTransform):
    """Register the names of a page of the reference, and add their code."""

    default_priority = 700  # before the table of contents is collected

    def apply(self, **kwargs: Any) -> None:
        """Complete one page."""
        page = next(
            (each for each in reference_pages.pages() if docname(each) == self.env.docname), None
        )
        if page is None:
            return
        paragraphs = list(self.document.findall(nodes.paragraph))
        paragraphs[0]["classes"].append("lead")
        if paragraphs[-1].astext().startswith("Next: "):
            paragraphs[-1]["classes"].append("read-next")
        python = self.env.domains.python_domain
        top = next(self.document.findall(nodes.section))
        for module in page.modules:
            self.env.note_dependency(module.__file__ or "")
            python.note_module(module.__name__, top["ids"][0], "", "", False)
            python.note_object(module.__name__, "module", top["ids"][0], location=top)
        sections = {each[0].astext(): each for each in self.document.findall(nodes.section)}
        for place in reference_pages.places(page):
            section = sections[place.title]
            section["ids"].insert(0, place.path)
            python.note_object(place.path, place.kind, place.path, location=section)
            if place.path in page.names:
                following = list(section.findall(nodes.section, include_self=False))
                code = code_of(page.names[place.path], is_block=page.folder in BLOCKS)
                section.insert(section.index(following[0]) if following else len(section), code)


def docname(page: reference_pages.Page) -> str:
    """Return the name of a page on the site."""
    return f"reference/{page.path.removesuffix('.md')}"


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the handlers and the element."""
    app.add_node(details, html=(visit_details, depart_details))
    app.connect("source-read", adapt)
    app.add_transform(Complete)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
