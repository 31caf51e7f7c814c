"""The explorer's pictures in a browser: saved as PNG and SVG, copied, and printed."""

import io
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from matplotlib.image import imread
from tests.browser import in_browser
from tests.explorer.page import HOSTILE, SOURCE, Opened, colour, make_explorer, weights

from transformer_blocks import causal_mask
from transformer_blocks.explorer import AttentionMaps, Explorer
from transformer_blocks.explorer.style import PALETTES, Theme

MODEL = "toy translator"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def shown(open_page: Any) -> Opened:
    """Open a page that names its model."""
    opened: Opened = open_page(replace(make_explorer(), model=MODEL))
    return opened


def save(opened: Opened, kind: str, theme: str = "light") -> tuple[str, bytes]:
    """Save the shown view in the dialog; return the file's name and content."""
    page = opened.page
    if not page.evaluate("document.getElementById('poster').open"):
        page.click("#save")
    page.check(f"[name=poster-theme][value={theme}]")
    with page.expect_download() as download:
        page.click(f"#poster-{kind}")
    return download.value.suggested_filename, Path(download.value.path()).read_bytes()


def texts_of(svg: bytes) -> list[str]:
    """List the texts of a picture; each label is one element."""
    return [text.text or "" for text in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def pixels_of(png: bytes) -> Any:
    """Decode a picture to colours from 0 to 255, and check that it is opaque."""
    image = 255 * imread(io.BytesIO(png))
    if image.shape[2] == 4:
        assert image[..., 3].min() == 255
    return image[..., :3]


def cell_centre(svg: bytes, row: int, column: int) -> tuple[float, float]:
    """Compute the place of a cell of the map as parts of the picture's height and width."""
    root = ElementTree.fromstring(svg)
    parents = {child: parent for parent in root.iter() for child in parent}
    group: ElementTree.Element = next(each for each in root.iter(f"{SVG}g") if each.get("class"))
    x, y = column + 0.5, row + 0.5
    while group is not root:
        numbers = re.findall(r"[-\d.]+", group.get("transform", ""))
        left, top, width, height = map(float, (*numbers, numbers[-1])[:4])
        x, y, group = left + width * x, top + height * y, parents[group]
    return y / float(root.get("height", "")), x / float(root.get("width", ""))


@in_browser
def test_a_picture_is_opaque_and_has_the_colours_of_its_weights(shown: Opened) -> None:
    shown.go("#v=map&a=2&l=1&h=2")
    table = shown.explorer.maps[2].weights[1, 2]
    themes: tuple[Theme, ...] = ("light", "dark")
    for theme in themes:
        name, png = save(shown, "png", theme)
        assert name == "cross-attention-layer-1-head-2.png"
        image, svg = pixels_of(png), save(shown, "svg", theme)[1]
        assert image.shape[1] >= 1600
        background = [int(PALETTES[theme].background[i : i + 2], 16) for i in (1, 3, 5)]
        for corner in (image[0, 0], image[0, -1], image[-1, 0], image[-1, -1]):
            np.testing.assert_allclose(corner, background, atol=0.5)
        for row, column in np.ndindex(4, 5):
            y, x = cell_centre(svg, row, column)
            found = image[int(y * image.shape[0]), int(x * image.shape[1])]
            expected = colour(theme, float(table[row, column] / table.max()))
            np.testing.assert_allclose(found, expected, atol=2)
    shown.page.keyboard.press("Escape")
    assert shown.page.evaluate("document.activeElement.id") == "save"


@in_browser
def test_play_is_saved_as_a_picture_that_moves(shown: Opened) -> None:
    shown.go("#v=map&a=2")
    shown.page.click("#save")
    assert not shown.page.is_visible("#poster-play")
    shown.page.keyboard.press("Escape")
    shown.go("#v=story&a=2&l=1")
    decoding = shown.explorer.decoding
    assert decoding is not None
    name, svg = save(shown, "play")
    assert name.endswith(".svg")
    steps, text = len(decoding.tokens), svg.decode()
    frames = [g for g in ElementTree.fromstring(svg).iter(f"{SVG}g") if g.get("class") == "frame"]
    assert len(frames) == steps + 1
    words = ["the", "cat", "sleeps"]  # the end token is one of the source too
    written = [
        [word for word in words if word in {each.text for each in frame.iter(f"{SVG}text")}]
        for frame in frames
    ]
    assert written == [words[:1], words[:2], words, words, words]
    delays = [float((frame.get("style") or "").split(":")[1].rstrip("s")) for frame in frames]
    np.testing.assert_allclose(np.diff(delays), 1.2)
    np.testing.assert_allclose(delays[0], -1.2 * (steps + 3))
    assert "prefers-reduced-motion" in text
    assert "<script" not in text


@in_browser
def test_a_picture_looks_alike_as_png_and_as_svg(
    browser: Any, open_page: Any, tmp_path: Path
) -> None:
    mask = causal_mask(5)  # hatched cells, and vertical labels
    maps = AttentionMaps("Self-attention", weights(1, 1, 5, 5, mask=mask), SOURCE, mask=mask)
    opened = open_page(Explorer([maps]))
    opened.go("#v=map")
    image, (_, svg) = pixels_of(save(opened, "png")[1]), save(opened, "svg")
    (tmp_path / "picture.svg").write_bytes(svg)
    width, height = (float(ElementTree.fromstring(svg).get(x, "")) for x in ("width", "height"))
    context = browser.new_context(
        viewport={"width": int(width), "height": int(height)},
        device_scale_factor=image.shape[1] / width,
    )
    page = context.new_page()
    page.goto((tmp_path / "picture.svg").as_uri())
    other = pixels_of(page.screenshot())
    context.close()
    rows = min(len(image), len(other))
    difference = np.abs(image[:rows] - other[:rows]).max(axis=2)
    assert difference.mean() < 1
    assert (difference > 40).mean() < 0.005


@in_browser
def test_tokens_in_a_picture_are_inert(open_page: Any, tmp_path: Path) -> None:
    tokens = [*HOSTILE[:3], "\x00\x1b", "  two  "]
    maps = AttentionMaps("<b>&", weights(1, 1, 5, 5), tokens)
    opened = open_page(Explorer([maps], HOSTILE[0] + "\x07"))
    opened.go("#v=map")
    svg = save(opened, "svg")[1]
    texts = texts_of(svg)
    assert {HOSTILE[2], "\ufffd\ufffd", "  two  "} <= {*texts}
    for token in HOSTILE[:2]:  # long ones may be shortened
        assert sum(text.startswith(token[:12]) for text in texts[-40:]) >= 2
    assert svg.count(b'xml:space="preserve"') == 2  # of the row and of the column
    names = {each.tag.removeprefix(SVG) for each in ElementTree.fromstring(svg).iter()}
    assert names <= {"svg", "title", "desc", "style", "g", "rect", "path", "text", "clipPath"}
    (tmp_path / "picture.svg").write_bytes(svg)
    picture = opened.context.new_page()
    picture.goto((tmp_path / "picture.svg").as_uri())
    assert picture.evaluate("window.hacked") is None


@pytest.mark.slow
@in_browser
def test_a_picture_that_cannot_be_copied_is_offered_as_a_file(shown: Opened) -> None:
    refuse = "() => { navigator.clipboard.write = () => Promise.reject(new Error('refused')) }"
    shown.page.click("#laboratory")
    shown.page.evaluate(refuse)
    shown.page.click("#save")
    shown.page.click("#poster-copy")
    shown.page.wait_for_selector("#poster-message:text('does not let')")
    assert shown.page.evaluate("document.activeElement.id") == "poster-png"


@pytest.mark.slow
@in_browser
def test_print_is_one_light_page_with_the_picture_only(open_page: Any) -> None:
    torch.manual_seed(0)
    tokens = [f"token{number}" for number in range(128)]
    long = Explorer([AttentionMaps("Self-attention", weights(1, 1, 128, 128), tokens)])
    papers: tuple[dict[str, Any], ...] = {"format": "A4"}, {"format": "Letter", "landscape": True}
    for explorer, paper in zip((make_explorer(), long), papers, strict=True):
        opened = open_page(explorer, color_scheme="dark")
        opened.go("#v=map")
        assert len(re.findall(rb"/Type\s*/Page\b", opened.page.pdf(**paper))) == 1
        opened.page.emulate_media(media="print")
        opened.page.evaluate("() => { dispatchEvent(new Event('beforeprint')) }")
        assert (
            opened.page.evaluate(
                "[...document.body.children].filter(e => e.checkVisibility()).map(e => e.id).join()"
            )
            == "print"
        )
        assert opened.page.text_content("#print svg title") == explorer.title
        assert opened.page.get_attribute("#print svg rect", "fill") == "#ffffff"
        assert (pixels_of(opened.page.screenshot())[[0, -1]] == 255).all()
