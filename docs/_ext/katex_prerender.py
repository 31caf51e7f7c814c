"""Equations: render them as HTML when the pages are built, not in the reader's browser.

Sphinx's own renderers load a script from the network when a page is opened. Here, an embedded
JavaScript engine runs the vendored ``katex.min.js`` once per page, and the page contains the
resulting HTML. It needs only KaTeX's style sheet and fonts, which are stored with the pages. An
equation that KaTeX cannot parse is reported as a warning with its line, so that the build fails.
"""

import json
from pathlib import Path
from typing import Any

from docutils import nodes
from py_mini_racer import MiniRacer
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

log = logging.getLogger(__name__)

KATEX = Path(__file__).parent.parent / "_static" / "katex" / "katex.min.js"

RENDER = """
function render(equation, displayMode) {
    const options = {displayMode, throwOnError: true, strict: "error"};
    try {
        return {html: katex.renderToString(equation, options)};
    } catch (error) {
        return {error: error.message};
    }
}
const renderAll = pairs => JSON.stringify(pairs.map(([text, block]) => render(text, block)));
"""


class PrerenderEquations(SphinxTransform):
    """Render the equations of a page, and store the HTML with their nodes."""

    default_priority = 880  # after all text has been parsed

    def apply(self, **kwargs: Any) -> None:
        """Render the equations of one page."""
        equations: list[nodes.Element] = [
            *self.document.findall(nodes.math),
            *self.document.findall(nodes.math_block),
        ]
        if not equations:
            return
        inputs = [[source(node), isinstance(node, nodes.math_block)] for node in equations]
        for node, result in zip(equations, run_katex(inputs), strict=True):
            if "error" in result:
                log.warning("%s", result["error"], location=node)
            node["katex"] = result.get("html", "")


def source(node: nodes.Element) -> str:
    r"""Return an equation's LaTeX; lines such as ``a &= b \\ c &= d`` are aligned as by Sphinx."""
    text = node.astext()
    several_lines = r"\\" in text and r"\begin" not in text
    return rf"\begin{{aligned}}{text}\end{{aligned}}" if several_lines else text


def run_katex(equations: list[list[Any]]) -> list[dict[str, str]]:
    """Render pairs of LaTeX and whether it is a block; the engine is closed even after an error."""
    with MiniRacer() as engine:
        engine.eval(KATEX.read_text(encoding="utf-8"))
        engine.eval(RENDER)
        results: list[dict[str, str]] = json.loads(engine.call("renderAll", equations))
        return results


def visit_inline(translator: Any, node: nodes.Element) -> None:
    """Output an inline equation; in a table of contents, headings are copied without their HTML."""
    if "katex" not in node:
        node["katex"] = run_katex([[source(node), False]])[0]["html"]
    translator.body.append(node["katex"])
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.Element) -> None:
    """Output a block equation, which scrolls if it is wider than the screen."""
    translator.body.append(f'<div class="formula">{node["katex"]}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx as the math renderer ``katex``."""
    app.add_transform(PrerenderEquations)
    app.add_html_math_renderer("katex", (visit_inline, None), (visit_block, None))
    app.add_css_file("katex/katex.min.css")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
