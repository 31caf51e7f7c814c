"""The explorer's pictures in a browser: saved as PNG."""

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.image import imread
from tests.browser import in_browser
from tests.explorer.page import make_explorer, rgb

from transformer_blocks.explorer.style import PALETTES


@in_browser
def test_a_picture_is_opaque_and_shows_what_the_page_shows(open_page: Any) -> None:
    opened = open_page(replace(make_explorer(), model="toy translator"), color_scheme="light")
    page = opened.page
    for theme, palette in PALETTES.items():
        if theme == "dark":
            page.click("#theme")
        for address, name in (
            ("#v=map&a=1&l=1&h=2", "decoder-self-attention-layer-1-head-2.png"),
            ("#v=story&a=2&l=0&h=3", "cross-attention-layer-0-mean.png"),
        ):
            opened.show(address)
            with page.expect_download() as download:
                page.click("#save-png")
            assert download.value.suggested_filename == name
            image = 255 * imread(io.BytesIO(Path(download.value.path()).read_bytes()))
            assert image.shape[1] >= 1600
            assert image.shape[2] == 3 or image[..., 3].min() == 255
            background = rgb(palette.background)
            for corner in (image[0, 0], image[0, -1], image[-1, 0], image[-1, -1]):
                np.testing.assert_allclose(corner[:3], background, atol=0.5)
            if "map" in address:  # the cell of the largest weight, as large as some letters
                darkest = np.abs(image[..., :3] - rgb(palette.weights[-1])).max(axis=2) < 2
                assert darkest.sum() > 40 * 40
