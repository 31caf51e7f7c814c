"""Accessible: mend the HTML of the pages where a keyboard or a screen reader would fail.

A table, the output of a program or a formula does not wrap. On a narrow screen it scrolls within
its own box, which therefore takes part in the order of the Tab key. (Python code wraps instead.)
The captions of the navigation are headings without a level, which is added.
"""

import re
from typing import Any

from sphinx.application import Sphinx

SCROLLING = re.compile(
    r'<div class="(?:table-wrapper[^"]*|formula)"'
    r'|<div class="highlight-(?!python|default)[^"]*"><div class="highlight"><pre'
)


def mend(app: Sphinx, page: str, template: str, context: dict[str, Any], _: Any) -> None:
    """Mend the HTML of a page."""
    if "body" in context:
        context["body"] = SCROLLING.sub(r'\g<0> tabindex="0"', context["body"])
    if "furo_navigation_tree" in context:
        context["furo_navigation_tree"] = context["furo_navigation_tree"].replace(
            'class="caption" role="heading"', 'class="caption" role="heading" aria-level="2"'
        )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the handler, after that of the theme."""
    app.connect("html-page-context", mend, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
