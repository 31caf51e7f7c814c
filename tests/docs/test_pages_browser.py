"""The pages in a browser, from the disk.

A page must load nothing from elsewhere, report nothing in the console, fit the width of the
screen, show all of its text in a size that can be read, and have no serious finding of axe. Axe is
slow: it examines the first page of each folder at two widths and in two themes, and each other page
in one of these four variants in turn.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.browser import AXE, axe, in_browser

pytestmark = pytest.mark.slow

WIDTHS = (390, 1300)
VARIANTS = [(width, theme) for width in WIDTHS for theme in ("light", "dark")]
WORDS = "softmax", "qqqqqqqq"  # what is searched for, and found or not

SHOW = """
async theme => {
    document.body.dataset.theme = theme;
    for (const details of document.querySelectorAll("details")) details.open = true;
    const frame = () => new Promise(resolve => requestAnimationFrame(resolve));
    await frame();
    await frame();
}
"""

# axe computes the contrast of every element, and code has thousands with the same
# few classes. The first of each class remains, the others become text. A line of code may break
# where it did not before, therefore this comes after the layout was checked.
KEEP_ONE_OF_EACH_COLOUR = """
() => {
    const seen = new Set();
    for (const span of document.querySelectorAll(
        ".highlight span[class]:not(.wide), span.pre"
    )) {
        const key = `${span.className} ${getComputedStyle(span).color}`;
        if (seen.has(key)) span.replaceWith(...span.childNodes);
        seen.add(key);
    }
}
"""

# Elements of the article whose text is cut off at a side. An element that is hidden on purpose, for
# screen readers only, is one pixel large.
CLIPPED = """
() => [...document.querySelectorAll("article *")].filter(element => {
    const style = getComputedStyle(element);
    return ["hidden", "clip"].includes(style.overflowX)
        && element.clientWidth > 1
        && element.scrollWidth > element.clientWidth
        && element.textContent.trim() !== "";
}).map(element => element.outerHTML.slice(0, 200))
"""

# Texts of the book's figures with less than ten pixels.
SMALL = """
() => [...document.querySelectorAll("figure.drawing svg text, figure.drawing svg tspan")]
    .filter(text => {
        const {a, b} = text.getScreenCTM();
        return parseFloat(getComputedStyle(text).fontSize) * Math.hypot(a, b) < 9.9;
    }).map(text => text.textContent)
"""


class Finding(NamedTuple):
    """What is wrong with a page."""

    kind: str
    page: str
    where: str
    detail: str


def crawl(browser: Any, site: Path) -> list[Finding]:
    """Open each page of a site once, and check it."""
    findings: list[Finding] = []
    rules = axe()
    context = browser.new_context(offline=True, reduced_motion="reduce")
    tab = context.new_page()
    name, where = "", "while loading"

    def add(kind: str, detail: str) -> None:
        findings.append(Finding(kind, name, where, detail))

    def request(request: Any) -> None:
        if not request.url.startswith((f"{site.as_uri()}/", "data:", "blob:")):
            add("request", request.url)

    def message(message: Any) -> None:
        if message.type in ("error", "warning"):
            add("console", message.text)

    tab.on("request", request)
    tab.on("requestfailed", lambda request: add("request", request.url))
    tab.on("console", message)
    tab.on("pageerror", lambda error: add("console", str(error)))
    paths = sorted(site.rglob("*.html"))
    addresses = [path.as_uri() for path in paths]
    addresses += [f"{each}?q={word}" for each in addresses for word in WORDS if "/search.h" in each]
    first = {path.parent: path.as_uri() for path in reversed(paths)}
    for number, address in enumerate(addresses):
        name, where = address.removeprefix(f"{site.as_uri()}/"), "while loading"
        tab.goto(address)
        for width in WIDTHS:
            where = show(tab, width, "light")
            total = tab.evaluate("document.documentElement.scrollWidth")
            if total > width:
                add("width", f"{total} px wide")
            for kind, script in (("clipped", CLIPPED), ("small", SMALL)):
                for detail in tab.evaluate(script):
                    add(kind, detail)
        tab.evaluate(KEEP_ONE_OF_EACH_COLOUR)
        for frame in tab.frames:
            frame.evaluate(rules)
        is_first = address in first.values()
        for width, theme in VARIANTS if is_first else [VARIANTS[number % len(VARIANTS)]]:
            where = show(tab, width, theme)
            for finding in inaccessible(tab, has_sidebar=is_first):
                add("axe", finding)
    context.close()
    return findings


def show(tab: Any, width: int, theme: str) -> str:
    """Set the width and the theme of a page, and describe them."""
    tab.set_viewport_size({"width": width, "height": 900})
    tab.emulate_media(color_scheme=theme)
    tab.evaluate(SHOW, theme)
    return f"{width} px, {theme}"


def inaccessible(tab: Any, *, has_sidebar: bool) -> Iterator[str]:
    """List the serious findings of axe in a page, with its sidebar or without, and its frames."""
    context = {"exclude": [] if has_sidebar else [".sidebar-drawer"]}
    for frame in tab.frames:
        found = frame.evaluate("([context, options]) => axe.run(context, options)", [context, AXE])
        for rule in found["violations"]:
            if rule["impact"] in ("serious", "critical"):
                yield f"{rule['id']}: {[node['html'][:200] for node in rule['nodes']][:5]}"


@in_browser
def test_no_page_has_a_fault(browser: Any, pages: Path) -> None:
    assert crawl(browser, pages) == []


@in_browser
def test_no_page_scrolls_sideways_at_any_width_and_a_tap_enlarges_a_figure(
    browser: Any, pages: Path
) -> None:
    tab = browser.new_page(offline=True, reduced_motion="reduce")
    for name in ("index.html", "results.html", "learn/ko/01_one_query.html"):
        tab.goto((pages / name).as_uri())
        totals = {}
        for width in range(320, 1800, 32):
            tab.set_viewport_size({"width": width, "height": 900})
            totals[width] = tab.evaluate("document.documentElement.scrollWidth")
        assert {width: total for width, total in totals.items() if total > width} == {}, name
    tab.set_viewport_size({"width": 390, "height": 844})
    height = "document.querySelector('{} svg').getBoundingClientRect().width"
    before = tab.evaluate(height.format(".drawing"))
    tab.click(".drawing > a", position={"x": 30, "y": 30})
    assert tab.inner_text("dialog button") == "닫기"
    assert tab.evaluate(height.format("dialog")) > 1.5 * before
    tab.keyboard.press("Escape")
    tab.wait_for_selector("dialog", state="detached")
    tab.close()
