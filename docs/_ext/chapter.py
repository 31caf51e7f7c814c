"""The reference on the site: what its Markdown pages do not have in the repository.

The pages of ``docs/reference`` are made by ``reference_pages.py``. On the site, the heading of each
name is the place to which other pages link with ``:func:`` and the like, under the path from which
the name is imported. The code of each class or function follows its description, without its
docstrings, which the page shows already; source files are therefore named without a link. A hidden
table of contents orders the pages of each folder.
"""

import inspect
import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform

import reference_pages

BLOCKS = "blocks/", "variants/"  # folders whose code is shown at once, if it is short
LONG = 60  # lines; longer code is shown after a click


def code_of(thing: Any, is_block: bool) -> list[nodes.Node]:
    """Return the code of a class or function, opened if it is short and part of a block."""
    code = without_docstrings(inspect.getsource(thing))
    opened = " open" if is_block and len(code.splitlines()) <= LONG else ""
    summary = f'<details class="code"{opened}><summary>Code</summary>'
    block = nodes.literal_block(code, code, language="python")
    return [raw(summary), block, raw("</details>")]


def raw(text: str) -> nodes.raw:
    """Return HTML as a part of a page."""
    return nodes.raw("", text, format="html")


def without_docstrings(source: str) -> str:
    """Remove all docstrings, those of attributes too, from the code of a class or function."""
    source = inspect.cleandoc(f"\n{source}") + "\n"

    def rest(found: re.Match[str]) -> str:
        indentation, blank = found.groups()
        if not re.search(r":(?:  #.*)?\n$", source[: found.start()]):
            return blank  # of an attribute
        is_alone = not source.startswith(indentation, found.end())
        return f"{indentation}...\n{blank}" if is_alone else ""

    code = re.sub(r'^( *)r?"""(?:.|\n)*?"""\n(\n*)', rest, source, flags=re.M)
    return re.sub(r"  # noqa\b.*", "", code).rstrip()


def adapt(app: Sphinx, name: str, source: list[str]) -> None:
    """Name the source files without links, and add the contents to a folder's first page."""
    source[0] = re.sub(r"^File: \[(.+)\]\(.+\)$", r"File: `\1`", source[0], flags=re.M)
    if found := re.fullmatch(r"reference/(\w+)/index", name):
        pages = "\n".join(
            f"/{docname(each)}"
            for each in reference_pages.folders()[found[1]]
            if docname(each) != name
        )
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
        for path, heading, kind in reference_pages.places(page):
            section = sections[heading]
            section["ids"].insert(0, path)
            python.note_object(path, kind, path, location=section)
            if path in page.names:
                following = list(section.findall(nodes.section, include_self=False))
                code = code_of(page.names[path], is_block=page.path.startswith(BLOCKS))
                place = section.index(following[0]) if following else len(section)
                section[place:place] = code


def docname(page: reference_pages.Page) -> str:
    """Return the name of a page on the site."""
    return f"reference/{page.path.removesuffix('.md')}"


def setup(app: Sphinx) -> dict[str, int]:
    """Register the handlers."""
    app.connect("source-read", adapt)
    app.add_transform(Complete)
    return {"env_version": 2, "parallel_read_safe": True, "parallel_write_safe": True}
