"""Back links: lead from a line of shown code to the place where its name is documented.

The extension ``viewcode`` links to the path under which a name is defined, such as
``transformer_blocks.fast.dropout.Dropout``. The anchor on the page is the path under which it is
documented, ``transformer_blocks.Dropout``; the Python domain of Sphinx knows both. ``viewcode``
takes the path of one name of a module for all of them, even if some are documented under another.
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
    module = pagename.removeprefix("_modules/").replace("/", ".")

    def link(match: re.Match[str]) -> str:
        page, path = match.groups()
        names = path.split(".")
        paths = [path, *(".".join((module, *names[i:])) for i in range(1, len(names)))]
        found = next((each for each in paths if each in documented), None)
        return f"{page}#{path if found is None else documented[found].node_id}"

    context["body"] = BACK_LINK.sub(link, context["body"])


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the handler."""
    app.connect("html-page-context", correct)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
