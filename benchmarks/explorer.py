"""Size and speed of the attention explorer's pages.

    python benchmarks/explorer.py

For three sizes of models, with three sets of random attention maps each: the size of the page, the
time until the first paint and until the page is ready (median of five openings), and the time of a
redraw after a key: another head, and another attention (median of 50). Needs Chromium and the
package playwright.
"""

import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
from playwright.sync_api import sync_playwright

from transformer_blocks.explorer import AttentionMaps, Explorer

OPENINGS, REDRAWS = 5, 50
TIME_REDRAWS = """async ([id, key, count]) => {
    const times = [];
    for (let i = 0; i < count; i++) {
        const begun = performance.now();
        const press = new KeyboardEvent("keydown", {key, bubbles: true});
        document.getElementById(id).dispatchEvent(press);
        const map = document.getElementById("map");
        map.getContext("2d").getImageData(0, 0, 1, 1);  // waits until all is drawn
        times.push(performance.now() - begun);
        await new Promise(requestAnimationFrame);
    }
    return times;
}"""


class Size(NamedTuple):
    """Number of layers and heads of a model, and of tokens in a sentence."""

    layers: int
    heads: int
    tokens: int


def make_page(size: Size, path: Path) -> int:
    """Save a page with random attention weights and return its size in bytes."""
    torch.manual_seed(0)
    words = [f"word{number}" for number in range(size.tokens)]
    maps = []
    for name in ("Encoder self-attention", "Decoder self-attention", "Cross-attention"):
        scores = 2 * torch.randn(size.layers, size.heads, size.tokens, size.tokens)
        maps.append(AttentionMaps(name, scores.softmax(dim=-1), words))
    Explorer(maps).save(path)
    return path.stat().st_size


def main() -> None:
    """Print a row for each size."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    print("| layers x heads x tokens x 3 | size | first paint | ready | other head | attention |")
    print("|---|---|---|---|---|---|")
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        browser = playwright.chromium.launch(
            executable_path=chromium, args=["--no-sandbox", "--disable-gpu"]
        )
        for size in (Size(3, 4, 16), Size(6, 8, 64), Size(12, 12, 128)):
            path = Path(folder) / "page.html"
            size_in_bytes = make_page(size, path)
            paints, readies = [], []
            page: Any = None
            for _ in range(OPENINGS):
                page = browser.new_page()
                page.goto(path.as_uri())
                page.wait_for_selector("html[data-ready]")
                readies.append(page.evaluate("performance.now()"))
                paints.append(
                    page.evaluate(
                        "performance.getEntriesByName('first-contentful-paint')[0].startTime"
                    )
                )
            heads = page.evaluate(TIME_REDRAWS, ["grid", "ArrowRight", REDRAWS])
            attentions = page.evaluate(TIME_REDRAWS, ["map", "]", REDRAWS])
            cells = [
                " x ".join(map(str, size)),
                f"{size_in_bytes / 1000:,.0f} kB",
                *(f"{statistics.median(times):.0f} ms" for times in (paints, readies)),
                *(f"{statistics.median(times):.1f} ms" for times in (heads, attentions)),
            ]
            print("|", " | ".join(cells), "|", flush=True)
        browser.close()


if __name__ == "__main__":
    main()
