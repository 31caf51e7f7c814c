"""The explorer's page in a browser: what all views share, the overview and the map."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.browser import in_browser
from tests.explorer.page import HOSTILE, Opened, colour, make_explorer, weights

from transformer_blocks.explorer import AttentionMaps, DecodingSteps, Explorer


@in_browser
def test_the_page_opens_without_requests_or_messages(opened: Opened) -> None:
    assert opened.text("#attentions [aria-checked=true]") == "Cross-attention"
    policy = opened.page.get_attribute("meta[http-equiv]", "content")
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    fonts = "[...document.fonts].map(font => [font.family.replaceAll('\"', ''), font.status])"
    assert ["explorer", "loaded"] in opened.page.evaluate(fonts)  # before anything was drawn
    other = opened.context.new_page()  # whose messages are not recorded
    other.goto(opened.address)
    blocked = other.evaluate(
        """async () => {
            try { await fetch("data:,x"); return "fetched"; } catch { return "blocked"; }
        }"""
    )
    assert blocked == "blocked"


@in_browser
@pytest.mark.parametrize("theme", ["light", pytest.param("dark", marks=pytest.mark.slow)])
def test_a_pixel_has_the_colour_of_its_weight(open_page: Any, theme: Any) -> None:
    page = open_page(make_explorer(), color_scheme=theme)
    for number in (0, 2):
        page.show(f"#v=map&a={number}&l=1&h=2&q=0&k=0")
        table = page.explorer.maps[number].weights[1, 2]
        for row, column in ((1, 1), (2, 3), (3, 2)):
            expected = colour(theme, float(table[row, column] / table.max()))
            found = page.cell(row, column)
            np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), atol=2)
    page.show("#v=map&a=1&l=0&h=0&q=0&k=0")
    assert page.cell(2, 3).std(axis=(0, 1)).max() > 5  # hatched
    assert page.cell(3, 2).std(axis=(0, 1)).max() < 1


@in_browser
def test_everything_can_be_reached_and_controlled_by_keyboard(opened: Opened) -> None:
    opened.go("#v=map&a=0&l=0&h=0")
    page, order = opened.page, []
    for _ in range(18):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.id || document.activeElement.role"))
    assert {"theme", "save-png", "map", "grid", "radio"} <= set(order)
    page.focus("#grid")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert opened.text("#name") == "Encoder self-attention, layer 1, head 1"
    assert "selected: layer 1, head 1" in (page.get_attribute("#grid", "aria-label") or "")
    page.focus("#map")
    page.keyboard.press("ArrowDown")
    page.wait_for_url("**q=1&k=0*")


@in_browser
def test_hostile_tokens_are_shown_as_text_and_never_executed(open_page: Any) -> None:
    candidates = [[(word, 0.5), ("<b>x</b>", 0.1)] for word in HOSTILE]
    explorer = Explorer(
        [AttentionMaps(HOSTILE[1], weights(2, 2, 4, 4), HOSTILE, HOSTILE, is_decoding=True)],
        HOSTILE[0],
        DecodingSteps(HOSTILE, candidates),
    )
    page = open_page(explorer)
    page.go("#v=map")
    assert page.page.evaluate("window.hacked") is None
    assert page.page.query_selector("img") is None
    assert page.page.query_selector("b") is not None  # the hint has some ...
    assert (
        page.page.query_selector("main b:not(.hint b, #say b), h1 *") is None
    )  # ... but not these
    assert page.text("h1") == HOSTILE[0]


@in_browser
@pytest.mark.parametrize(
    ("theme", "width"),
    [
        ("light", 360),
        pytest.param("dark", 1300, marks=pytest.mark.slow),
    ],
)
def test_the_page_is_accessible_and_nothing_overflows(
    open_page: Any, theme: Any, width: int
) -> None:
    page = open_page(
        make_explorer(),
        color_scheme=theme,
        viewport={"width": width, "height": 900},
    )
    for place in ("#v=map&l=1&h=1&q=1&k=2&lock=1", "#v=story", "#p=0"):
        page.show(place)
        assert page.problems() == []
        assert page.page.evaluate("document.documentElement.scrollWidth") <= width


@in_browser
def test_a_notebook_shows_the_page_in_a_sandboxed_frame(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "notebook.html"
    file.write_text(f"<!DOCTYPE html><body>{make_explorer()._repr_html_()}", encoding="utf-8")
    context = browser.new_context(offline=True)
    page = context.new_page()
    messages: list[str] = []
    page.on("console", lambda message: messages.append(message.text))
    page.on("pageerror", lambda error: messages.append(str(error)))
    page.goto(file.as_uri())
    frame = page.frame_locator("iframe")
    frame.locator("html[data-ready]").wait_for(state="attached")
    frame.locator("#laboratory").click()
    frame.locator("#attentions button", has_text="Cross").click()
    frame.locator("#views button", has_text="Map").click()
    assert page.get_attribute("iframe", "sandbox") == "allow-scripts allow-downloads"
    frame.locator("#heads button >> nth=2").click()
    name = frame.locator("#name").inner_text()
    assert re.fullmatch(r"Cross-attention, layer \d, head 2", name)
    assert messages == []
    context.close()


@in_browser
def test_the_theme_is_kept_and_set_before_the_first_paint(open_page: Any) -> None:
    opened = open_page(make_explorer(), color_scheme="light")
    opened.go("#v=map")
    assert opened.page.get_attribute("#theme", "aria-pressed") == "false"
    opened.page.click("#theme")
    # Nothing is painted before there is a body. (A frame can come before the head is parsed.)
    opened.page.add_init_script(
        """new MutationObserver((_, observer) => {
            if (!document.body) return;
            window.first = document.documentElement.dataset.theme;
            observer.disconnect();
        }).observe(document, {childList: true, subtree: true})"""
    )
    opened.go("#v=map")
    assert opened.page.evaluate("window.first") == "dark"
    assert opened.page.get_attribute("#theme", "aria-pressed") == "true"


@pytest.mark.slow
@in_browser
def test_an_overview_of_24_layers_and_16_heads_fits(open_page: Any) -> None:
    torch.manual_seed(0)
    explorer = Explorer([AttentionMaps("Self-attention", weights(24, 16, 3, 3), ["a", "b", "c"])])
    opened = open_page(explorer, has_touch=True)
    opened.go("#v=map&l=22&h=17&q=0&k=0&lock=1")
    page = opened.page
    assert opened.text("#heads [aria-checked=true]") == "rollout"
    for width in (390, 820, 1180, 1440):
        opened.resize(width, 640)
        page.wait_for_selector("#grid[data-drawn]")
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        overview, grid, chosen = page.evaluate(
            """["overview", "grid", "chosen"].map(
                id => document.getElementById(id).getBoundingClientRect().toJSON())"""
        )
        assert overview["left"] <= grid["left"]
        assert grid["right"] <= overview["right"]
        assert grid["left"] < chosen["left"]
        assert chosen["right"] <= grid["right"] + 1
        assert chosen["bottom"] <= grid["bottom"] + 1
        assert min(chosen["width"], chosen["height"]) >= 11
        small = page.eval_on_selector_all(
            "button, select, summary",
            """elements => elements.filter(each => each.checkVisibility()).filter(each => {
                const {width, height} = each.getBoundingClientRect();
                return width < 44 || height < 44;
            }).map(each => each.outerHTML)""",
        )
        assert small == []
        assert page.evaluate("document.querySelector('header').offsetHeight") < 640 / 3
