"""How Sphinx turns the docstrings into pages; ``make docs`` runs it.

Nothing here reaches for the network: neither the build (no inventories of other projects) nor a
page when it is opened (formulas are finished HTML, fonts and scripts lie beside the pages).
"""

import re
import sys
from importlib.metadata import version as installed_version
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "examples")]

import reference_pages  # noqa: E402

project = "transformer_blocks"
author = "the transformer_blocks authors"
version = release = installed_version("transformer-blocks")

extensions = [
    "myst_parser",
    "columns",
    "cover",
    "katex_prerender",
    "learn",
    "museum",
    "search",
]
source_suffix = {".md": "markdown", ".py": "markdown"}  # .py: the chapters of the book
exclude_patterns = [
    "_build",
    "_ext",
    "_static",
    "conf.py",
    "experiments",
    "figures",
    "learn/first_translator.py",
    "learn/README.md",  # the table of contents on a code host
]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 4
myst_update_mathjax = False  # no class for a script that is not there
nitpicky = True
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "transformer_blocks"
html_math_renderer = "katex"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_js_files = [("pages.js", {"defer": "defer"})]
templates_path = ["_templates"]
html_additional_pages = {"search": "search.html"}  # searches from the disk
html_copy_source = False
html_show_copyright = False
html_use_index = False
html_domain_indices = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"


PLAIN = re.compile(r"<!-- plain -->\n.*?<!-- /plain -->\n", re.S)
SITE = re.compile(r"<!-- site\n(.*?)-->\n", re.S)
CONTENTS = "\n```{{toctree}}\n:hidden:\n\n{}\n```\n"
CODE = re.compile(r"<!-- code of (\S+) -->")


def show_directives(app: Sphinx, name: str, source: list[str]) -> None:
    """Show what stands in comments for the site, instead of the plain text for a code host."""
    source[0] = SITE.sub(r"\1", PLAIN.sub("", source[0]))


def complete_reference(app: Sphinx, name: str, source: list[str]) -> None:
    """Add the code of the names to a page of the reference, and to a folder its pages."""
    source[0] = CODE.sub(reference_pages.with_code, source[0])
    if folder := re.fullmatch(r"reference/(\w+)/index", name):
        names = [f"/reference/{each.path[:-3]}" for each in reference_pages.folders()[folder[1]]]
        source[0] += CONTENTS.format("\n".join(each for each in names if each != f"/{name}"))


def find_name(
    app: Sphinx, env: BuildEnvironment, node: nodes.Element, text: nodes.Element
) -> nodes.Node | None:
    """Resolve a role such as ``:func:`` to the place of the name in the reference."""
    page, heading = reference_pages.targets().get(node["reftarget"], ("", ""))
    if not page:
        return None
    address = app.builder.get_relative_uri(node["refdoc"], f"reference/{page[:-3]}")
    anchor = heading and f"#{nodes.make_id(heading)}"
    return nodes.reference("", "", text, refuri=address + anchor, internal=True)


def setup(app: Sphinx) -> None:
    """Register the functions."""
    app.connect("source-read", show_directives)
    app.connect("source-read", complete_reference)
    app.connect("missing-reference", find_name)
