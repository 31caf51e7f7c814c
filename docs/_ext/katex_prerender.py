"""Equations: render them as HTML when the pages are built, not in the reader's browser.

Sphinx's own renderers load a script from the network when a page is opened. Here, an embedded
JavaScript engine runs the vendored ``katex.min.js``, and the page contains the resulting HTML. It
needs only KaTeX's style sheet and fonts, which are stored with the pages. An equation that KaTeX
cannot parse is reported as a warning with its line, so that the build fails.
"""

from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from py_mini_racer import JSEvalException, MiniRacer
from sphinx.application import Sphinx
from sphinx.util import logging

log = logging.getLogger(__name__)

KATEX = Path(__file__).parent.parent / "_static" / "katex" / "katex.min.js"


@cache
def engine() -> MiniRacer:
    """Start the engine."""
    started = MiniRacer()
    started.eval(KATEX.read_text(encoding="utf-8"))
    return started


def render(node: nodes.Element, *, is_block: bool) -> str:
    r"""Render an equation; lines such as ``a &= b \\ c &= d`` are aligned as by Sphinx."""
    text = node.astext()
    if r"\\" in text and r"\begin" not in text:
        text = rf"\begin{{aligned}}{text}\end{{aligned}}"
    options = {"displayMode": is_block, "throwOnError": True, "strict": "error"}
    try:
        return str(engine().call("katex.renderToString", text, options))
    except JSEvalException as error:
        log.warning("%s", str(error).partition("\n")[0], location=node)
        return ""


def visit_inline(translator: Any, node: nodes.Element) -> None:
    """Output an inline equation."""
    translator.body.append(render(node, is_block=False))
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.Element) -> None:
    """Output a block equation, which scrolls if it is wider than the screen."""
    translator.body.append(f'<div class="formula">{render(node, is_block=True)}</div>\n')
    raise nodes.SkipNode


def close(app: Sphinx, error: Exception | None) -> None:
    """Stop the engine, after an error too."""
    engine().close()


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx as the math renderer ``katex``."""
    app.add_html_math_renderer("katex", (visit_inline, None), (visit_block, None))
    app.add_css_file("katex/katex.min.css")
    app.connect("build-finished", close)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
