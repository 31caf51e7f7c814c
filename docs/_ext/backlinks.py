"""Back links: lead from a line of shown code to the place where its name is documented.

The extension ``viewcode`` assumes that all names of a module are documented under one path. Here, a
name of the top level is documented as ``transformer_blocks.Dropout``, and its neighbour in the same
file as ``transformer_blocks.fast.dropout.apply_dropout``.
"""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

PACKAGE = "transformer_blocks"
BACK_LINK = re.compile(r'(?<=class="viewcode-back" href=")([^"#]+)#([\w.]+)(?=")')


def correct(
    app: Sphinx,
    pagename: str,
    templatename: str,
    context: dict[str, Any],
    doctree: nodes.document | None,
) -> None:
    """Correct the anchors of a page that shows the code of a module."""
    if not pagename.startswith("_modules/") or "body" not in context:
        return
    module = pagename.removeprefix("_modules/").replace("/", ".")
    documented = app.env.get_domain("py").data["objects"]

    def link(match: re.Match[str]) -> str:
        page, path = match.groups()
        name = path.removeprefix(module).removeprefix(PACKAGE).removeprefix(".")
        candidates = (path, f"{PACKAGE}.{name}", f"{module}.{name}")
        return f"{page}#{next(filter(documented.__contains__, candidates), path)}"

    context["body"] = BACK_LINK.sub(link, context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the handler."""
    app.connect("html-page-context", correct)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
