"""The pages: they build without a warning, and every link leads to a place that exists."""

import inspect
import io
import re
import tokenize
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from tests.public import EXPORTS, PUBLIC

import reference_pages

pytestmark = pytest.mark.slow

SKIPPED = '"""', 'r"""', "# noqa"  # in the code on a page


class Page(HTMLParser):
    """The places of a page, the addresses that it names, and its images without a description."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []  # followed by a click
        self.loaded: list[str] = []
        self.undescribed: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        self.ids.add(values.get("id", ""))
        addresses = [values[name] for name in ("href", "src", "data") if name in values]
        (self.links if tag == "a" else self.loaded).extend(addresses)
        is_described = values.get("alt", "").strip() or values.get("role") == "none"
        if tag == "img" and not is_described:
            self.undescribed.append(values.get("src", ""))


@pytest.fixture(scope="module")
def read(pages: Path) -> dict[Path, Page]:
    """Parse all pages of the site."""
    return {path.resolve(): Page(path) for path in pages.rglob("*.html")}


def faults(pages: dict[Path, Page], site: Path) -> list[tuple[str, str]]:
    """List (page, address) for links to a place that does not exist, and for what lies elsewhere.

    An address outside of the site may be followed by a click, and not loaded.
    """
    found = []
    for path, page in pages.items():
        for address in {*page.links, *page.loaded}:
            parts = urlsplit(address)
            if parts.scheme or parts.netloc:
                is_right = parts.scheme == "data" or address in page.links
            else:
                target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
                known = pages[target].ids if target in pages else {unquote(parts.fragment)}
                is_right = target.is_relative_to(site) and target.is_file()
                is_right &= not parts.fragment or unquote(parts.fragment) in known
            if not is_right:
                found.append((path.relative_to(site).as_posix(), address))
    return found


def test_every_link_leads_to_a_place_that_exists_and_nothing_is_loaded_from_elsewhere(
    read: dict[Path, Page], pages: Path
) -> None:
    assert faults(read, pages.resolve()) == []
    assert [(path, page.undescribed) for path, page in read.items() if page.undescribed] == []


def test_a_broken_link_and_a_request_are_found(tmp_path: Path) -> None:
    broken = ["missing.html", "#missing", "../outside.html", "page.html#図"]
    whole = ["#", "#here", "page.html#here", "https://example.org/a", "data:,"]
    links = "".join(f"<a href='{address}'></a>" for address in [*whole, *broken])
    page = tmp_path / "page.html"
    page.write_text(f"<p id='here'>{links}<img src='http://example.org/x.png'>", encoding="utf-8")
    found = faults({page: Page(page)}, tmp_path)
    assert {address for _, address in found} == {*broken, "http://example.org/x.png"}
    assert Page(page).undescribed == ["http://example.org/x.png"]


def test_every_public_name_has_its_place(read: dict[Path, Page], pages: Path) -> None:
    targets = reference_pages.targets()
    assert {f"transformer_blocks.{name}" for name in EXPORTS} <= targets.keys()
    assert PUBLIC.keys() <= {path.rpartition(".")[2] for path in targets}
    for path, (page, heading) in targets.items():
        html = (pages / "reference" / page).with_suffix(".html")
        anchor = re.sub(r"[^a-z0-9]+", "-", heading.lower()).strip("-")
        assert {anchor} <= read[html.resolve()].ids | {""}, path


def test_the_code_on_a_page_is_that_of_the_file_without_docstrings() -> None:
    def tokens(code: str) -> list[str]:
        found = [each.string for each in tokenize.generate_tokens(io.StringIO(code).readline)]
        return [each for each in found if each.strip() and not each.startswith(SKIPPED)]

    for thing in EXPORTS.values():
        if inspect.isclass(thing) or inspect.isfunction(thing):
            comment = f"<!-- code of {thing.__module__}:{thing.__qualname__} -->"
            found = re.sub(r"<!-- code of (\S+) -->", reference_pages.with_code, comment)
            [code] = re.findall(r"```python\n(.*)\n```", found, re.S)
            assert '"""' not in code
            assert tokens(code) == tokens(inspect.getsource(thing)), thing


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
    assert html in (pages / f"reference/{page}.html").read_text("utf-8")
