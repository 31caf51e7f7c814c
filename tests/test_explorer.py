"""The explorer: refused arguments, the saved page, figures, and the page in a browser."""

import base64
import csv
import io
import itertools
import json
import logging
import math
import pickle
import re
import secrets
import sys
import xml.etree.ElementTree as ElementTree
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.image import imread
from tests.browser import axe, in_browser
from torch import Tensor

from transformer_blocks import causal_mask
from transformer_blocks.explorer import (
    AttentionMaps,
    DecodingSteps,
    Explorer,
    plot_attention,
    plot_heads,
    save_explorer,
)
from transformer_blocks.explorer.fonts import embedded_fonts, font_for

SOURCE = ["▁猫", "が", "眠る", "。", "</s>"]
TARGET = ["▁the", "▁cat", "▁sleeps", "</s>"]
HOSTILE = [
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 2'>",
    "\"';&<b>",
    "\u2028{{script}}",
]


def weights(*shape: int, mask: Tensor | None = None) -> Tensor:
    scores = 2 * torch.randn(shape)
    if mask is not None:
        scores = scores.masked_fill(mask, -torch.inf)
    return scores.softmax(dim=-1)


def make_explorer() -> Explorer:
    torch.manual_seed(0)
    mask = causal_mask(4)
    candidates = [[(word, 0.9), ("▁a", 0.05), ("▁dog", 0.02)] for word in TARGET]
    return Explorer(
        [
            AttentionMaps("Encoder self-attention", weights(2, 3, 5, 5), SOURCE),
            AttentionMaps(
                "Decoder self-attention",
                weights(2, 3, 4, 4, mask=mask),
                ["<s>", *TARGET[:-1]],
                mask=mask,
                is_decoding=True,
            ),
            AttentionMaps("Cross-attention", weights(2, 3, 4, 5), TARGET, SOURCE, is_decoding=True),
        ],
        "猫が眠る。 → the cat sleeps",
        DecodingSteps(TARGET, candidates),
    )


def data_of(html: str) -> dict[str, Any]:
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', html)
    assert text is not None
    content: dict[str, Any] = json.loads(text[1])
    return content


# --- The saved page ------------------------------------------------------------------------------


def test_the_page_holds_every_weight_with_12_bits() -> None:
    explorer = make_explorer()
    content = data_of(explorer.html)
    for maps, saved in zip(explorer.maps, content["maps"], strict=True):
        planes = np.frombuffer(zlib.decompress(base64.b64decode(saved["weights"])), np.uint8)
        low, high = planes.reshape(2, -1).astype(int)
        found = (low + 256 * high).reshape(maps.weights.shape) / content["levels"]
        np.testing.assert_allclose(found, maps.weights.numpy(), rtol=0, atol=0.5001 / 4095)
        assert saved["keys"] == list(maps.key_tokens)


def test_the_representation_has_names_and_not_every_weight() -> None:
    assert repr(make_explorer()) == (
        "Explorer(maps=["
        "AttentionMaps('Encoder self-attention', weights of shape (2, 3, 5, 5)), "
        "AttentionMaps('Decoder self-attention', weights of shape (2, 3, 4, 4)), "
        "AttentionMaps('Cross-attention', weights of shape (2, 3, 4, 5))], "
        "title='猫が眠る。 → the cat sleeps', "
        "decoding=DecodingSteps(tokens=['▁the', '▁cat', '▁sleeps', '</s>']))"
    )


def test_tokens_cannot_end_the_data_or_fill_placeholders_of_the_template() -> None:
    html = Explorer(
        [AttentionMaps(HOSTILE[0], weights(1, 1, 4, 4), HOSTILE)], title="{{data}}<b>"
    ).html
    assert data_of(html)["maps"][0]["queries"] == HOSTILE
    assert html.count("<script") == html.count("</script>") == 2
    assert "<title>{{data}}&lt;b&gt;</title>" in html


def test_six_layers_of_eight_heads_over_64_tokens_stay_below_a_megabyte() -> None:
    words = [f"token{number}" for number in range(64)]
    maps = [AttentionMaps(name, weights(6, 8, 64, 64), words) for name in "abc"]
    assert len(Explorer(maps).html.encode()) < 1_000_000


def test_a_saved_page_leaves_no_partial_file(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    explorer = make_explorer()
    save_explorer(path, explorer.maps, title=explorer.title, decoding=explorer.decoding)
    assert path.read_text(encoding="utf-8") == explorer.html
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_symbolic_links_are_not_followed_and_errors_name_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, path = tmp_path / "other", tmp_path / "page.html"
    other.write_text("unchanged")
    monkeypatch.setattr(secrets, "token_hex", lambda count: "guessed")
    (tmp_path / ".page.html.part").symlink_to(other)  # a name that can be guessed
    save_explorer(path, make_explorer().maps[:1])
    (tmp_path / ".guessed.part").symlink_to(other)
    with pytest.raises(FileExistsError) as caught:
        save_explorer(path, make_explorer().maps[:1])
    assert caught.value.filename == str(path)
    assert other.read_text() == "unchanged"
    assert (tmp_path / ".guessed.part").is_symlink()  # it is not removed either


def test_japanese_glyphs_are_embedded_and_latin_ones_are_not() -> None:
    rules = embedded_fonts("▁the 猫", "family")
    assert 'font-family: "family"' in rules
    assert "U+732B" in rules
    assert not re.search(r"U\+74\b", rules)
    assert embedded_fonts("the cat", "family") == ""


def test_korean_glyphs_are_embedded_beside_japanese_ones(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        rules = embedded_fonts("고양이 猫", "family")
    assert rules.count("@font-face") == 2
    for letter in "고양이猫":
        assert f"U+{ord(letter):X}" in rules
    assert caplog.messages == []


def test_the_word_mark_of_sentencepiece_is_embedded_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert "U+2581" in embedded_fonts("▁the 猫", "family")
    assert caplog.messages == []


def test_a_glyph_that_no_font_has_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        embedded_fonts("\U000e0fff", "family")
    assert "U+E0FFF" in caplog.text


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"weights": torch.ones(2, 3, 4)},
            ValueError,
            r"^weights of 'a' must have shape \(layers,",
        ),
        ({"weights": weights(1, 1, 4, 3)}, ValueError, r"with \(L, S\) = \(4, 4\) tokens, got"),
        ({"weights": weights(1, 1, 4, 4) * torch.nan}, ValueError, "must be numbers from 0 to 1"),
        ({"weights": weights(1, 1, 4, 4) * 9}, ValueError, "must be numbers from 0 to 1"),
        ({"weights": weights(0, 1, 4, 4)}, ValueError, "must not be empty"),
        ({"mask": torch.zeros(4, 4)}, TypeError, "^mask must be bool"),
        ({"mask": causal_mask(3)}, ValueError, r"^mask must have shape \(L, S\) = \(4, 4\)"),
    ],
)
def test_weights_and_masks_that_do_not_fit_are_refused(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    parts: dict[str, Any] = {"weights": weights(1, 1, 4, 4)}
    with pytest.raises(error, match=message):
        AttentionMaps("a", queries=TARGET, **(parts | change))


def test_empty_pages_and_missing_steps_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^maps must not be empty, got none$"):
        Explorer([])
    with pytest.raises(ValueError, match=r"got 1 tokens and 0 lists$"):
        DecodingSteps(["a"], [])
    with pytest.raises(ValueError, match=r"^probability of 'b' must be in \[0, 1\], got nan$"):
        DecodingSteps(["a"], [[("b", math.nan)]])
    maps = AttentionMaps("a", weights(1, 1, 4, 4), TARGET, is_decoding=True)
    for decoding, steps in ((None, 0), (DecodingSteps(["a"], [[]]), 1)):
        with pytest.raises(ValueError, match=f"got 4 queries and {steps} steps$"):
            Explorer([maps], decoding=decoding)


def test_a_page_that_cannot_be_saved_leaves_no_partial_file(tmp_path: Path) -> None:
    (tmp_path / "page.html").mkdir()
    with pytest.raises(OSError, match=r"page\.html"):
        make_explorer().save(tmp_path / "page.html")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_characters_that_cannot_be_encoded_and_weights_with_gradients_are_shown(
    tmp_path: Path,
) -> None:
    tokens = ["\ud800", "\x1b", "\ufffe", "a"]
    maps = AttentionMaps("\udfff", weights(1, 1, 4, 4).requires_grad_(), tokens)
    page = Explorer([maps], "\ud800")
    page.save(tmp_path / "page.html")
    assert (
        data_of((tmp_path / "page.html").read_text(encoding="utf-8"))["maps"][0]["keys"] == tokens
    )


# --- Figures -------------------------------------------------------------------------------------


def test_figures_show_each_head_with_its_tokens_and_change_no_global_setting() -> None:
    before = dict(mpl.rcParams)
    table = weights(3, 4, 5)
    figure = plot_heads(table, TARGET, SOURCE, title="猫 $x$")
    panels = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in panels] == [
        *("mean of the heads", "head 1", "head 2", "head 3"),
    ]
    for axes, expected in zip(panels, [table.mean(0), *table], strict=True):
        np.testing.assert_allclose(axes.images[0].get_array(), expected.numpy(), rtol=1e-6)
        assert [label.get_text() for label in axes.get_xticklabels()] == SOURCE
        assert [label.get_text() for label in axes.get_yticklabels()] == TARGET
    assert dict(mpl.rcParams) == before


def test_masked_cells_are_hatched() -> None:
    mask = causal_mask(4)
    figure = plot_attention(weights(4, 4, mask=mask), TARGET, TARGET, mask=mask)
    (axes,) = figure.axes
    cells = {(round(p.get_y() + 0.5), round(p.get_x() + 0.5)) for p in axes.patches}
    assert cells == {(row, column) for row in range(4) for column in range(row + 1, 4)}


@pytest.mark.parametrize("plot", [plot_attention, plot_heads])
def test_figures_refuse_tokens_that_do_not_fit(plot: Any) -> None:
    table = weights(4, 4) if plot is plot_attention else weights(2, 4, 4)
    with pytest.raises(ValueError, match="with L=4 and S=5 tokens, got"):
        plot(table, TARGET, SOURCE)


def test_figures_refuse_nan_and_masks_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"^weights must be finite, got NaN or infinity$"):
        plot_attention(weights(4, 5) * math.nan, TARGET, SOURCE)
    with pytest.raises(ValueError, match=r"^mask must have shape \(L, S\) = \(4, 5\), got"):
        plot_attention(weights(4, 5), TARGET, SOURCE, mask=causal_mask(4))
    with pytest.raises(ValueError, match=r"^columns must be positive"):
        plot_heads(weights(2, 4, 5), TARGET, SOURCE, columns=0)

    with pytest.raises(
        TypeError, match=r"^mask must be bool, where True hides a key, got dtype=torch\.float32$"
    ):
        plot_attention(weights(4, 5), TARGET, SOURCE, mask=torch.zeros(4, 5))


@pytest.mark.parametrize("plot", [plot_attention, plot_heads])
def test_a_notebook_shows_a_figure_as_an_image(plot: Any) -> None:
    table = weights(4, 5) if plot is plot_attention else weights(2, 4, 5)
    figure = plot(table, TARGET, SOURCE)
    height, width, _ = imread(io.BytesIO(figure._repr_png_()), format="png").shape
    assert (width, height) == tuple(figure.get_size_inches() * figure.dpi // 1)
    again = pickle.loads(pickle.dumps(figure))
    assert again._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("heads", "length", "key_length"), [(0, 2000, 2000), (3, 300, 500), (12, 6, 30), (2, 1, 9000)]
)
def test_a_figure_stays_small_enough_to_be_rendered(
    heads: int, length: int, key_length: int
) -> None:
    shape = (heads, length, key_length)[not heads :]
    table = torch.zeros(shape)
    table[..., 0, -3] = 1.0
    queries, keys = ([f"w{place}" for place in range(size)] for size in shape[-2:])
    mask = torch.ones(length, key_length, dtype=torch.bool).triu(1)
    plot: Any = plot_heads if heads else plot_attention
    figure = plot(table, queries, keys, mask=mask)
    width, height = figure.get_size_inches()
    assert width * height < 2001
    assert max(width, height) <= 300
    panels = [axes for axes in figure.axes if axes.images]
    assert len(panels) == (heads + 1 if heads else 1)
    numbers = sum(image.get_array().size for axes in panels for image in axes.images)
    assert numbers <= 5 * width * height * figure.dpi**2  # weights, and the colours of the mask
    for axes in panels:
        assert float(axes.images[0].get_array().max()) == 1.0  # a single large weight stays visible
        for labels, tokens in ((axes.get_xticklabels(), keys), (axes.get_yticklabels(), queries)):
            assert 1 <= len(labels) <= 160
            shown = {
                round(place): label.get_text()
                for place, label in zip(
                    axes.get_xticks() if tokens is keys else axes.get_yticks(), labels, strict=True
                )
            }
            assert all(tokens[place] == text for place, text in shown.items())
        assert len(axes.patches) <= 160**2


@pytest.mark.parametrize("size", [30, 250])
def test_labels_never_overlap(size: int) -> None:
    words = [f"word{place}" for place in range(size - 1)] + ["long" * 99]
    figure = plot_attention(weights(size, size), words, words)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    for labels, side in ((axes.get_xticklabels(), "x"), (axes.get_yticklabels(), "y")):
        assert len(labels) == size or size == 250
        boxes = sorted(
            sorted((getattr(box, f"{side}0"), getattr(box, f"{side}1")))
            for box in (label.get_window_extent() for label in labels)
        )
        assert all(low[1] <= high[0] for low, high in itertools.pairwise(boxes))


def test_masked_cells_too_small_for_a_hatch_are_grey() -> None:
    words, mask = ["x"] * 400, causal_mask(400)
    (axes,) = plot_attention(weights(400, 400), words, words, mask=mask).axes
    assert not axes.patches
    cover = axes.images[1].get_array()
    np.testing.assert_array_equal(cover[..., 3] > 0, mask.numpy())


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plot_attention(weights(4, 5), TARGET, SOURCE),
        lambda: plot_heads(weights(2, 4, 5), TARGET, SOURCE),
        lambda: font_for("a"),
    ],
)
def test_without_matplotlib_the_error_names_the_extra(
    draw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = (
        'a figure needs matplotlib, which is not installed: pip install "transformer-blocks[plot]"'
    )
    with pytest.raises(ModuleNotFoundError, match=f"^{re.escape(message)}$"):
        draw()


def test_without_fonttools_a_page_is_saved_and_a_warning_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "fontTools", None)
    with caplog.at_level(logging.WARNING):
        assert "@font-face" not in make_explorer().html
    assert 'pip install "transformer-blocks[plot]"' in caplog.text


# --- In a browser --------------------------------------------------------------------------------

RAMPS = {
    "light": [(255, 255, 255), (190, 215, 245), (92, 152, 222), (31, 88, 176), (9, 30, 92)],
    "dark": [(12, 13, 18), (58, 24, 92), (156, 42, 106), (238, 107, 66), (252, 230, 140)],
}


def colour(theme: str, weight: float) -> Any:
    """Compute the colour of a weight."""
    ramp = np.array(RAMPS[theme], dtype=float)
    place = weight * (len(ramp) - 1)
    index = min(int(place), len(ramp) - 2)
    return ramp[index] + (place - index) * (ramp[index + 1] - ramp[index])


class Opened:
    """A page opened offline, with its requests and console messages."""

    def __init__(self, browser: Any, file: Path, explorer: Explorer, **options: Any) -> None:
        self.explorer = explorer
        explorer.save(file)
        self.address = file.as_uri()
        self.context = browser.new_context(offline=True, accept_downloads=True, **options)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.messages: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))
        self.go()

    def go(self, place: str = "") -> None:
        self.page.goto("about:blank")
        self.page.goto(self.address + place)
        self.page.wait_for_selector("html[data-ready]")

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def numbers(self) -> Any:
        """Read the table of the selected head as numbers from 0 to 1."""
        if not self.page.evaluate("document.getElementById('weights').open"):
            self.page.click("summary")
            self.page.wait_for_selector("#table td")
        cells = self.page.eval_on_selector_all("#table td", "cells => cells.map(c => c.innerText)")
        columns = len(self.page.query_selector_all("#table thead th")) - 1
        values = [float(cell.replace(" %", "").replace("\u00a0", "")) / 100 for cell in cells]
        return np.array(values).reshape(-1, columns)

    def cell(self, row: int, column: int) -> Any:
        """Crop a cell of the map, without its borders: pixels of shape (height, width, RGB)."""
        address = self.page.evaluate("document.getElementById('map').toDataURL()")
        image = imread(io.BytesIO(base64.b64decode(address.partition(",")[2])))
        box = self.page.evaluate("window.explorerLayout()")
        left, top = box["left"] + column * box["cell"], box["top"] + row * box["cell"]
        rows = slice(math.ceil(top) + 3, math.floor(top + box["cell"]) - 3)
        columns = slice(math.ceil(left) + 3, math.floor(left + box["cell"]) - 3)
        return 255 * image[rows, columns, :3]

    def download(self, button: str) -> bytes:
        with self.page.expect_download() as info:
            self.page.click(button)
        path = info.value.path()
        return Path(path).read_bytes()


@pytest.fixture
def opened(browser: Any, tmp_path: Path) -> Iterator[Opened]:
    page = Opened(browser, tmp_path / "page.html", make_explorer())
    yield page
    assert page.messages == []
    assert {url.partition("#")[0] for url in page.requests if not url.startswith("blob:")} <= {
        page.address,
        "about:blank",
    }
    page.context.close()


@in_browser
def test_the_page_opens_without_requests_or_messages(opened: Opened) -> None:
    assert "Encoder self-attention, layer 1, head 1" in opened.text("#name")
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
        page.go(f"#a={number}&l=1&h=2&q=0&k=0")
        table = page.explorer.maps[number].weights[1, 2]
        for row, column in ((1, 1), (2, 3), (3, 2)):
            expected = colour(theme, float(table[row, column]))
            found = page.cell(row, column)
            np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), atol=2)
    page.context.close()


@in_browser
def test_masked_cells_are_hatched_in_the_browser(opened: Opened) -> None:
    opened.go("#a=1&l=0&h=0&q=0&k=0")
    assert opened.cell(2, 3).std(axis=(0, 1)).max() > 5
    assert opened.cell(3, 2).std(axis=(0, 1)).max() < 1


@in_browser
def test_the_table_has_the_weights_of_all_maps(opened: Opened) -> None:
    for number, maps in enumerate(opened.explorer.maps):
        opened.page.click(f"#attentions button:nth-child({number + 1})")
        opened.page.click('#grid button[aria-label="layer 2, head 3"]')
        np.testing.assert_allclose(opened.numbers(), maps.weights[1, 2], rtol=0, atol=1e-3)
        assert opened.text("#name") == f"{maps.name}, layer 2, head 3"


@in_browser
def test_mean_and_rollout_follow_their_definitions(opened: Opened) -> None:
    maps = opened.explorer.maps[0]
    mean = maps.weights.mean(dim=1).double()
    opened.page.click('#grid button[aria-label="layer 2, mean"]')
    np.testing.assert_allclose(opened.numbers(), mean[1], rtol=0, atol=1e-3)
    opened.page.click('#grid button[aria-label="layer 2, rollout"]')
    steps = (mean + torch.eye(5)) / 2
    np.testing.assert_allclose(opened.numbers(), steps[1] @ steps[0], rtol=0, atol=1e-3)
    opened.page.click("#attentions button:nth-child(3)")
    assert opened.page.query_selector('#grid button[aria-label="layer 2, rollout"]') is None


@in_browser
def test_the_tooltip_shows_exact_percentages(opened: Opened) -> None:
    opened.go("#a=2&l=0&h=1")
    box = opened.page.evaluate("window.explorerLayout()")
    opened.page.hover(
        "#map",
        position={"x": box["left"] + 3.5 * box["cell"], "y": box["top"] + 1.5 * box["cell"]},
    )
    weight = 100 * float(opened.explorer.maps[2].weights[0, 1, 1, 3])
    tip = opened.text("#tip")
    assert tip.startswith("▁cat → 。: ")
    assert float(tip.split(": ")[1].rstrip(" %")) == pytest.approx(weight, abs=0.07)
    opened.page.wait_for_url("**q=1&k=3*")
    summary = opened.text("#summary")
    best = SOURCE[int(opened.explorer.maps[2].weights[0, 1, 1].argmax())]
    assert f"Cross-attention, layer 1, head 2: “▁cat” attends to “{best}”" in summary


@in_browser
def test_everything_can_be_controlled_by_keyboard(opened: Opened) -> None:
    page = opened.page
    page.focus("#grid [aria-selected=true]")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    assert opened.text("#name") == "Encoder self-attention, layer 2, head 2"
    assert page.evaluate("document.activeElement.getAttribute('aria-label')") == "layer 2, head 2"
    page.keyboard.press("p")
    page.keyboard.press("ArrowRight")
    assert opened.text("#compare") == "minus Encoder self-attention, layer 2, head 2"
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
    page.keyboard.press(".")
    assert "▁sleeps" in opened.text("#generated .now")
    page.focus("#attentions [aria-checked=true]")
    page.keyboard.press("ArrowRight")
    assert opened.text("#attentions [aria-checked=true]") == "Encoder self-attention"
    order = []
    page.evaluate("document.activeElement.blur()")
    for _ in range(12):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.id || document.activeElement.role"))
    assert {"theme", "step", "pin", "png", "svg", "csv", "map", "gridcell"} <= set(order)


@in_browser
def test_single_key_shortcuts_can_be_disabled(opened: Opened) -> None:
    name = opened.text("#name")
    opened.page.uncheck("#shortcuts")
    for key in "]p.":
        opened.page.keyboard.press(key)
    assert (opened.text("#name"), opened.text("#compare")) == (name, "")
    assert opened.text("#generated .now").strip() == "▁the"
    opened.page.check("#shortcuts")
    opened.page.keyboard.press("p")
    assert opened.text("#compare") == f"minus {name}"


@in_browser
def test_the_address_restores_the_view(opened: Opened) -> None:
    opened.go("#a=2&l=1&h=3&q=2&k=4&pin=2.0.1")
    assert opened.text("#name") == "Cross-attention, layer 2, mean"
    assert opened.text("#compare") == "minus Cross-attention, layer 1, head 2"
    assert "▁sleeps → </s>" in opened.text("#summary")
    opened.page.wait_for_timeout(300)
    address = opened.page.url
    opened.page.reload()
    opened.page.wait_for_selector("html[data-ready]")
    assert opened.page.url == address
    assert opened.text("#name") == "Cross-attention, layer 2, mean"
    opened.go("#a=99&l=-3&h=x&q=1e9&pin=7.7.7")
    assert opened.text("#name") == "Cross-attention, layer 1, head 1"


@in_browser
def test_a_pinned_head_is_subtracted(opened: Opened) -> None:
    opened.page.click("#pin")
    opened.page.click('#grid button[aria-label="layer 2, head 3"]')
    table = opened.explorer.maps[0].weights
    np.testing.assert_allclose(opened.numbers(), table[1, 2] - table[0, 0], rtol=0, atol=1e-3)
    assert opened.text("#pin") == "Unpin"
    opened.page.click("#pin")
    np.testing.assert_allclose(opened.numbers(), table[1, 2], rtol=0, atol=1e-3)


@in_browser
def test_decoding_steps_are_shown_one_by_one(opened: Opened) -> None:
    opened.go("#a=0")
    opened.page.fill("#step", "1")
    assert " ".join(opened.text("#generated").split()) == "▁the ▁cat"
    assert opened.text("#generated .now").strip() == "▁cat"
    assert " ".join(opened.text("#candidates").split()) == "▁cat 90.0 % ▁a 5.0 % ▁dog 2.0 %"
    assert opened.text("#name").startswith("Cross-attention")
    assert "“▁cat” attends to" in opened.text("#summary")
    opened.page.focus("#map")
    opened.page.keyboard.press("ArrowDown")
    assert opened.text("#generated .now").strip() == "▁sleeps"


@in_browser
def test_downloads_contain_the_shown_head(browser: Any, tmp_path: Path) -> None:
    table = weights(1, 1, 4, 4)
    explorer = Explorer([AttentionMaps("a", table, HOSTILE, mask=causal_mask(4))])
    page = Opened(browser, tmp_path / "page.html", explorer)
    assert page.download("#png").startswith(b"\x89PNG")
    rows = list(csv.reader(io.StringIO(page.download("#csv").decode("utf-8-sig"), newline="")))
    assert rows[0] == ["", *HOSTILE]
    assert [row[0] for row in rows[1:]] == HOSTILE
    values = np.array([row[1:] for row in rows[1:]], dtype=float)
    np.testing.assert_allclose(values, table[0, 0], rtol=0, atol=3e-4)
    drawing = ElementTree.fromstring(page.download("#svg").decode())
    texts = list(drawing.iter("{http://www.w3.org/2000/svg}text"))
    assert [element.text for element in texts] == HOSTILE * 2
    longest = HOSTILE.index(max(HOSTILE, key=len)), HOSTILE.index(min(HOSTILE, key=len))
    assert [texts[index].get("textLength") for index in longest] == ["142", None]
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
    page.numbers()
    page.page.fill("#step", "3")
    page.page.wait_for_timeout(50)
    assert page.page.evaluate("window.hacked") is None
    assert page.page.query_selector("img") is None
    assert page.page.query_selector("b") is not None  # the hint has some ...
    assert (
        page.page.query_selector("#candidates b, #table b, #generated b, h1 *") is None
    )  # ... but not these
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
    assert frame.locator("#name").inner_text() == "Encoder self-attention, layer 1, head 1"
    assert page.get_attribute("iframe", "sandbox") == "allow-scripts allow-downloads"
    frame.locator('#grid button[aria-label="layer 2, head 3"]').click()
    assert frame.locator("#name").inner_text() == "Encoder self-attention, layer 2, head 3"
    assert messages == []
    context.close()
