"""The explorer's page in a browser: the arithmetic of a weight, and the logit lens."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.browser import in_browser
from tests.explorer.page import HEADS, Opened
from tests.explorer.page import make_explorer_with_arithmetic as make_explorer


@pytest.fixture(scope="module")
def shared(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    file = tmp_path_factory.mktemp("why") / "page.html"
    page = Opened(browser, file, make_explorer(), viewport={"width": 1180, "height": 700})
    yield page
    page.close()


def go(page: Opened, number: int, layer: int, head: int, row: int, column: int) -> None:
    """Select a cell, and wait until the panel shows it."""
    address = f"#v=map&a={number}&l={layer}&h={head}&q={row}&k={column}&lock=1"
    page.page.evaluate("address => { location.hash = address; }", address)
    name = f"{page.explorer.maps[number].name}, layer {layer}, "
    token = page.explorer.maps[number].key_tokens[column].replace("▁", "")
    heads = {HEADS: "mean", HEADS + 1: "rollout"}
    name += heads.get(head, f"head {head}")
    page.page.wait_for_function(
        """([name, query, key]) => {
            const cell = document.getElementById("why-cell");
            const texts = cell && [...cell.querySelectorAll("b")].map(each => each.textContent);
            return cell && !document.getElementById("why").hidden && texts[1].includes(key)
                && texts[0].includes(query) && cell.textContent.includes(name);
        }""",
        arg=[name, page.explorer.maps[number].queries[row].replace("▁", ""), token],
    )


@pytest.mark.slow
@in_browser
def test_the_panel_is_accessible_and_nothing_overflows(shared: Opened) -> None:
    go(shared, 1, 0, 0, 2, 1)
    for theme in range(2):
        for width in (820, 1440, 390):
            shared.resize(width, 900)
            assert shared.page.evaluate("document.documentElement.scrollWidth") <= width
        assert shared.problems("{include: [['#why'], ['#lens']]}") == []
        if theme == 0:
            shared.page.click("#theme")


@in_browser
def test_a_kept_token_stays_where_it_is(shared: Opened) -> None:
    shared.resize(390, 600)
    shared.page.emulate_media(reduced_motion="reduce")
    shared.go("#v=story&a=2&l=0&h=0")
    place = shared.page.evaluate("scrollY")
    shared.page.evaluate("document.querySelector('#story-queries button').click()")
    shared.page.wait_for_selector("#why-weight")
    assert shared.page.evaluate("scrollY") == place


@in_browser
def test_opening_the_panel_shows_it_in_the_window(shared: Opened) -> None:
    shared.resize(390, 700)
    shared.page.emulate_media(reduced_motion="reduce")
    shared.go("#v=map&a=2&l=0&h=0&q=0&k=0")
    place = shared.page.evaluate("scrollY")
    shared.go("#v=map&a=2&l=0&h=0&q=0&k=0&lock=1")
    shared.page.wait_for_selector("#why-weight")
    scrolled = shared.page.evaluate("scrollY") - place
    assert abs(scrolled) < 50  # an address does not scroll to the panel
    shared.page.click("#why-close")
    shared.page.evaluate("scrollTo(0, 0)")
    go(shared, 2, 0, 0, 0, 1)
    top, height = shared.page.evaluate(
        "[document.getElementById('why').getBoundingClientRect().top, innerHeight]"
    )
    assert 0 <= top <= height - 300
