"""The explorer: what it refuses, what it writes, and how it behaves in a browser."""

import base64
import csv
import importlib.util
import io
import itertools
import json
import logging
import math
import pickle
import re
import secrets
import shutil
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
from torch import Tensor

from transformer_blocks import causal_mask
from transformer_blocks.explorer import (
    AttentionMaps,
    Explorer,
    Writing,
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


def weights(*shape: int, hidden: Tensor | None = None) -> Tensor:
    scores = 2 * torch.randn(shape)
    if hidden is not None:
        scores = scores.masked_fill(hidden, -torch.inf)
    return scores.softmax(dim=-1)


def make_explorer() -> Explorer:
    torch.manual_seed(0)
    hidden = causal_mask(4)
    candidates = [[(word, 0.9), ("▁a", 0.05), ("▁dog", 0.02)] for word in TARGET]
    return Explorer(
        [
            AttentionMaps("Encoder self-attention", weights(2, 3, 5, 5), SOURCE),
            AttentionMaps(
                "Decoder self-attention",
                weights(2, 3, 4, 4, hidden=hidden),
                ["<s>", *TARGET[:-1]],
                hidden=hidden,
                steps=True,
            ),
            AttentionMaps("Cross-attention", weights(2, 3, 4, 5), TARGET, SOURCE, steps=True),
        ],
        "猫が眠る。 → the cat sleeps",
        Writing(TARGET, candidates),
    )


def data_of(html: str) -> dict[str, Any]:
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', html)
    assert text is not None
    content: dict[str, Any] = json.loads(text[1])
    return content


# --- What is written -----------------------------------------------------------------------------


def test_the_page_holds_every_weight_within_half_a_step() -> None:
    explorer = make_explorer()
    content = data_of(explorer.html)
    for block, packed in zip(explorer.blocks, content["blocks"], strict=True):
        planes = np.frombuffer(zlib.decompress(base64.b64decode(packed["weights"])), np.uint8)
        low, high = planes.reshape(2, -1).astype(int)
        found = (low + 256 * high).reshape(block.weights.shape) / content["levels"]
        np.testing.assert_allclose(found, block.weights.numpy(), rtol=0, atol=0.5001 / 4095)
        assert packed["keys"] == list(block.columns)


def test_at_the_prompt_it_names_its_parts_and_not_every_weight() -> None:
    assert repr(make_explorer()) == (
        "Explorer(blocks=["
        "AttentionMaps('Encoder self-attention', weights of shape (2, 3, 5, 5)), "
        "AttentionMaps('Decoder self-attention', weights of shape (2, 3, 4, 4)), "
        "AttentionMaps('Cross-attention', weights of shape (2, 3, 4, 5))], "
        "title='猫が眠る。 → the cat sleeps', "
        "writing=Writing(tokens=['▁the', '▁cat', '▁sleeps', '</s>']))"
    )


def test_tokens_cannot_end_the_data_nor_fill_a_part_of_the_template() -> None:
    html = Explorer(
        [AttentionMaps(HOSTILE[0], weights(1, 1, 4, 4), HOSTILE)], title="{{data}}<b>"
    ).html
    assert data_of(html)["blocks"][0]["queries"] == HOSTILE
    assert html.count("<script") == html.count("</script>") == 2
    assert "<title>{{data}}&lt;b&gt;</title>" in html


def test_six_layers_of_eight_heads_over_64_tokens_stay_below_a_megabyte() -> None:
    words = [f"token{number}" for number in range(64)]
    blocks = [AttentionMaps(name, weights(6, 8, 64, 64), words) for name in "abc"]
    assert len(Explorer(blocks).html.encode()) < 1_000_000


def test_a_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    explorer = make_explorer()
    save_explorer(path, explorer.blocks, title=explorer.title, writing=explorer.writing)
    assert path.read_text(encoding="utf-8") == explorer.html
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_a_planted_link_is_not_followed_and_an_error_names_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, path = tmp_path / "victim", tmp_path / "page.html"
    victim.write_text("mine")
    monkeypatch.setattr(secrets, "token_hex", lambda count: "guessed")
    (tmp_path / ".page.html.part").symlink_to(victim)  # the name of earlier versions
    save_explorer(path, make_explorer().blocks[:1])
    (tmp_path / ".guessed.part").symlink_to(victim)
    with pytest.raises(FileExistsError) as caught:
        save_explorer(path, make_explorer().blocks[:1])
    assert caught.value.filename == str(path)
    assert victim.read_text() == "mine"
    assert (tmp_path / ".guessed.part").is_symlink()  # it is not ours to remove


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


def test_the_mark_of_sentencepiece_is_embedded_without_a_word(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert "U+2581" in embedded_fonts("▁the 猫", "family")
    assert caplog.messages == []


def test_a_glyph_that_no_font_has_is_named(caplog: pytest.LogCaptureFixture) -> None:
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
        ({"hidden": torch.zeros(4, 4)}, TypeError, "^hidden must be bool"),
        ({"hidden": causal_mask(3)}, ValueError, r"^hidden must have shape \(L, S\) = \(4, 4\)"),
    ],
)
def test_what_fits_no_table_is_refused(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    parts: dict[str, Any] = {"weights": weights(1, 1, 4, 4)}
    with pytest.raises(error, match=message):
        AttentionMaps("a", queries=TARGET, **(parts | change))


def test_nothing_to_show_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^blocks must hold at least one, got none$"):
        Explorer([])
    with pytest.raises(ValueError, match=r"got 1 tokens and 0 lists$"):
        Writing(["a"], [])
    with pytest.raises(ValueError, match=r"^chance of 'b' must be in \[0, 1\], got nan$"):
        Writing(["a"], [[("b", math.nan)]])
    block = AttentionMaps("a", weights(1, 1, 4, 4), TARGET, steps=True)
    for writing, steps in ((None, 0), (Writing(["a"], [[]]), 1)):
        with pytest.raises(ValueError, match=f"got 4 rows and {steps} steps$"):
            Explorer([block], writing=writing)


def test_a_page_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "page.html").mkdir()
    with pytest.raises(OSError, match=r"page\.html"):
        make_explorer().save(tmp_path / "page.html")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_letters_that_cannot_be_written_and_weights_with_gradients_are_shown(
    tmp_path: Path,
) -> None:
    tokens = ["\ud800", "\x1b", "\ufffe", "a"]
    block = AttentionMaps("\udfff", weights(1, 1, 4, 4).requires_grad_(), tokens)
    page = Explorer([block], "\ud800")
    page.save(tmp_path / "page.html")
    assert (
        data_of((tmp_path / "page.html").read_text(encoding="utf-8"))["blocks"][0]["keys"] == tokens
    )


# --- Figures -------------------------------------------------------------------------------------


def test_figures_draw_each_head_with_its_tokens_and_change_no_global_setting() -> None:
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
    hidden = causal_mask(4)
    figure = plot_attention(weights(4, 4, hidden=hidden), TARGET, TARGET, hidden=hidden)
    (axes,) = figure.axes
    cells = {(round(p.get_y() + 0.5), round(p.get_x() + 0.5)) for p in axes.patches}
    assert cells == {(row, column) for row in range(4) for column in range(row + 1, 4)}


@pytest.mark.parametrize("plot", [plot_attention, plot_heads])
def test_figures_refuse_tokens_that_do_not_fit(plot: Any) -> None:
    table = weights(4, 4) if plot is plot_attention else weights(2, 4, 4)
    with pytest.raises(ValueError, match="with L=4 and S=5 tokens, got"):
        plot(table, TARGET, SOURCE)


def test_figures_refuse_what_is_no_number_and_masks_of_another_size() -> None:
    with pytest.raises(ValueError, match=r"^weights must be finite, got NaN or infinity$"):
        plot_attention(weights(4, 5) * math.nan, TARGET, SOURCE)
    with pytest.raises(ValueError, match=r"^hidden must have shape \(L, S\) = \(4, 5\), got"):
        plot_attention(weights(4, 5), TARGET, SOURCE, hidden=causal_mask(4))
    with pytest.raises(ValueError, match=r"^columns must be positive"):
        plot_heads(weights(2, 4, 5), TARGET, SOURCE, columns=0)

    with pytest.raises(TypeError, match=r"^hidden must be bool, got dtype=torch\.float32$"):
        plot_attention(weights(4, 5), TARGET, SOURCE, hidden=torch.zeros(4, 5))


@pytest.mark.parametrize("plot", [plot_attention, plot_heads])
def test_a_notebook_shows_a_figure_as_a_picture(plot: Any) -> None:
    table = weights(4, 5) if plot is plot_attention else weights(2, 4, 5)
    figure = plot(table, TARGET, SOURCE)
    height, width, _ = imread(io.BytesIO(figure._repr_png_()), format="png").shape
    assert (width, height) == tuple(figure.get_size_inches() * figure.dpi // 1)
    again = pickle.loads(pickle.dumps(figure))
    assert again._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("heads", "length", "key_length"), [(0, 2000, 2000), (3, 300, 500), (12, 6, 30), (2, 1, 9000)]
)
def test_a_figure_stays_small_enough_to_be_drawn(heads: int, length: int, key_length: int) -> None:
    shape = (heads, length, key_length)[not heads :]
    table = torch.zeros(shape)
    table[..., 0, -3] = 1.0
    queries, keys = ([f"w{place}" for place in range(size)] for size in shape[-2:])
    hidden = torch.ones(length, key_length, dtype=torch.bool).triu(1)
    plot: Any = plot_heads if heads else plot_attention
    figure = plot(table, queries, keys, hidden=hidden)
    width, height = figure.get_size_inches()
    assert width * height < 2001
    assert max(width, height) <= 300
    panels = [axes for axes in figure.axes if axes.images]
    assert len(panels) == (heads + 1 if heads else 1)
    numbers = sum(image.get_array().size for axes in panels for image in axes.images)
    assert numbers <= 5 * width * height * figure.dpi**2  # weights, and a cover with its colours
    for axes in panels:
        assert float(axes.images[0].get_array().max()) == 1.0  # one weight of many is still seen
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


def test_hidden_cells_too_small_for_a_hatch_are_grey() -> None:
    words, hidden = ["x"] * 400, causal_mask(400)
    (axes,) = plot_attention(weights(400, 400), words, words, hidden=hidden).axes
    assert not axes.patches
    cover = axes.images[1].get_array()
    np.testing.assert_array_equal(cover[..., 3] > 0, hidden.numpy())


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plot_attention(weights(4, 5), TARGET, SOURCE),
        lambda: plot_heads(weights(2, 4, 5), TARGET, SOURCE),
        lambda: font_for("a"),
    ],
)
def test_without_matplotlib_the_extra_that_has_it_is_named(
    draw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = (
        'a figure needs matplotlib, which is not installed: pip install "transformer-blocks[plot]"'
    )
    with pytest.raises(ModuleNotFoundError, match=f"^{re.escape(message)}$"):
        draw()


def test_without_fonttools_a_page_is_written_and_the_extra_that_has_it_is_named(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "fontTools", None)
    with caplog.at_level(logging.WARNING):
        assert "@font-face" not in make_explorer().html
    assert 'pip install "transformer-blocks[plot]"' in caplog.text


# --- In a browser --------------------------------------------------------------------------------

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
HAS_BROWSER = CHROMIUM is not None and importlib.util.find_spec("playwright") is not None
in_browser = pytest.mark.skipif(
    not HAS_BROWSER,
    reason="a browser is needed: `apt-get install chromium`, and the package playwright",
)
RAMPS = {
    "light": [(255, 255, 255), (190, 215, 245), (92, 152, 222), (31, 88, 176), (9, 30, 92)],
    "dark": [(12, 13, 18), (58, 24, 92), (156, 42, 106), (238, 107, 66), (252, 230, 140)],
}


def colour(theme: str, weight: float) -> Any:
    """Find the colour of a weight by hand."""
    ramp = np.array(RAMPS[theme], dtype=float)
    place = weight * (len(ramp) - 1)
    index = min(int(place), len(ramp) - 2)
    return ramp[index] + (place - index) * (ramp[index + 1] - ramp[index])


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(
            executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"]
        )
        yield started
        started.close()


class Opened:
    """A page that was opened offline, with all that it asked for and complained of."""

    def __init__(self, browser: Any, file: Path, explorer: Explorer, **options: Any) -> None:
        self.explorer = explorer
        explorer.save(file)
        self.address = file.as_uri()
        self.context = browser.new_context(offline=True, accept_downloads=True, **options)
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.complaints: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.complaints.append(message.text))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.go()

    def go(self, place: str = "") -> None:
        self.page.goto("about:blank")
        self.page.goto(self.address + place)
        self.page.wait_for_selector("html[data-ready]")

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def numbers(self) -> Any:
        """Read the table of the chosen head, in parts of one."""
        if not self.page.evaluate("document.getElementById('numbers').open"):
            self.page.click("summary")
            self.page.wait_for_selector("#table td")
        cells = self.page.eval_on_selector_all("#table td", "cells => cells.map(c => c.innerText)")
        columns = len(self.page.query_selector_all("#table thead th")) - 1
        values = [float(cell.replace(" %", "").replace("\u00a0", "")) / 100 for cell in cells]
        return np.array(values).reshape(-1, columns)

    def cell(self, row: int, column: int) -> Any:
        """Cut a cell out of the map, but for its borders: pixels (height, width, RGB)."""
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
    assert page.complaints == []
    assert {url.partition("#")[0] for url in page.requests if not url.startswith("blob:")} <= {
        page.address,
        "about:blank",
    }
    page.context.close()


@in_browser
def test_it_opens_without_a_request_or_a_message(opened: Opened) -> None:
    assert "Encoder self-attention, layer 1, head 1" in opened.text("#name")
    policy = opened.page.get_attribute("meta[http-equiv]", "content")
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert opened.complaints == []
    blocked = opened.page.evaluate(
        """async () => {
            try { await fetch("data:,x"); return "fetched"; } catch { return "blocked"; }
        }"""
    )
    assert blocked == "blocked"
    opened.complaints.clear()  # of the attempt


@in_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_a_pixel_has_the_colour_of_its_weight(browser: Any, tmp_path: Path, theme: Any) -> None:
    page = Opened(browser, tmp_path / "page.html", make_explorer(), color_scheme=theme)
    for block in (0, 2):
        page.go(f"#b={block}&l=1&h=2&q=0&k=0")
        table = page.explorer.blocks[block].weights[1, 2]
        for row, column in ((1, 1), (2, 3), (3, 2)):
            expected = colour(theme, float(table[row, column]))
            found = page.cell(row, column)
            np.testing.assert_allclose(found, np.broadcast_to(expected, found.shape), atol=2)
    page.context.close()


@in_browser
def test_masked_cells_are_hatched_in_the_browser(opened: Opened) -> None:
    opened.go("#b=1&l=0&h=0&q=0&k=0")
    assert opened.cell(2, 3).std(axis=(0, 1)).max() > 5
    assert opened.cell(3, 2).std(axis=(0, 1)).max() < 1


@in_browser
def test_the_table_has_the_weights_of_every_block(opened: Opened) -> None:
    for number, block in enumerate(opened.explorer.blocks):
        opened.page.click(f"#blocks button:nth-child({number + 1})")
        opened.page.click('#grid button[aria-label="layer 2, head 3"]')
        np.testing.assert_allclose(opened.numbers(), block.weights[1, 2], rtol=0, atol=1e-3)
        assert opened.text("#name") == f"{block.name}, layer 2, head 3"


@in_browser
def test_mean_and_rollout_are_what_their_names_say(opened: Opened) -> None:
    block = opened.explorer.blocks[0]
    mean = block.weights.mean(dim=1).double()
    opened.page.click('#grid button[aria-label="layer 2, mean"]')
    np.testing.assert_allclose(opened.numbers(), mean[1], rtol=0, atol=1e-3)
    opened.page.click('#grid button[aria-label="layer 2, rollout"]')
    steps = (mean + torch.eye(5)) / 2
    np.testing.assert_allclose(opened.numbers(), steps[1] @ steps[0], rtol=0, atol=1e-3)
    opened.page.click("#blocks button:nth-child(3)")
    assert opened.page.query_selector('#grid button[aria-label="layer 2, rollout"]') is None


@in_browser
def test_the_pointer_reads_exact_percents(opened: Opened) -> None:
    opened.go("#b=2&l=0&h=1")
    box = opened.page.evaluate("window.explorerLayout()")
    opened.page.hover(
        "#map",
        position={"x": box["left"] + 3.5 * box["cell"], "y": box["top"] + 1.5 * box["cell"]},
    )
    weight = 100 * float(opened.explorer.blocks[2].weights[0, 1, 1, 3])
    tip = opened.text("#tip")
    assert tip.startswith("▁cat → 。: ")
    assert float(tip.split(": ")[1].rstrip(" %")) == pytest.approx(weight, abs=0.07)
    opened.page.wait_for_url("**q=1&k=3*")
    sentence = opened.text("#sentence")
    best = SOURCE[int(opened.explorer.blocks[2].weights[0, 1, 1].argmax())]
    assert f"Cross-attention, layer 1, head 2: “▁cat” looks at “{best}”" in sentence


@in_browser
def test_everything_can_be_reached_with_the_keys(opened: Opened) -> None:
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
    assert "▁sleeps" in opened.text("#written .now")
    page.focus("#blocks [aria-checked=true]")
    page.keyboard.press("ArrowRight")
    assert opened.text("#blocks [aria-checked=true]") == "Encoder self-attention"
    order = []
    page.evaluate("document.activeElement.blur()")
    for _ in range(12):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.id || document.activeElement.role"))
    assert {"theme", "step", "pin", "png", "svg", "csv", "map", "gridcell"} <= set(order)


@in_browser
def test_keys_that_are_letters_can_be_switched_off(opened: Opened) -> None:
    name = opened.text("#name")
    opened.page.uncheck("#shortcuts")
    for key in "]p.":
        opened.page.keyboard.press(key)
    assert (opened.text("#name"), opened.text("#compare")) == (name, "")
    assert opened.text("#written .now").strip() == "▁the"
    opened.page.check("#shortcuts")
    opened.page.keyboard.press("p")
    assert opened.text("#compare") == f"minus {name}"


@in_browser
def test_a_link_leads_back_to_the_same_view(opened: Opened) -> None:
    opened.go("#b=2&l=1&h=3&q=2&k=4&pin=2.0.1")
    assert opened.text("#name") == "Cross-attention, layer 2, mean"
    assert opened.text("#compare") == "minus Cross-attention, layer 1, head 2"
    assert "▁sleeps → </s>" in opened.text("#sentence")
    opened.page.wait_for_timeout(300)
    address = opened.page.url
    opened.page.reload()
    opened.page.wait_for_selector("html[data-ready]")
    assert opened.page.url == address
    assert opened.text("#name") == "Cross-attention, layer 2, mean"
    opened.go("#b=99&l=-3&h=x&q=1e9&pin=7.7.7")
    assert opened.text("#name") == "Cross-attention, layer 1, head 1"


@in_browser
def test_a_pinned_head_is_subtracted(opened: Opened) -> None:
    opened.page.click("#pin")
    opened.page.click('#grid button[aria-label="layer 2, head 3"]')
    block = opened.explorer.blocks[0].weights
    np.testing.assert_allclose(opened.numbers(), block[1, 2] - block[0, 0], rtol=0, atol=1e-3)
    assert opened.text("#pin") == "Unpin"
    opened.page.click("#pin")
    np.testing.assert_allclose(opened.numbers(), block[1, 2], rtol=0, atol=1e-3)


@in_browser
def test_the_writing_goes_word_by_word(opened: Opened) -> None:
    opened.go("#b=0")
    opened.page.fill("#step", "1")
    assert " ".join(opened.text("#written").split()) == "▁the ▁cat"
    assert opened.text("#written .now").strip() == "▁cat"
    assert " ".join(opened.text("#next").split()) == "▁cat 90.0 % ▁a 5.0 % ▁dog 2.0 %"
    assert opened.text("#name").startswith("Cross-attention")
    assert "“▁cat” looks at" in opened.text("#sentence")
    opened.page.focus("#map")
    opened.page.keyboard.press("ArrowDown")
    assert opened.text("#written .now").strip() == "▁sleeps"


@in_browser
def test_downloads_hold_the_head_that_is_shown(browser: Any, tmp_path: Path) -> None:
    table = weights(1, 1, 4, 4)
    explorer = Explorer([AttentionMaps("a", table, HOSTILE, hidden=causal_mask(4))])
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
    assert page.complaints == []
    page.context.close()


@in_browser
def test_hostile_tokens_are_text_and_never_run(browser: Any, tmp_path: Path) -> None:
    candidates = [[(word, 0.5), ("<b>x</b>", 0.1)] for word in HOSTILE]
    explorer = Explorer(
        [AttentionMaps(HOSTILE[1], weights(2, 2, 4, 4), HOSTILE, HOSTILE, steps=True)],
        HOSTILE[0],
        Writing(HOSTILE, candidates),
    )
    page = Opened(browser, tmp_path / "page.html", explorer)
    page.numbers()
    page.page.fill("#step", "3")
    page.page.wait_for_timeout(50)
    assert page.page.evaluate("window.hacked") is None
    assert page.page.query_selector("img") is None
    assert page.page.query_selector("b") is not None  # our own hint has some ...
    assert page.page.query_selector("#next b, #table b, #written b, h1 *") is None  # ... not these
    assert page.text("h1") == HOSTILE[0]
    assert page.complaints == []
    page.context.close()


@in_browser
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1300])
def test_axe_finds_nothing_and_nothing_sticks_out(
    browser: Any, tmp_path: Path, theme: Any, width: int
) -> None:
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        pytest.skip("the package axe-playwright-python is needed")
    page = Opened(
        browser,
        tmp_path / "page.html",
        make_explorer(),
        color_scheme=theme,
        viewport={"width": width, "height": 900},
    )
    page.numbers()
    page.page.evaluate((Path(found.origin).parent / "axe.min.js").read_text(encoding="utf-8"))
    result = page.page.evaluate("axe.run()")
    problems = [
        (each["id"], [node["html"] for node in each["nodes"]]) for each in result["violations"]
    ]
    assert problems == []
    assert page.page.evaluate("document.documentElement.scrollWidth") <= width
    page.context.close()


@in_browser
def test_the_embedded_font_is_there_before_anything_is_drawn(browser: Any, tmp_path: Path) -> None:
    explorer = Explorer([AttentionMaps("Self", weights(1, 1, 2, 2), ["猫", "が"])])
    page = Opened(browser, tmp_path / "page.html", explorer)
    fonts = page.page.evaluate(
        "[...document.fonts].map(font => [font.family.replaceAll('\"', ''), font.status])"
    )
    assert ["explorer", "loaded"] in fonts
    page.context.close()


@in_browser
def test_a_sweep_of_the_pointer_wears_no_browser_out(opened: Opened) -> None:
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
def test_in_a_notebook_it_lives_in_a_frame_of_its_own(browser: Any, tmp_path: Path) -> None:
    file = tmp_path / "notebook.html"
    file.write_text(f"<!DOCTYPE html><body>{make_explorer()._repr_html_()}", encoding="utf-8")
    context = browser.new_context(offline=True)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.goto(file.as_uri())
    frame = page.frame_locator("iframe")
    frame.locator("html[data-ready]").wait_for(state="attached")
    assert frame.locator("#name").inner_text() == "Encoder self-attention, layer 1, head 1"
    assert page.get_attribute("iframe", "sandbox") == "allow-scripts allow-downloads"
    frame.locator('#grid button[aria-label="layer 2, head 3"]').click()
    assert frame.locator("#name").inner_text() == "Encoder self-attention, layer 2, head 3"
    assert complaints == []
    context.close()
