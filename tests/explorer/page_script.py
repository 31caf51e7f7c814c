"""The scripts of the explorer's page without a browser, in V8, for tests of what they compute."""

import json
import re
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from py_mini_racer import JSEvalException, MiniRacer
from tests.explorer.page import (
    data_of,
    inflate,
    make_explorer,
    make_explorer_with_arithmetic,
    weights,
)

from transformer_blocks import explorer
from transformer_blocks.explorer import AttentionMaps, Explorer
from transformer_blocks.explorer.arithmetic import as_text
from transformer_blocks.explorer.style import PALETTES
from transformer_blocks.explorer.tokens import token_labels

LIGHT = PALETTES["light"]
QUANTUM = 0.51 / 4095  # of the page's weights
SCRIPTS = Path(explorer.__file__).with_name("page")
STAND_IN = Path(__file__).with_name("page_without_browser.js")


@cache
def engine() -> MiniRacer:
    """Start V8 once, with a stand-in for a browser."""
    started = MiniRacer()
    started.eval(f"{STAND_IN.read_text(encoding='utf-8')}\n//# sourceURL={STAND_IN.name}")
    return started


def located(error: str, script: str) -> str:
    """Name the file and the line of ours for each place of an error in the script of a page."""

    def place(match: re.Match[str]) -> str:
        line, column = script.split("\n")[int(match[1]) - 1], int(match[2]) - 1
        found = {
            len(text): f"{path.name}:{number}"
            for path in SCRIPTS.glob("*.js")
            for number, each in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
            if (text := each.partition("  // ")[0].strip().removeprefix("export "))
            and 0 <= column - line.find(text) < len(text)
            and text in line
        }
        return max(found.items(), default=(0, match[0]))[1]

    return re.sub(r"\bpage:(\d+):(\d+)", place, error.partition("\n\n")[2] or error)


class Script:
    """A page whose scripts have run; any expression can be evaluated among their names.

    Call it with an expression of JavaScript, to get the value as JSON gives it. ``$("id")`` is an
    element, and ``pass(200)`` lets 200 milliseconds pass.
    """

    def __init__(self, html: str, address: str = "", reader: str = "en") -> None:
        script = html.rpartition("<script>")[2].partition("</script>")[0]
        script = script.removesuffix("})();") + "globalThis.inPage = text => eval(text);\n})();"
        content = json.dumps(_decompress(data_of(html)))
        engine().eval(
            f"globalThis.inPage = null; openPage({json.dumps(content)}, '{address}', '{reader}')"
        )
        self.script = script
        self._eval(f"{script}\n//# sourceURL=page")

    def __call__(self, expression: str) -> Any:
        return json.loads(str(self._eval(f"asJson(inPage({json.dumps(expression)}))")))

    def _eval(self, text: str) -> Any:
        try:
            return engine().eval(text)
        except JSEvalException as error:
            raise JSEvalException(located(str(error), self.script)) from None

    def go(self, address: str) -> None:
        """Go to another address, as the browser's Back does."""
        self(f"location.hash = '{address}', document.fire('popstate'), 0")

    def text(self, name: str) -> str:
        """Read the text of an element."""
        return re.sub("\u00a0", " ", self(f"$('{name}').textContent"))

    def children(self, name: str, selector: str) -> list[list[str]]:
        """Read the texts of the children of each element within another that a selector finds."""
        texts = "each => each.children.map(child => child.textContent)"
        found: list[list[str]] = self(f"$('{name}').querySelectorAll('{selector}').map({texts})")
        return found

    def drawn(self, canvas: str) -> list[Any]:
        """List what a canvas shows."""
        found: list[Any] = self(f"$('{canvas}').getContext('2d').drawn")
        return found


def _decompress(content: Any) -> Any:
    """Decompress the numbers of a page's data, for which V8 alone has no function."""
    pages = [page for each in (content, *content["others"]) for page in (each, *each["earlier"])]
    for maps in (each for page in pages for each in page["maps"] or ()):
        arithmetic = maps["arithmetic"] or {}
        vectors = (arithmetic[name] for name in ("queries", "keys", "values") if arithmetic)
        for part, key in ((maps, "weights"), *((each, "data") for each in vectors)):
            part[key] = _inflate(part[key])
    if live := content["live"]:
        live |= {name: _inflate(live[name]) for name in ("integers", "floats")}
        live["tokenizers"] = [_inflate(each) for each in live["tokenizers"]]
    return content


def _inflate(text: str) -> str:
    return as_text(inflate(text))


@cache
def _made(make: Callable[[], Explorer]) -> tuple[Explorer, str]:
    explorer = make()
    return explorer, explorer.html


class Made(Script):
    """A page of an explorer of the tests, which is made once."""

    def __init__(self, make: Callable[[], Explorer], address: str = "") -> None:
        self.explorer, html = _made(make)
        super().__init__(html, address)


def make_uneven() -> Explorer:
    """Make attentions of different numbers of layers, heads and tokens, and a long one."""
    torch.manual_seed(0)
    words = [f"▁{'long' * (i % 4)}word{i}" if i % 3 else f"part{i}" for i in range(40)]
    return Explorer(
        [
            AttentionMaps("Large", weights(3, 4, 5, 5), list("abcde")),
            AttentionMaps("Small", weights(1, 2, 2, 3), ["x", "y"], ["p", "q", "r"]),
            AttentionMaps("Long", weights(2, 1, 40, 40), words),
        ],
        model="Model",
    )


plain = partial(Made, make_explorer)
with_arithmetic = partial(Made, make_explorer_with_arithmetic)
uneven = partial(Made, make_uneven)


def table(explorer: Explorer, attention: int, layer: int, column: int) -> Any:
    """Compute the weights of a column of the overview: a head, the mean or rollout."""
    stack = explorer.maps[attention].weights.double().numpy()
    if column < stack.shape[1]:
        return stack[layer, column]
    means = stack.mean(axis=1)
    if column == stack.shape[1]:
        return means[layer]
    product = np.eye(stack.shape[2])
    for mean in means[: layer + 1]:
        product = (mean + np.eye(len(mean))) / 2 @ product
    return product


def labels(tokens: Any) -> list[str]:
    return [label.text for label in token_labels(tokens)]


def numbers(path: str) -> list[float]:
    return [float(text) for text in re.findall(r"-?\d+(?:\.\d+)?(?:e-?\d+)?", path)]
