"""The explorer's page in a browser: what all views share, the overview and the map."""

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.browser import axe, in_browser
from tests.page import HOSTILE, SOURCE, Opened, colour, make_explorer, weights

from transformer_blocks import causal_mask
from transformer_blocks.explorer import AttentionMaps, DecodingSteps, Explorer
from transformer_blocks.explorer.tokens import token_labels


@in_browser
def test_the_page_opens_without_requests_or_messages(opened: Opened) -> None:
    assert opened.text("#attentions [aria-checked=true]") == "Cross-attention"
    policy = opened.page.get_attribute("meta[http-equiv]", "content")
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert opened.messages == []
    blocked = opened.page.evaluate(
        """async () => {
            try { await fetch("data:,x"); return "fetched"; } catch { return "blocked"; }
        }"""
    )
    assert blocked == "blocked"
    opened.messages.clear()  # of the blocked request


@in_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_pixel_has_the_colour_of_its_weight(browser: Any, tmp_path: Path, theme: Any) -> None:
    page = Opened(browser, tmp_path / "page.html", make_explorer(), color_scheme=theme)
    for number in (0, 2):
        page.go(f"#v=map&a={number}&l=1&h=2&q=0&k=0")
        table = page.explorer.maps[number].weights[1, 2]
        for row, column in ((1, 1), (2, 3), (3, 2)):
            expected = colour(theme, float(table[row, column] / table.max()))
            found = page.cell(row, column)
            np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), atol=2)
    page.context.close()


@in_browser
def test_masked_cells_are_hatched_in_the_browser(opened: Opened) -> None:
    opened.go("#v=map&a=1&l=0&h=0&q=0&k=0")
    assert opened.cell(2, 3).std(axis=(0, 1)).max() > 5
    assert opened.cell(3, 2).std(axis=(0, 1)).max() < 1


@in_browser
def test_the_table_has_the_weights_of_all_maps(opened: Opened) -> None:
    opened.go("#v=map")
    for number, maps in enumerate(opened.explorer.maps):
        opened.page.click(f"#attentions button:nth-child({number + 1})")
        opened.choose_head(2, 3)
        np.testing.assert_allclose(opened.numbers(), maps.weights[1, 2], rtol=0, atol=1e-3)
        assert opened.text("#name") == f"{maps.name}, layer 2, head 3"


@in_browser
def test_mean_and_rollout_follow_their_definitions(opened: Opened) -> None:
    opened.go("#v=map&a=0")
    maps = opened.explorer.maps[0]
    mean = maps.weights.mean(dim=1).double()
    opened.choose_head(2, 4)
    np.testing.assert_allclose(opened.numbers(), mean[1], rtol=0, atol=1e-3)
    opened.choose_head(2, 5)
    steps = (mean + torch.eye(5)) / 2
    np.testing.assert_allclose(opened.numbers(), steps[1] @ steps[0], rtol=0, atol=1e-3)
    opened.page.click("#attentions button:nth-child(3)")
    assert opened.text("#column option:last-child") == "mean"


@in_browser
def test_the_tooltip_shows_exact_percentages(opened: Opened) -> None:
    opened.go("#v=map&a=2&l=0&h=1")
    box = opened.page.evaluate("window.explorerLayout()")
    opened.page.hover(
        "#map",
        position={"x": box["left"] + 3.5 * box["cell"], "y": box["top"] + 1.5 * box["cell"]},
    )
    weight = 100 * float(opened.explorer.maps[2].weights[0, 1, 1, 3])
    tip = opened.text("#tip")
    assert tip.startswith("cat → 。: ")
    assert float(tip.split(": ")[1].rstrip(" %")) == pytest.approx(weight, abs=0.07)
    opened.page.wait_for_url("**q=1&k=3*")
    summary = opened.text("#summary")
    best = token_labels(SOURCE)[int(opened.explorer.maps[2].weights[0, 1, 1].argmax())].text
    assert f"Cross-attention, layer 1, head 2: “cat” attends to “{best}”" in summary


@in_browser
def test_everything_can_be_controlled_by_keyboard(opened: Opened) -> None:
    opened.go("#v=map&a=0&l=0&h=0")
    page = opened.page
    page.focus("#grid")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert opened.text("#name") == "Encoder self-attention, layer 2, head 2"
    assert "selected: layer 2, head 2" in (page.get_attribute("#grid", "aria-label") or "")
    page.keyboard.press("p")
    page.keyboard.press("ArrowRight")
    assert opened.text("#compare") == "minus layer 2, head 2"
    page.keyboard.press("p")
    assert opened.text("#compare") == ""
    page.focus("#map")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**q=1&k=1*")
    page.keyboard.press("]")
    assert opened.text("#name").startswith("Decoder self-attention")
    page.keyboard.press("[")
    page.keyboard.press("[")
    assert opened.text("#name").startswith("Cross-attention")
    page.focus("#attentions [aria-checked=true]")
    page.keyboard.press("ArrowRight")
    assert opened.text("#attentions [aria-checked=true]") == "Encoder self-attention"
    order = []
    page.evaluate("document.activeElement.blur()")
    for _ in range(18):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.id || document.activeElement.role"))
    assert {"theme", "pin", "csv", "map", "grid", "layer", "column"} <= set(order)


@in_browser
def test_single_key_shortcuts_can_be_disabled(opened: Opened) -> None:
    opened.go("#v=map")
    name = opened.text("#name")
    opened.page.uncheck("#shortcuts")
    for key in "]p":
        opened.page.keyboard.press(key)
    assert (opened.text("#name"), opened.text("#compare")) == (name, "")
    opened.page.check("#shortcuts")
    opened.page.keyboard.press("p")
    assert opened.text("#compare") == "minus " + name.partition(", ")[2]


@in_browser
def test_the_address_restores_the_view(opened: Opened) -> None:
    opened.go("#v=map&a=2&l=1&h=3&q=2&k=4&pin=2.0.1")
    assert opened.text("#name") == "Cross-attention, layer 2, mean"
    assert opened.text("#compare") == "minus layer 1, head 2"
    assert "sleeps → </s>" in opened.text("#summary")
    opened.page.wait_for_timeout(300)
    address = opened.page.url
    opened.page.reload()
    opened.page.wait_for_selector("html[data-ready]")
    assert opened.page.url == address
    assert opened.text("#name") == "Cross-attention, layer 2, mean"
    opened.go("#v=map&a=99&l=-3&h=x&q=1e9&pin=7.7.7")
    assert opened.text("#name") == "Cross-attention, layer 1, head 1"


@in_browser
def test_a_pinned_head_is_subtracted(opened: Opened) -> None:
    opened.go("#v=map&a=0&l=0&h=0")
    opened.page.click("#pin")
    opened.choose_head(2, 3)
    table = opened.explorer.maps[0].weights
    np.testing.assert_allclose(opened.numbers(), table[1, 2] - table[0, 0], rtol=0, atol=1e-3)
    assert opened.text("#pin") == "Unpin"
    opened.page.click("#pin")
    np.testing.assert_allclose(opened.numbers(), table[1, 2], rtol=0, atol=1e-3)


@in_browser
def test_the_csv_file_has_the_shown_head(browser: Any, tmp_path: Path) -> None:
    table = weights(1, 1, 4, 4)
    explorer = Explorer([AttentionMaps("a", table, HOSTILE, mask=causal_mask(4))])
    page = Opened(browser, tmp_path / "page.html", explorer)
    rows = list(csv.reader(io.StringIO(page.download("#csv").decode("utf-8-sig"), newline="")))
    assert rows[0] == ["", *HOSTILE]
    assert [row[0] for row in rows[1:]] == HOSTILE
    values = np.array([row[1:] for row in rows[1:]], dtype=float)
    np.testing.assert_allclose(values, table[0, 0], rtol=0, atol=3e-4)
    assert page.messages == []
    page.context.close()


@in_browser
def test_hostile_tokens_are_shown_as_text_and_never_executed(browser: Any, tmp_path: Path) -> None:
    candidates = [[(word, 0.5), ("<b>x</b>", 0.1)] for word in HOSTILE]
    explorer = Explorer(
        [AttentionMaps(HOSTILE[1], weights(2, 2, 4, 4), HOSTILE, HOSTILE, is_decoding=True)],
        HOSTILE[0],
        DecodingSteps(HOSTILE, candidates),
    )
    page = Opened(browser, tmp_path / "page.html", explorer)
    page.go("#v=map")
    page.numbers()
    page.page.wait_for_timeout(50)
    assert page.page.evaluate("window.hacked") is None
    assert page.page.query_selector("img") is None
    assert page.page.query_selector("b") is not None  # the hint has some ...
    assert page.page.query_selector("main b:not(.hint b), h1 *") is None  # ... but not these
    assert page.text("h1") == HOSTILE[0]
    assert page.messages == []
    page.context.close()


@in_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1300])
def test_the_page_is_accessible_and_nothing_overflows(
    browser: Any, tmp_path: Path, theme: Any, width: int
) -> None:
    rules = axe()
    page = Opened(
        browser,
        tmp_path / "page.html",
        make_explorer(),
        color_scheme=theme,
        viewport={"width": width, "height": 900},
    )
    page.go("#v=map")
    page.numbers()
    page.page.evaluate(rules)
    result = page.page.evaluate("axe.run()")
    problems = [
        (each["id"], [node["html"] for node in each["nodes"]]) for each in result["violations"]
    ]
    assert problems == []
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    page.context.close()


@in_browser
def test_embedded_fonts_are_loaded_before_drawing(browser: Any, tmp_path: Path) -> None:
    explorer = Explorer([AttentionMaps("Self", weights(1, 1, 2, 2), ["猫", "が"])])
    page = Opened(browser, tmp_path / "page.html", explorer)
    fonts = page.page.evaluate(
        "[...document.fonts].map(font => [font.family.replaceAll('\"', ''), font.status])"
    )
    assert ["explorer", "loaded"] in fonts
    page.context.close()


@in_browser
def test_many_pointer_moves_do_not_exceed_the_limits_of_the_browser(opened: Opened) -> None:
    opened.go("#v=map&a=0")
    opened.page.evaluate(
        """() => {
            const map = document.getElementById("map"), box = map.getBoundingClientRect();
            for (let i = 0; i < 400; i++) map.dispatchEvent(new PointerEvent("pointermove", {
                clientX: box.left + box.width * (i % 20) / 20,
                clientY: box.top + box.height * Math.floor(i / 20) / 20}));
        }"""
    )
    opened.page.wait_for_url("**q=4&k=4*")


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
    frame.locator("#views button", has_text="Map").click()
    assert frame.locator("#name").inner_text() == "Cross-attention, layer 2, mean"
    assert page.get_attribute("iframe", "sandbox") == "allow-scripts allow-downloads"
    frame.locator("#column").select_option(index=2)
    assert frame.locator("#name").inner_text() == "Cross-attention, layer 2, head 3"
    assert messages == []
    context.close()
