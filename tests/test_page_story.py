"""The explorer's page in a browser: the story view."""

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.browser import axe, in_browser
from tests.page import HOSTILE, SOURCE, TARGET, Opened, make_explorer, weights

from transformer_blocks import causal_mask
from transformer_blocks.explorer import AttentionMaps, Explorer
from transformer_blocks.explorer.style import LINES, PALETTES

SOURCE_LABELS = [token.replace("▁", "") for token in SOURCE]
TARGET_LABELS = [token.replace("▁", "") for token in TARGET]
SENTENCE = "#story-sentence"


def token(side: str, index: int) -> str:
    return f"#story-{side} button:nth-child({index + 1})"


def shown(page: Opened, width: int = 0) -> Any:
    """Read what the view shows; with a width, the picture of that width too."""
    return page.page.evaluate(f"window.explorerStory({width or ''})")


def named(sentence: str) -> list[str]:
    return re.findall("“(.*?)”", sentence)


def violations(page: Opened) -> Any:
    page.page.evaluate(axe())
    result = page.page.evaluate("axe.run('#story')")
    return [(each["id"], [node["html"] for node in each["nodes"]]) for each in result["violations"]]


@in_browser
def test_the_sentence_names_the_largest_weights_and_only_their_lines_are_drawn(
    opened: Opened,
) -> None:
    mean = opened.explorer.maps[2].weights.mean(dim=1)[-1]
    assert opened.text("#story-name") == "Cross-attention, layer 1, mean of 3 heads"
    assert opened.page.is_hidden("#head")
    assert shown(opened)["drawn"]["all"] == int((mean >= 0.01).sum())
    row, column = divmod(int(mean.argmax()), mean.shape[1])
    assert named(opened.text(SENTENCE)) == [TARGET_LABELS[row], SOURCE_LABELS[column]]
    for table, side, own, other in (
        (mean, "queries", TARGET_LABELS, SOURCE_LABELS),
        (mean.T, "keys", SOURCE_LABELS, TARGET_LABELS),
    ):
        for index, values in enumerate(table):
            opened.page.hover(token(side, index))
            first, second = values.argsort(descending=True)[:2].tolist()
            sentence = opened.text(SENTENCE)
            assert named(sentence)[:2] == [own[index], other[first]]
            assert f"({100 * float(values[first]):.0f}\u00a0%)" in sentence
            if values[second] >= 0.006:
                assert named(sentence)[2] == other[second]
            assert shown(opened)["drawn"]["one"] == int((values >= 0.002).sum())
            assert opened.page.eval_on_selector("#story-all", "e => e.style.opacity") == "0"
            shades = "buttons => buttons.map(button => button.style.backgroundColor !== '')"
            side_shades = opened.page.eval_on_selector_all(
                f"#story-{'keys' if side == 'queries' else 'queries'} button", shades
            )
            assert side_shades == [bool(value >= 0.01) for value in values]
    opened.page.hover("h1")
    assert shown(opened)["shows"] is None
    assert shown(opened)["drawn"]["one"] == 0


@pytest.mark.slow
@in_browser
def test_heads_are_drawn_together_in_their_colours(opened: Opened) -> None:
    table = opened.explorer.maps[2].weights

    def strokes() -> set[str]:
        shapes = shown(opened, 800)["scene"]["shapes"]
        return {shape["stroke"] for shape in shapes if shape["kind"] == "path"}

    def count(layer: int, *heads: int) -> int:
        return int((table[layer, list(heads)] >= 0.01).sum())

    image = "document.getElementById('story-all').toDataURL()"
    images = [opened.page.evaluate(image)]
    for chip, heads in (("1", (1,)), ("0", (0, 1)), ("2", (0, 1, 2)), ("1", (0, 2))):
        opened.page.click(f"#story-heads [aria-label='head {chip}']")
        assert shown(opened)["drawn"]["all"] == count(1, *heads)
        scale = {PALETTES["light"].muted} if len(heads) > 1 else set()  # of the line thickness
        assert strokes() == {LINES[head] for head in heads} | scale
        pressed = opened.page.eval_on_selector_all(
            "#story-heads [aria-label^='head '][aria-pressed=true]",
            "all => all.map(e => e.innerText)",
        )
        assert pressed == [str(head) for head in heads]
        images.append(opened.page.evaluate(image))
    assert len(set(images)) == len(images)
    assert opened.text("#story-name").endswith("heads 0, 2")
    opened.page.hover(token("queries", 1))
    best = table[1, [0, 2], 1].argmax(dim=1).tolist()
    assert named(opened.text(SENTENCE)) == ["cat", *(SOURCE_LABELS[index] for index in best)]
    opened.page.click("#story-layers [aria-label='layer 0']")
    assert shown(opened)["drawn"]["all"] == count(0, 0, 2)
    opened.page.click("#story-heads [aria-label='all heads']")
    assert shown(opened)["drawn"]["all"] == count(0, 0, 1, 2)
    opened.page.click("#story-heads [aria-label='mean']")
    assert shown(opened)["drawn"]["all"] == int((table[0].mean(dim=0) >= 0.01).sum())
    opened.page.wait_for_url("**l=0&h=3&hs=3*")


@pytest.mark.slow
@in_browser
def test_a_click_keeps_a_token_until_the_next(opened: Opened) -> None:
    page = opened.page

    def texts(width: int) -> list[str]:
        scene = shown(opened, width)["scene"]
        assert scene["width"] == width
        return [shape["text"] for shape in scene["shapes"] if shape["kind"] == "text"]

    scale = ["10 %", "50 %", "100 %"]
    assert texts(1000) == [
        "Keys",
        *SOURCE_LABELS,
        *TARGET_LABELS,
        "Output (queries)",
        "attention weight",
        *scale,
    ]
    page.click(token("queries", 2))
    kept = opened.text(SENTENCE)
    largest = float(opened.explorer.maps[2].weights.mean(dim=1)[-1, 2].max())
    assert f"{100 * largest:.0f}\u00a0%" in texts(600)
    assert named(kept)[0] == "sleeps"
    page.hover(token("queries", 0))
    assert opened.text(SENTENCE) == kept
    page.click(token("keys", 1))  # selects a cell of the kept token
    page.wait_for_url("**q=2&k=1&lock=1")
    assert page.get_attribute(token("queries", 2), "aria-pressed") == "true"
    page.reload()
    page.wait_for_selector("html[data-ready]")
    assert named(opened.text(SENTENCE))[:2] == named(kept)[:2]
    assert shown(opened)["shows"] == {"side": "queries", "index": 2}
    page.click(token("queries", 2))
    page.hover("h1")
    assert shown(opened)["shows"] is None
    page.focus(token("keys", 0))
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    assert shown(opened)["shows"] == {"side": "keys", "index": 1}
    page.set_viewport_size({"width": 700, "height": 800})  # makes the buttons anew
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.closest('[role=group]').id") == "story-queries"
    assert shown(opened)["shows"] == {"side": "keys", "index": 1}
    page.keyboard.press("Escape")
    assert shown(opened)["shows"] is None
    tab_stops = "buttons => buttons.filter(button => button.tabIndex === 0).length"
    assert page.eval_on_selector_all("#story-keys button", tab_stops) == 1
    assert page.eval_on_selector_all("#story-queries button", tab_stops) == 1


@pytest.mark.slow
@in_browser
def test_play_writes_the_output_token_by_token(opened: Opened) -> None:
    page = opened.page
    page.clock.install(time=0)
    opened.go()
    page.clock.pause_at(3_600_000)  # from here on, only `run_for` moves it
    page.focus("#play")
    page.keyboard.press("Space")
    mean = opened.explorer.maps[2].weights.mean(dim=1)[-1]
    for step, label in enumerate(TARGET_LABELS):
        page.clock.run_for(1000)
        assert opened.text("#step-name") == f"step {step} (of 0 to 3)"
        assert opened.text("#generated .now") == label
        assert "".join(opened.text("#generated").split()) == "".join(TARGET_LABELS[: step + 1])
        assert opened.text("#candidates").split("\n")[:2] == [label, "90.0 %"]
        assert opened.text("#candidates .picked .candidate-name") == label
        visible = [page.is_visible(token("queries", index)) for index in range(4)]
        assert visible == [index <= step for index in range(4)]
        assert named(opened.text(SENTENCE))[1] == SOURCE_LABELS[int(mean[step].argmax())]
        assert page.get_attribute(SENTENCE, "aria-live") == "off"
        assert shown(opened)["drawn"]["one"] == int((mean[step] >= 0.002).sum())
        page.clock.run_for(700)
    assert (opened.text("#step-name"), opened.text("#play")) == ("whole output", "Play")
    assert shown(opened)["shows"] is None
    page.keyboard.press(",")
    page.keyboard.press(",")
    assert opened.text("#generated .now") == "sleeps"
    page.keyboard.press(".")
    assert opened.text("#generated .now") == "</s>"
    page.uncheck("#shortcuts")
    page.keyboard.press(",")
    assert opened.text("#generated .now") == "</s>"
    page.fill("#step", "1")
    assert opened.text("#generated .now") == "cat"
    page.click("#attentions button:nth-child(2)")
    assert opened.text("#story-queries-axis") == "Input of the decoder (queries)"
    page.fill("#step", "1")
    assert page.is_hidden(token("keys", 2))  # of the future
    page.click("#attentions button:nth-child(1)")
    assert page.is_hidden("#decoding")


@pytest.mark.slow
@in_browser
def test_taps_and_reduced_motion_on_a_phone(browser: Any, tmp_path: Path) -> None:
    page = Opened(
        browser,
        tmp_path / "page.html",
        make_explorer(),
        viewport={"width": 390, "height": 844},
        has_touch=True,
        is_mobile=True,
        reduced_motion="reduce",
        color_scheme="dark",
    )
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
    assert page.page.eval_on_selector_all("#story button", heights) >= 44
    assert page.page.evaluate("document.documentElement.scrollWidth") == 390
    page.page.tap("#next")
    assert page.text("#generated .now") == "the"
    assert page.page.evaluate("document.getAnimations().length") == 0
    assert shown(page)["frame"] == 0
    assert violations(page) == []
    assert page.messages == []
    page.context.close()


@pytest.mark.slow
@in_browser
def test_tokens_of_any_kind_and_number_are_placed_without_overlaps(
    browser: Any, tmp_path: Path
) -> None:
    tokens = [*HOSTILE, "", "x" * 60, "▁un", "expected", "猫"]
    size = len(tokens)
    mask = causal_mask(size)
    mask[4] = True
    table = weights(1, 9, size, size, mask=causal_mask(size)).masked_fill(mask, 0)
    many = [f"▁{'word' * (index % 3)}{index}" for index in range(128)]
    explorer = Explorer(
        [
            AttentionMaps("Hostile", table, tokens, mask=mask),
            AttentionMaps("One", torch.ones(1, 1, 1, 1), ["one"]),
            AttentionMaps("Many", weights(1, 1, 128, 128), many, many[:100] + ["猫"] * 28),
        ]
    )
    page = Opened(
        browser, tmp_path / "page.html", explorer, viewport={"width": 1440, "height": 860}
    )
    page.go("#v=story")
    assert page.page.is_hidden("#decoding")
    assert page.page.is_hidden(SENTENCE) is False
    page.page.hover(token("queries", 4))
    assert page.text(SENTENCE) == "The empty token is fully masked: it attends to no token."
    assert page.page.evaluate("window.hacked") is None
    assert page.page.query_selector("img") is None
    page.page.click("#story-heads [aria-label='head 8']")
    assert "repeat after 7 heads" in page.text("#story-note")
    assert violations(page) == []
    page.page.click("#attentions button:nth-child(2)")
    assert named(page.text(SENTENCE)) == ["one", "one"]
    for width in (1180, 390):
        page.page.set_viewport_size({"width": width, "height": 860})
        page.go("#v=story&a=2")
        layout = shown(page)["layout"]
        boxes = np.array(
            [
                [item["x"], item["y"], item["x"] + item["width"], item["y"] + item["height"]]
                for item in layout["keys"] + layout["queries"]
            ]
        )
        left, top, right, bottom = (boxes[:, index] for index in range(4))
        meets = (left[:, None] < right - 1e-6) & (left < right[:, None] - 1e-6)
        meets &= (top[:, None] < bottom) & (top < bottom[:, None])
        assert int(meets.sum()) == len(boxes)  # each box meets only itself
        assert left.min() >= 0
        assert right.max() <= layout["width"] + 0.5
        assert page.page.evaluate("document.documentElement.scrollWidth") == width
        if width == 1180:
            assert page.page.evaluate("document.documentElement.scrollHeight") <= 2 * 860
    assert page.messages == []
    page.context.close()


@in_browser
def test_the_strongest_ribbons_are_drawn_where_there_are_too_many(
    browser: Any, tmp_path: Path
) -> None:
    torch.manual_seed(0)
    table = weights(1, 8, 60, 60)  # 480 queries, most of them with several weights above 5 %
    words = [f"w{number}" for number in range(60)]
    page = Opened(browser, tmp_path / "page.html", Explorer([AttentionMaps("Self", table, words)]))
    page.go("#v=story&h=0&hs=0.1.2.3.4.5.6.7")
    least = float(table.flatten().sort(descending=True).values[1499])
    assert least > 0.05
    assert shown(page)["drawn"]["all"] in range(1500, 1504)  # some are equal after rounding
    assert f"{100 * least:.0f}\u00a0%" in page.text("#story-note")
    page.context.close()


@pytest.mark.slow
@in_browser
def test_neighbouring_queries_have_different_colours(opened: Opened) -> None:
    opened.go("#v=story&a=2&h=3")  # the mean of three heads
    shapes = shown(opened, 800)["scene"]["shapes"]
    bars = [shape["fill"] for shape in shapes if shape["kind"] == "rect" and shape["height"] == 3]
    assert len(bars) == len(TARGET)
    assert all(first != second for first, second in itertools.pairwise(bars))
