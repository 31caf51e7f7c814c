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
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "accessible",
    "architecture",
    "backlinks",
    "chapter",
    "columns",
    "glossary",
    "katex_prerender",
    "learn",
    "ledger",
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
]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
myst_update_mathjax = False  # no class for a script that is not there
nitpicky = True
nitpick_ignore_regex = [
    (
        "py:class",
        r"transformer_blocks\.(inference\.prepare|interop\.from_torch)\.Model|common\.distributed\.Value"
        r"|common\.(learner|sharding)\.(AnyModel|AnyBatch|Model|Batch)",
    ),  # type variables
    ("py:class", r"transformer_blocks\.inspection\.shapes\.Call"),  # a row of a trace
    ("py:class", r"dict\[str|float\]"),  # a default factory cuts the type
    # the rules in annotations: sizes of a shape, and words
    (
        "py:(class|obj)",
        r".*\bAnnotated\b.*|[A-Z]|\w+_(width|features|model)|d_[kv]|capacity|layers|positive|finite|Module",
    ),
    # named, not linked: other projects, whose lists of names lie on the network ...
    (
        "py:.*",
        r"(argparse|collections|numpy|os|pathlib|random|torch|nn|F|Tensor|Optimizer|LambdaLR)\b.*",
    ),
    # ... and the translator's small parts, which have no page
    ("py:.*", r"translation\.(corpus|pairs|presets|run|tokenizer)\..*|UserError"),
    (
        "py:.*",
        r"common\.(batching|checkpoint|configuration|display|files|optimiser|run|token_files|tokenizer)\..*",
    ),
]

autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
autodoc_inherit_docstrings = False
napoleon_attr_annotations = False
napoleon_use_ivar = True
napoleon_use_rtype = False
add_module_names = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "transformer_blocks"
html_math_renderer = "katex"
html_static_path = ["_static"]
html_css_files = ["pages.css"]
templates_path = ["_templates"]
html_additional_pages = {"search": "search.html"}  # searches from the disk
html_copy_source = False
html_show_copyright = False
html_use_index = False
html_domain_indices = False
pygments_style = "a11y-high-contrast-light"
pygments_dark_style = "a11y-high-contrast-dark"
