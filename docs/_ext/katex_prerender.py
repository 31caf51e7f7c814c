"""Formulas as finished HTML: KaTeX runs while the pages are built, not in the reader's browser.

Sphinx's own renderers load a script from the network when a page is opened. Here the vendored
``katex.min.js`` is run once per page in an embedded JavaScript engine, and a page holds the result:
it needs only KaTeX's style sheet and fonts, which lie beside it. A formula that KaTeX does not
understand is a warning that names the line, so the build fails.
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
function render(formula, displayMode) {
    const options = {displayMode, throwOnError: true, strict: "error"};
    try {
        return {html: katex.renderToString(formula, options)};
    } catch (error) {
        return {error: error.message};
    }
}
const renderAll = formulas => JSON.stringify(formulas.map(([text, block]) => render(text, block)));
"""


class PrerenderFormulas(SphinxTransform):
    """Store its HTML with every formula of a page."""

    default_priority = 880  # late: when all text is parsed

    def apply(self, **kwargs: Any) -> None:
        """Render the formulas of one page."""
        formulas: list[nodes.Element] = [
            *self.document.findall(nodes.math),
            *self.document.findall(nodes.math_block),
        ]
        if not formulas:
            return
        asked = [[source(formula), isinstance(formula, nodes.math_block)] for formula in formulas]
        for formula, answer in zip(formulas, run_katex(asked), strict=True):
            if "error" in answer:
                log.warning("%s", answer["error"], location=formula)
            formula["katex"] = answer.get("html", "")


def source(formula: nodes.Element) -> str:
    r"""Read a formula; one of several lines, ``a &= b \\ c &= d``, is aligned, as Sphinx does."""
    text = formula.astext()
    several_lines = r"\\" in text and r"\begin" not in text
    return rf"\begin{{aligned}}{text}\end{{aligned}}" if several_lines else text


def run_katex(formulas: list[list[Any]]) -> list[dict[str, str]]:
    """Render (text, is a block) pairs, in an engine that is closed whatever happens."""
    with MiniRacer() as engine:
        engine.eval(KATEX.read_text(encoding="utf-8"))
        engine.eval(RENDER)
        answers: list[dict[str, str]] = json.loads(engine.call("renderAll", formulas))
        return answers


def visit_inline(translator: Any, node: nodes.Element) -> None:
    """Write a formula that stands in a line."""
    translator.body.append(node["katex"])
    raise nodes.SkipNode


def visit_block(translator: Any, node: nodes.Element) -> None:
    """Write a formula that stands alone; a wide one scrolls on a narrow screen."""
    translator.body.append(f'<div class="formula">{node["katex"]}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx as the math renderer ``katex``."""
    app.add_transform(PrerenderFormulas)
    app.add_html_math_renderer("katex", (visit_inline, None), (visit_block, None))
    app.add_css_file("katex/katex.min.css")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
