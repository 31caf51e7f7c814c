"""The pages: they build without a warning, and every link leads to a place that exists."""

import inspect
import io
import re
import tokenize
from pathlib import Path
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

import pytest
from lxml import html
from tests.public import EXPORTS, PUBLIC

import reference_pages

pytestmark = pytest.mark.slow

SKIPPED = '"""', 'r"""', "# noqa"  # in the code on a page


class Page(NamedTuple):
    """The places of a page, the addresses that it links to, and those that it loads."""

    ids: set[str]
    links: set[str]
    loaded: set[str]


def parse(path: Path) -> Page:
    tree = html.parse(path).getroot()
    found = [(element.tag, address) for element, _, address, _ in tree.iterlinks()]
    links = {address for tag, address in found if tag == "a"}
    return Page({*tree.xpath("//@id")}, links, {address for tag, address in found if tag != "a"})


@pytest.fixture(scope="module")
def read(pages: Path) -> dict[Path, Page]:
    """Parse all pages of the site."""
    return {path.resolve(): parse(path) for path in pages.rglob("*.html")}


def faults(pages: dict[Path, Page], site: Path) -> list[tuple[str, str]]:
    """List (page, address) for links to a place that does not exist, and for what lies elsewhere.

    An address outside of the site may be followed by a click, and not loaded.
    """
    found = []
    for path, page in pages.items():
        for address in page.links | page.loaded:
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


def test_every_public_name_has_its_place(read: dict[Path, Page], pages: Path) -> None:
    places = reference_pages.places()
    assert {f"transformer_blocks.{name}" for name in EXPORTS} <= places.keys()
    assert PUBLIC.keys() <= {path.rpartition(".")[2] for path in places}
    for path, place in places.items():
        page, _, anchor = place.partition("#")
        ids = read[(pages / "reference" / page).with_suffix(".html").resolve()].ids
        assert anchor.replace("_", "") in {each.replace("-", "") for each in ids} | {""}, path


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
    ("page", "shown"),
    [
        ("blocks/attention", '<span class="katex-display">'),
        ("blocks/attention", '<details class="code" open>'),  # of a short block
        ("tools/generation", '<details class="code">'),
        ("blocks/masks", '<span class="wide">猫</span>'),  # two columns
    ],
)
def test_formulas_code_and_wide_letters_are_marked(pages: Path, page: str, shown: str) -> None:
    assert shown in (pages / f"reference/{page}.html").read_text("utf-8")
