"""The explorer's pictures in a browser: saved as PNG and SVG."""

import io
import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
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
    """Save the shown view in a theme; return the file's name and content."""
    page = opened.page
    if page.evaluate("document.documentElement.dataset.theme") != theme:
        page.click("#theme")
    with page.expect_download() as download:
        page.click(f"#save-{kind}")
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
