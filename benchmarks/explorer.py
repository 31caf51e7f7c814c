"""Size and speed of the attention explorer's pages.

    python benchmarks/explorer.py

For models of four sizes with random attention weights: the size of the page; the time until the
first paint, until the page is ready and until all small maps of the overview are drawn (median of
three openings); and the time from an event to the painted map (median and 95th percentile of 60):
a pointer that moves to another cell, a key that selects another head, a step of zooming, and a
click that changes the attention. A second table has the sizes of the map and of the page in pixels.
Needs Chromium and the package playwright.
"""

import shutil
import statistics
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
from playwright.sync_api import sync_playwright

from transformer_blocks.explorer import AttentionMaps, Explorer

OPENINGS, REDRAWS = 3, 60
WINDOWS = (390, 844), (820, 1180), (1180, 860), (1440, 900)
TIME_REDRAWS = """async ([kind, count]) => {
    const map = document.getElementById("map"), times = [];
    const actions = {
        hover(i) {
            const box = map.getBoundingClientRect();
            const {left, top, plotWidth, plotHeight} = explorerLayout();
            map.dispatchEvent(new PointerEvent("pointermove", {bubbles: true,
                clientX: box.left + left + plotWidth * ((i * 37) % count + .5) / count,
                clientY: box.top + top + plotHeight * ((i * 23) % count + .5) / count}));
        },
        head() {
            const press = new KeyboardEvent("keydown", {key: "ArrowRight", bubbles: true});
            document.getElementById("grid").dispatchEvent(press);
        },
        zoom(i) { document.getElementById(i % 8 < 4 ? "zoom-in" : "zoom-out").click(); },
        attention(i) {
            const options = document.getElementById("attentions").children;
            options[i % options.length].click();
        },
    };
    for (let i = 0; i < count; i++) {
        await new Promise(requestAnimationFrame);
        const begun = performance.now();
        actions[kind](i);
        map.getContext("2d").getImageData(0, 0, 1, 1);  // waits until all is drawn
        times.push(performance.now() - begun);
    }
    return times;
}"""


class Size(NamedTuple):
    """Number of attentions, of their layers and heads, and of tokens in a sentence."""

    attentions: int
    layers: int
    heads: int
    tokens: int


SIZES = (
    *(Size(3, 3, 4, 16), Size(3, 6, 8, 64), Size(3, 12, 12, 128)),
    *(Size(2, 24, 16, 128), Size(1, 4, 8, 512)),
)


def make_page(size: Size, path: Path) -> int:
    """Save a page with random attention weights and return its size in bytes."""
    torch.manual_seed(0)
    words = [f"word{number}" for number in range(size.tokens)]
    maps = []
    for number in range(size.attentions):
        scores = 2 * torch.randn(size.layers, size.heads, size.tokens, size.tokens)
        if size.tokens > 256:  # most weights of long sequences are nearly zero
            scores *= 2.5
        mask = torch.ones(size.tokens, size.tokens, dtype=torch.bool).triu(1) if number else None
        if mask is not None:
            scores.masked_fill_(mask, -torch.inf)
        maps.append(
            AttentionMaps(f"Attention {number + 1}", scores.softmax(dim=-1), words, mask=mask)
        )
    Explorer(maps).save(path)
    return path.stat().st_size


def measure(browser: Any, path: Path) -> tuple[list[str], list[str]]:
    """Measure a page: its times, and its sizes in pixels."""
    paints, readies, drawn = [], [], []
    page: Any = None
    for _ in range(OPENINGS):
        if page is not None:
            page.close()
        page = browser.new_page(viewport={"width": 1180, "height": 860})
        page.goto(path.as_uri() + "#v=map")
        page.wait_for_selector("html[data-ready]", timeout=120_000)
        readies.append(page.evaluate("performance.now()"))
        page.wait_for_selector("#grid[data-drawn]", timeout=120_000)
        drawn.append(page.evaluate("performance.now()"))
        paints.append(
            page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        )
    cells = [f"{statistics.median(times):.0f} ms" for times in (paints, readies, drawn)]
    for kind in ("hover", "head", "zoom", "attention"):
        times = page.evaluate(TIME_REDRAWS, [kind, REDRAWS])
        late = statistics.quantiles(times, n=20)[-1]
        cells.append(f"{statistics.median(times):.1f} / {late:.1f} ms")
    page.evaluate("document.getElementById('zoom-fit').click()")
    sizes = []
    for width, height in WINDOWS:
        page.set_viewport_size({"width": width, "height": height})
        page.wait_for_timeout(300)
        box = page.evaluate("[explorerLayout().cell, document.documentElement.scrollHeight]")
        screens = box[1] / height
        sizes.append(f"{box[0]:.1f} px, {screens:.1f} screens")
    page.close()
    return cells, sizes


def show_row(*cells: str) -> None:
    """Print a row of a table in Markdown."""
    print("|", " | ".join(cells), "|", flush=True)


def main() -> None:
    """Print a row for each size in each of two tables."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    names = "size", "first paint", "ready", "overview drawn", "hover", "head", "zoom", "attention"
    show_row("attentions x layers x heads x tokens", *names)
    show_row(*["---"] * 9)
    rows = []
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        flags = ["--no-sandbox", "--disable-gpu"]
        browser = playwright.chromium.launch(executable_path=chromium, args=flags)
        for size in SIZES:
            path = Path(folder) / "page.html"
            size_in_bytes = make_page(size, path)
            times, sizes = measure(browser, path)
            name = " x ".join(map(str, size))
            rows.append([name, *sizes])
            show_row(name, f"{size_in_bytes / 1000:,.0f} kB", *times)
        browser.close()
    print()
    show_row("size of a cell, height of the page", *(f"{width} px" for width, _ in WINDOWS))
    show_row(*["---"] * (1 + len(WINDOWS)))
    for row in rows:
        show_row(*row)


if __name__ == "__main__":
    main()
