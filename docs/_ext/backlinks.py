"""Back links: lead from a line of shown code to the place where its name is documented.

The extension ``viewcode`` links to the path under which a name is defined, such as
``transformer_blocks.fast.dropout.Dropout``. The anchor on the page is the path under which it is
documented, ``transformer_blocks.Dropout``; the Python domain of Sphinx knows both.
"""

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx

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
    documented = app.env.get_domain("py").data["objects"]

    def link(match: re.Match[str]) -> str:
        page, path = match.groups()
        return f"{page}#{documented[path].node_id if path in documented else path}"

    context["body"] = BACK_LINK.sub(link, context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the handler."""
    app.connect("html-page-context", correct)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
