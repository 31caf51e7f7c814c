"""How Sphinx turns the docstrings into pages; ``make docs`` runs it.

Nothing here reaches for the network: neither the build (no inventories of other projects) nor a
page when it is opened (formulas are finished HTML, fonts and scripts lie beside the pages).
"""

import sys
from importlib.metadata import version as installed_version
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_ext"), str(HERE.parent / "examples")]

project = "transformer_blocks"
author = "the transformer_blocks authors"
version = release = installed_version("transformer-blocks")

extensions = [
    "myst_parser",
    "columns",
    "katex_prerender",
    "learn",
    "museum",
    "search",
]
source_suffix = {".md": "markdown", ".ipynb": "markdown"}  # the chapters of the book
exclude_patterns = [
    "_build",
    "_ext",
    "_static",
    "experiments",
    "figures",
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
