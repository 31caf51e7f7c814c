"""What the tests of the explorer's page share: a small page, and the page in a browser."""

import base64
import io
import json
import math
import re
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.image import imread
from tests.browser import AXE, axe
from torch import Tensor

from transformer_blocks import attention_weights, causal_mask
from transformer_blocks.explorer import Arithmetic, AttentionMaps, DecodingSteps, Explorer
from transformer_blocks.explorer.style import PALETTES, Theme

SOURCE = ["▁猫", "が", "眠る", "。", "</s>"]
TARGET = ["▁the", "▁cat", "▁sleeps", "</s>"]
HOSTILE = [
    "</script><script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked = 2'>",
    "\"';&<b>",
    "\u2028{{script}}",
]


def inflate(text: str) -> bytes:
    """Decompress bytes of a page's data."""
    return zlib.decompress(base64.b85decode(text.translate(str.maketrans(",./", "<>&"))))


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


SENTENCE = ["▁猫", "が", "公園", "で", "走り", "ます", "か", "。", "</s>"]
OUTPUT = ["▁does", "▁the", HOSTILE[1], "</s>"]
LAYERS, HEADS, SIZE, VALUE_SIZE = 2, 3, 8, 6
FULLY_MASKED = 1  # row of the decoder's self-attention


def maps_with_arithmetic(
    name: str,
    queries: list[str],
    keys: list[str] | None = None,
    *,
    mask: Tensor | None = None,
    scale: float | None = None,
    is_decoding: bool = False,
) -> AttentionMaps:
    sizes = (len(queries), SIZE), (len(keys or queries), SIZE), (len(keys or queries), VALUE_SIZE)
    query, key, value = (2 * torch.randn(LAYERS, HEADS, *size) for size in sizes)
    weights = attention_weights(query, key, mask=mask, scale=scale)
    arithmetic = Arithmetic(query, key, value, scale)
    return AttentionMaps(name, weights, queries, keys, mask, is_decoding, arithmetic)


def make_explorer_with_arithmetic() -> Explorer:
    torch.manual_seed(0)
    mask = causal_mask(4)
    mask[FULLY_MASKED] = True
    inputs = ["<s>", *OUTPUT[:-1]]
    without = maps_with_arithmetic("Without", inputs)
    candidates = [[(token, 0.9), ("▁a", 0.05), ("internationalisation", 0.02)] for token in OUTPUT]
    first = [[("▁a", 0.4), (token, 0.3)] for token in OUTPUT]
    return Explorer(
        [
            maps_with_arithmetic("Self", inputs, scale=0.2),
            maps_with_arithmetic("Decoder", inputs, mask=mask, is_decoding=True),
            maps_with_arithmetic("Cross", OUTPUT, SENTENCE, is_decoding=True),
            replace(without, arithmetic=None),
        ],
        decoding=DecodingSteps(OUTPUT, candidates, [first, candidates]),
    )


def data_of(html: str) -> dict[str, Any]:
    text = re.search(r'<script type="application/json" id="data">(.*?)</script>', html)
    assert text is not None
    content: dict[str, Any] = json.loads(text[1])
    return content


def rgb(colour: str) -> Any:
    return np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])


def colour(theme: Theme, part: float) -> Any:
    """Compute the colour of a weight, given as a part of the largest."""
    ramp = np.array([rgb(each) for each in PALETTES[theme].weights])
    place = part * (len(ramp) - 1)
    index = min(int(place), len(ramp) - 2)
    return ramp[index] + (place - index) * (ramp[index + 1] - ramp[index])


class Opened:
    """A page opened offline, with its requests and console messages."""

    def __init__(
        self, browser: Any, file: Path, explorer: Explorer, place: str = "", **options: Any
    ) -> None:
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
        self.go(place)

    def close(self) -> None:
        """Close the page, which has said nothing and loaded nothing but itself."""
        assert self.messages == []
        loaded = {url.partition("#")[0] for url in self.requests if not url.startswith("blob:")}
        assert loaded <= {self.address, "about:blank"}
        self.context.close()

    def go(self, place: str = "") -> None:
        self.page.goto("about:blank")
        self.page.goto(self.address + place)
        self.page.wait_for_selector("html[data-ready]")

    def show(self, place: str) -> None:
        """Go to another place of the opened page, as a link within it does."""
        self.page.evaluate(
            """place => new Promise(resolve => {
                addEventListener("popstate", resolve, {once: true});
                location.hash = place;
            })""",
            place,
        )

    def resize(self, width: int, height: int) -> None:
        """Set the size of the window, and wait until the page has followed it."""
        self.page.set_viewport_size({"width": width, "height": height})
        is_set = "([width, height]) => innerWidth === width && innerHeight === height"
        self.page.wait_for_function(is_set, arg=[width, height])
        self.page.evaluate("new Promise(requestAnimationFrame)")  # the event comes before it

    def problems(self, part: str = "document") -> list[Any]:
        """List what axe finds in a part of the page, whose transitions have ended."""
        self.page.evaluate(axe())
        self.page.evaluate("document.getAnimations().forEach(each => each.finish())")
        found = self.page.evaluate(f"options => axe.run({part}, options)", AXE)["violations"]
        return [(each["id"], [node["html"] for node in each["nodes"]]) for each in found]

    def text(self, selector: str) -> str:
        return str(self.page.inner_text(selector))

    def picture(self, canvas: str) -> Any:
        """Read what a canvas shows: pixels of shape (height, width, RGB), from 0 to 255."""
        address = self.page.evaluate(f"document.getElementById('{canvas}').toDataURL()")
        return 255 * imread(io.BytesIO(base64.b64decode(address.partition(",")[2])))[..., :3]

    def cell(self, row: int, column: int, margin: int = 3) -> Any:
        """Crop a cell of the map, by default without its borders."""
        box = self.page.evaluate("window.explorerLayout()")
        left, top = box["left"] + column * box["cell"], box["top"] + row * box["cell"]
        rows = slice(math.ceil(top) + margin, math.floor(top + box["cell"]) - margin)
        columns = slice(math.ceil(left) + margin, math.floor(left + box["cell"]) - margin)
        return self.picture("map")[rows, columns]

    def download(self, button: str) -> bytes:
        with self.page.expect_download() as info:
            self.page.click(button)
        path = info.value.path()
        return Path(path).read_bytes()
