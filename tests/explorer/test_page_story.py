"""The explorer's page in a browser: the story view."""

import re
from typing import Any

import pytest
from tests.browser import in_browser
from tests.explorer.page import Opened, make_explorer

SENTENCE = "#story-sentence"


def token(side: str, index: int) -> str:
    return f"#story-{side} button:nth-child({index + 1})"


def shown(page: Opened, width: int = 0) -> Any:
    """Read what the view shows; with a width, the picture of that width too."""
    return page.page.evaluate(f"window.explorerStory({width or ''})")


def named(sentence: str) -> list[str]:
    return re.findall("“(.*?)”", sentence)


@in_browser
def test_pointer_and_keyboard_choose_a_token_and_its_buttons_are_made_anew(opened: Opened) -> None:
    opened.go("#v=story")
    page = opened.page
    page.hover(token("queries", 1))
    assert named(opened.text(SENTENCE))[0] == "cat"
    assert opened.picture("story-one").std() > 0
    page.click(token("queries", 2))
    kept = opened.text(SENTENCE)
    page.hover(token("queries", 0))
    assert opened.text(SENTENCE) == kept
    assert page.get_attribute(token("queries", 2), "aria-pressed") == "true"
    page.click(token("queries", 2))
    page.hover("h1")
    assert shown(opened)["shows"] is None
    page.focus(token("keys", 0))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert shown(opened)["shows"] == {"side": "keys", "index": 1}
    page.evaluate(f"window.before = document.querySelector('{token('keys', 1)}')")
    opened.resize(700, 800)
    assert not page.evaluate("before.isConnected")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('[role=group]').id") == "story-queries"
    assert shown(opened)["shows"] == {"side": "keys", "index": 1}
    page.keyboard.press("Escape")
    assert shown(opened)["shows"] is None
    tab_stops = "buttons => buttons.filter(button => button.tabIndex === 0).length"
    for side in ("keys", "queries"):
        assert page.eval_on_selector_all(f"#story-{side} button", tab_stops) == 1


@pytest.mark.slow
@in_browser
def test_taps_and_reduced_motion_on_a_phone(open_page: Any) -> None:
    page = open_page(
        make_explorer(),
        viewport={"width": 390, "height": 844},
        has_touch=True,
        is_mobile=True,
        reduced_motion="reduce",
        color_scheme="dark",
    )
    page.go("#v=story")
    page.page.tap(token("queries", 1))
    assert shown(page)["shows"] == {"side": "queries", "index": 1}
    assert named(page.text(SENTENCE))[0] == "cat"
    page.page.tap(token("keys", 3))
    page.page.wait_for_url("**q=1&k=3&lock=1")
    page.page.tap(token("queries", 1))
    assert shown(page)["shows"] is None
    page.page.tap(token("keys", 3))
    assert named(page.text(SENTENCE))[0] == "。"
    heights = "all => Math.min(...all.map(each => each.getBoundingClientRect().height))"
    assert page.page.eval_on_selector_all("#story button:not([hidden])", heights) >= 44
    assert page.page.evaluate("document.documentElement.scrollWidth") == 390
    assert page.page.evaluate("document.getAnimations().length") == 0
    assert shown(page)["frame"] == 0
