"""The pages in a browser, from the disk: each page at two widths and in both themes.

A page must load nothing from elsewhere, report nothing in the console, fit the width of the
screen, show all of its text, and have no serious finding of axe. Its links must lead somewhere.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

import pytest
from tests.browser import axe, in_browser
from tests.docs.test_pages import Page

pytestmark = pytest.mark.slow

WIDTHS = (390, 1300)
THEMES = ("light", "dark")
VARIANTS = [(width, theme) for width in WIDTHS for theme in THEMES]
SERIOUS = {"serious", "critical"}

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


class Finding(NamedTuple):
    """What is wrong with a page."""

    kind: str
    page: str
    where: str
    detail: str


@dataclass
class Crawl:
    """The pages that were opened, and what is wrong with them."""

    pages: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def crawl(browser: Any, site: Path) -> Crawl:
    """Open each page of a site once, and check it at every width in every theme."""
    result, rules = Crawl(), axe()
    context = browser.new_context(offline=True, reduced_motion="reduce")
    tab = context.new_page()
    name, where = "", "while loading"

    def add(kind: str, detail: str) -> None:
        result.findings.append(Finding(kind, name, where, detail))

    def request(request: Any) -> None:
        if not request.url.startswith((f"{site.as_uri()}/", "data:", "blob:")):
            add("request", request.url)

    def message(message: Any) -> None:
        if message.type in ("error", "warning"):
            add("console", message.text)

    tab.on("request", request)
    tab.on("requestfailed", lambda request: add("failed", request.url))
    tab.on("console", message)
    tab.on("pageerror", lambda error: add("console", str(error)))
    for path in sorted(site.rglob("*.html")):
        name, where = path.relative_to(site).as_posix(), "while loading"
        result.pages.append(name)
        tab.goto(path.as_uri())
        for width, theme in VARIANTS:
            where = show(tab, width, theme)
            total = tab.evaluate("document.documentElement.scrollWidth")
            if total > width:
                add("width", f"{total} px wide")
            for html in tab.evaluate(CLIPPED):
                add("clipped", html)
        tab.evaluate(KEEP_ONE_OF_EACH_COLOUR)
        for frame in tab.frames:
            frame.evaluate(rules)
        for width, theme in VARIANTS:
            where = show(tab, width, theme)
            for finding in inaccessible(tab, theme, has_sidebar="/" not in name):
                add("axe", finding)
    context.close()
    return result


def show(tab: Any, width: int, theme: str) -> str:
    """Set the width and the theme of a page, and describe them."""
    tab.set_viewport_size({"width": width, "height": 900})
    tab.emulate_media(color_scheme=theme)
    tab.evaluate(SHOW, theme)
    return f"{width} px, {theme}"


def inaccessible(tab: Any, theme: str, *, has_sidebar: bool) -> Iterator[str]:
    """List the serious findings of axe in a page and its frames.

    The sidebar is the same on all pages; it is checked where ``has_sidebar``. The dark theme
    differs in colours only, so that the other rules need not be applied again.
    """
    options: dict[str, Any] = {"preload": False, "iframes": False, "resultTypes": ["violations"]}
    if theme == "dark":
        options["runOnly"] = ["color-contrast", "link-in-text-block"]
    context = {"exclude": [] if has_sidebar else [".sidebar-drawer"]}
    for frame in tab.frames:
        found = frame.evaluate(
            "([context, options]) => axe.run(context, options)", [context, options]
        )
        for rule in found["violations"]:
            if rule["impact"] in SERIOUS:
                yield f"{rule['id']}: {[node['html'][:200] for node in rule['nodes']][:5]}"


@pytest.fixture(scope="module")
def crawled(browser: Any, pages: Path) -> Crawl:
    return crawl(browser, pages)


class Linked(Page):
    """A page's links, and its images without a description, unless they are decoration."""

    def __init__(self, path: Path) -> None:
        self.undescribed: list[str] = []
        super().__init__(path)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        super().handle_starttag(tag, attrs)
        values = dict(attrs)
        self.ids.add(values.get("name") or "" if tag == "a" else "")
        is_described = (values.get("alt") or "").strip() or values.get("role") == "none"
        if tag == "img" and not is_described:
            self.undescribed.append(values.get("src") or "")


def read(site: Path) -> dict[Path, Linked]:
    """Parse all pages of a site."""
    return {path.resolve(): Linked(path) for path in site.rglob("*.html")}


def broken_links(site: Path) -> list[tuple[str, str]]:
    """List (page, address) for links to a file or a place in a file that does not exist."""
    parsed, broken = read(site), []
    for path, page in parsed.items():
        for address in page.links:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            anchor = unquote(parts.fragment)
            is_inside = target.is_relative_to(site.resolve()) and target.is_file()
            if not is_inside or (anchor and target in parsed and anchor not in parsed[target].ids):
                broken.append((path.relative_to(site.resolve()).as_posix(), address))
    return broken


# --- The site ------------------------------------------------------------------------------------


def test_every_link_leads_to_a_place_that_exists(pages: Path) -> None:
    assert broken_links(pages) == []


def test_every_image_is_described(pages: Path) -> None:
    assert [
        (str(path), page.undescribed) for path, page in read(pages).items() if page.undescribed
    ] == []


@in_browser
def test_every_page_is_opened(crawled: Crawl, pages: Path) -> None:
    assert len(crawled.pages) == len(list(pages.rglob("*.html")))
    assert {"index.html", "search.html"} <= set(crawled.pages)


@in_browser
@pytest.mark.parametrize("kind", ["request", "failed", "console", "width", "clipped", "axe"])
def test_no_page_has_a_fault(crawled: Crawl, kind: str) -> None:
    assert [finding for finding in crawled.findings if finding.kind == kind] == []


@in_browser
def test_no_page_scrolls_sideways_at_any_width(browser: Any, pages: Path) -> None:
    context = browser.new_context(offline=True, reduced_motion="reduce")
    tab = context.new_page()
    for name in ("index.html", "results.html", "learn/03_projections.html"):
        tab.goto((pages / name).as_uri())
        totals = {}
        for width in range(320, 1800, 16):
            tab.set_viewport_size({"width": width, "height": 900})
            totals[width] = tab.evaluate("document.documentElement.scrollWidth")
        assert {width: total for width, total in totals.items() if total > width} == {}, name
    context.close()


# --- The checks themselves, on pages with one fault each ------------------------------------------

PAGE = """<!doctype html><html lang="en"><head><meta charset="utf-8"><title>page</title>
<meta name="viewport" content="width=device-width,initial-scale=1">
<style>body {{ margin: 0; color: #000; background: #fff }}
[data-theme="dark"] {{ color: #fff; background: #000 }}</style></head>
<body><main><article><h1>A page</h1>{}</article></main></body></html>"""

LONG = "a_text_that_is_longer_than_its_box_" * 3
EVERYWHERE = [f"{width} px, {theme}" for width, theme in VARIANTS]
LIGHT = [f"{width} px, light" for width in WIDTHS]  # not a matter of colours
HIDDEN = "position: absolute; width: 1px; height: 1px; overflow: hidden"
FAULTS = {
    # content: (kind, where) of each finding
    "<p>Nothing is wrong.</p>": set(),
    f"<div style='{HIDDEN}'>{LONG}</div><p>Only for screen readers.</p>": set(),
    f"<pre tabindex='0' style='overflow: auto; width: 200px'>{LONG}</pre>": set(),
    "<img alt='far' src='https://example.org/x.png'>": {
        ("request", "while loading"),
        ("failed", "while loading"),
        ("console", "while loading"),
    },
    "<img alt='outside' src='../outside.svg'>": {("request", "while loading")},
    "<script>console.warn('a warning')</script>": {("console", "while loading")},
    "<script>throw new Error('an error')</script>": {("console", "while loading")},
    "<p style='width: 500px'>Wide.</p>": {("width", "390 px, light"), ("width", "390 px, dark")},
    f"<div style='overflow: hidden; width: 200px'>{LONG}</div>": {
        ("clipped", where) for where in EVERYWHERE
    },
    "<style>[data-theme='dark'] p { color: #333 }</style><p>Dark on dark.</p>": {
        ("axe", "390 px, dark"),
        ("axe", "1300 px, dark"),
    },
    "<details><summary>More</summary><p style='color: #ccc; background: #fff'>Pale.</p>": {
        ("axe", where) for where in EVERYWHERE
    },
    "<iframe title='frame' srcdoc=\"<html lang='en'><title>t</title><img src='data:,'>\">": {
        ("axe", where) for where in LIGHT
    },
    '<div class="highlight"><span class="a">a</span> <span class="a">a</span> '
    '<span class="b" style="color: #ccc; background: #fff">pale</span></div>': {
        ("axe", where) for where in EVERYWHERE
    },
}


@in_browser
def test_the_checks_find_each_fault_where_it_is(browser: Any, tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (tmp_path / "outside.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    for number, content in enumerate(FAULTS):
        (site / f"{number:02}.html").write_text(PAGE.format(content), encoding="utf-8")
    result = crawl(browser, site)
    for name, (content, expected) in zip(result.pages, FAULTS.items(), strict=True):
        found = {(each.kind, each.where) for each in result.findings if each.page == name}
        assert found == expected, content


def test_the_checks_find_broken_links_and_images_without_a_description(tmp_path: Path) -> None:
    site = tmp_path / "site"
    (site / "folder").mkdir(parents=True)
    (tmp_path / "outside.html").touch()
    (site / "図.html").write_text("<p id='図'>", encoding="utf-8")
    broken = [
        *("missing.html", "#missing", "folder", "folder/page.html#a", "%E5%9B%B3.html#a"),
        *("../outside.html", "page.html#図"),
    ]
    whole = [
        *("", "#", "#here", "#named", "page.html#here", "folder/page.html", "style.css#a"),
        *("%E5%9B%B3.html#%E5%9B%B3", "https://example.org/missing#a", "mailto:a@example.org"),
    ]
    (site / "style.css").touch()
    (site / "folder/page.html").write_text("<a href='../page.html#here'><a href='../page.html#a'>")
    links = "".join(f"<a href='{address}'></a>" for address in [*whole, *broken])
    images = (
        "<img src='1' alt=''><img src='2'><img src='3' alt='described'><img alt='' role='none'>"
    )
    (site / "page.html").write_text(f"<p id='here'><a name='named'></a>{links}{images}", "utf-8")
    expected = [*(("page.html", each) for each in broken), ("folder/page.html", "../page.html#a")]
    assert sorted(broken_links(site)) == sorted(expected)
    assert read(site)[(site / "page.html").resolve()].undescribed == ["1", "2"]
