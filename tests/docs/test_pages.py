"""The pages: they build without a warning, show every block, and open without a request."""

import ast
import inspect
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest
from tests.public import EXPORTS, PUBLIC

import reference_pages
import transformer_blocks

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


class Page(HTMLParser):
    """What a page makes the browser load, and what a reader finds in it."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.ids: set[str] = set()
        self.links: list[str] = []  # followed only by a click
        self.next = ""
        self.in_style = False
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.in_style = tag == "style"
        self.ids.add(values.get("id", ""))
        if tag == "a":
            self.links.append(values.get("href", ""))
            if "next-page" in values.get("class", "").split():
                self.next = values["href"]
        elif tag != "link" or not {"next", "prev", "search"} & set(values["rel"].split()):
            self.loaded += [values[name] for name in ("href", "xlink:href") if name in values]
        self.loaded += [values[name] for name in ("src", "data", "poster") if name in values]
        self.loaded += [part.split()[0] for part in values.get("srcset", "").split(",") if part]
        self.loaded += addresses_in_css(values.get("style", ""))
        if values.get("http-equiv", "").lower() == "refresh":
            self.loaded.append(values["content"].partition("=")[2])

    def handle_data(self, data: str) -> None:
        if self.in_style:
            self.loaded += addresses_in_css(data)
            self.in_style = False


def addresses_in_css(text: str) -> Iterator[str]:
    """Find what a style sheet loads: ``url(...)`` and ``@import "..."``."""
    for match in re.finditer(r"""url\(\s*["']?(.*?)["']?\s*\)|@import\s+["'](.*?)["']""", text):
        yield match[1] or match[2]


def all_loaded(pages: Path) -> Iterator[tuple[Path, str]]:
    """List (file, address) for whatever a browser loads by itself."""
    for path in pages.rglob("*.html"):
        yield from ((path, address) for address in Page(path).loaded)
    for path in pages.rglob("*.css"):
        text = path.read_text(encoding="utf-8")
        yield from ((path, address) for address in addresses_in_css(text))


def test_the_search_for_addresses_finds_each_kind(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text(
        """<link rel="stylesheet" href="1"><script src="2"></script>
        <img src="3" srcset="4 1x, 5 2x">
        <style>@import "6"; @font-face { src: url('7') }</style><p style="background: url(8)">
        <svg><use xlink:href="9"/></svg><a class="next-page" href="outside">out</a>""",
        encoding="utf-8",
    )
    parsed = Page(page)
    assert sorted(parsed.loaded) == list("123456789")
    assert parsed.links == ["outside"]
    assert parsed.next == "outside"


def test_no_page_makes_a_request(pages: Path) -> None:
    outside = [
        (str(path.relative_to(pages)), address)
        for path, address in all_loaded(pages)
        if address.startswith("//") or urlsplit(address).scheme not in ("", "data")
    ]
    assert outside == []


def test_every_file_that_a_page_loads_lies_beside_it(pages: Path) -> None:
    found = [
        (path, path.parent / unquote(urlsplit(address).path))
        for path, address in all_loaded(pages)
        if urlsplit(address).path and not urlsplit(address).scheme
    ]
    assert len(found) > 100
    assert [(path, target) for path, target in found if not target.is_file()] == []
    assert any(target.suffix == ".woff2" for _, target in found)


def test_formulas_are_finished_html(pages: Path) -> None:
    for path in pages.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert "mathjax" not in text.lower()
        assert "katex.min.js" not in text
        assert "katex-error" not in text


@pytest.mark.parametrize(
    ("page", "html"),
    [
        ("blocks/attention", '<span class="katex-display">'),
        ("blocks/attention", '<details class="code" open>'),  # of a short block
        ("tools/generation", '<details class="code">'),
        ("blocks/masks", '<span class="wide">猫</span>'),  # two columns
    ],
)
def test_formulas_code_and_wide_letters_are_marked(pages: Path, page: str, html: str) -> None:
    text = (pages / f"reference/{page}.html").read_text("utf-8")
    assert html in text
    assert page != "tools/generation" or '<details class="code" open>' not in text


def test_every_public_name_has_its_place(pages: Path) -> None:
    ids = {id for path in (pages / "reference").rglob("*.html") for id in Page(path).ids}
    assert {f"transformer_blocks.{name}" for name in EXPORTS} <= ids
    documented = {id.rpartition(".")[2] for id in ids if id.startswith("transformer_blocks.")}
    assert PUBLIC.keys() <= documented


def test_next_links_visit_every_page_once_and_follow_the_reading_order(pages: Path) -> None:
    names: list[str] = []
    path = pages / "index.html"
    while (following := Page(path).next) and (path := path.parent / following).exists():
        name = path.resolve().relative_to(pages.resolve()).with_suffix("").as_posix()
        assert name not in names
        names.append(name)
    built = {path.relative_to(pages).with_suffix("").as_posix() for path in pages.rglob("*.html")}
    others = {name for name in built if name.startswith("_")} | {"index", "search"}
    assert set(names) == built - others
    chapters = {f"transformer_blocks.{name}" for name in reference_pages.CHAPTERS}
    pages_of_chapters = [
        page.path.removesuffix(".md")
        for page in reference_pages.pages()
        if page.modules[0].__name__ in chapters
    ]
    assert len(pages_of_chapters) == len(chapters)
    order = [names.index(f"reference/{name}") for name in pages_of_chapters]
    assert order == sorted(order)


def extension(name: str) -> Any:
    """Import a module of docs/_ext."""
    pytest.importorskip("sphinx")
    return import_module(name)


def is_string(statement: ast.stmt) -> bool:
    return ast.unparse(statement)[0] in "\"'"


@pytest.mark.parametrize("name", sorted(EXPORTS))
def test_the_code_on_a_page_is_that_of_the_file_without_docstrings(name: str) -> None:
    defined = getattr(transformer_blocks, name)
    if not (inspect.isclass(defined) or inspect.isfunction(defined)):
        return
    source = inspect.cleandoc("\n" + inspect.getsource(defined))
    expected = ast.parse(source)
    for node in ast.walk(expected):
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            code = [each for each in node.body if not is_string(each)]
            node.body = code or [ast.Expr(ast.Constant(...))]
    shown = extension("chapter").without_docstrings(source)
    assert ast.dump(ast.parse(shown)) == ast.dump(expected)
    assert set(shown.splitlines()) - {
        line.partition("  # noqa")[0] for line in source.splitlines()
    } <= {" " * indentation + "..." for indentation in range(0, 16, 4)}


def test_what_scrolls_can_be_scrolled_with_the_keyboard(pages: Path) -> None:
    for path in (pages / "reference").rglob("*.html"):
        text = path.read_text("utf-8")
        for tag in re.findall(r'<div class="(?:table-wrapper|formula)[^>]*>', text):
            assert 'tabindex="0"' in tag
