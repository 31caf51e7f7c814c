"""Make the pictures that are committed, and say which of them are out of date.

    python docs/figures/pictures.py [NAME ...]

makes all of them, or the named ones:

- the figures of the book, ``docs/learn/figures/NAME.svg`` (see ``draw.py``), after computing the
  numbers in ``docs/images/data`` that some of them show,
- the figures of trained models, ``docs/images/NAME.png``, from the numbers in ``docs/images/data``,
- the README's picture of the attention explorer, ``explorer``, which needs Chromium and the run of
  ``make demo`` (see ``readme_picture.py``),
- the page that chapter 18 shows and the translator of the home page, ``explorer_page``.

A picture is out of date if the present code draws another one, or, where a browser takes it, if a
file that determines what it shows has changed.
"""

import io
import json
import re
import statistics
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import torch
from matplotlib.figure import Figure
from matplotlib.image import imread

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1] / "examples"))

import draw  # noqa: E402
import explorer_page  # noqa: E402
import readme_picture  # noqa: E402
import style  # noqa: E402
from common import plots  # noqa: E402
from pretrain_encoder import draw as draw_pretraining  # noqa: E402
from transformer_blocks.explorer import plot_heads  # noqa: E402
from transformer_blocks.explorer.panels import Panel, draw_panels  # noqa: E402
from transformer_blocks.explorer.plots import new_figure  # noqa: E402
from translation.pictures import comparison_figure  # noqa: E402
from vision_transformer import draw as draw_vision  # noqa: E402

IMAGES = HERE.parent / "images"
DATA = style.RECORDED
IDS = re.compile(r' (?:id|clip-path|xlink:href)="[^"]*"')  # they hash the sizes of what they name
SEEN = re.compile(r'(style="[^"]*"|>[^<]+<)')  # colours and words; all else is places
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
TOLERANCE = 0.5  # of a point: libraries of other versions may round differently
LAST_DIGIT = 0.011  # of a number that is written, and of an opacity
BLOCK = 8  # pixels: letters that are drawn a little differently have the same mean colour ...
COLOUR = 0.08  # ... up to this difference, of 1 between black and white


class Picture(ABC):
    """A picture that is committed, with what makes it.

    Attributes:
        path: Its file.
    """

    path: Path

    @abstractmethod
    def make(self) -> None:
        """Write the file."""

    @abstractmethod
    def difference(self) -> str:
        """Describe how the file differs from what would be made now; empty if it does not."""


class BookFigure(Picture):
    """A figure of the book, in SVG."""

    def __init__(self, name: str) -> None:
        self.name, self.path = name, draw.FIGURES / f"{name}.svg"

    def make(self) -> None:
        """Compute the numbers that the figure shows, if they are recorded, and draw it."""
        if self.name in style.COMPUTATIONS:
            style.record(self.name)
        self.path.write_text(style.as_svg(self.name), encoding="utf-8")

    def difference(self) -> str:
        """Compare the shapes and words, and the numbers up to half a point."""
        return svg_difference(style.as_svg(self.name), self.path.read_text(encoding="utf-8"))


class DataFigure(Picture):
    """A figure drawn from recorded numbers, in PNG."""

    def __init__(self, function: Callable[[Any], Figure]) -> None:
        self.function = function
        self.path = IMAGES / f"{function.__name__}.png"
        self.data = DATA / f"{function.__name__}.json"

    def draw(self) -> bytes:
        """Draw the figure with matplotlib's own settings, and return the file's content."""
        data = json.loads(self.data.read_text(encoding="utf-8"))
        with mpl.rc_context():
            mpl.rcdefaults()
            return plots.as_png(self.function(data))

    def make(self) -> None:
        """Draw the figure."""
        self.path.write_bytes(self.draw())

    def difference(self) -> str:
        """Compare the mean colours of small blocks."""
        return png_difference(self.draw(), self.path.read_bytes())


class ReadmePicture(Picture):
    """The picture of the attention explorer, which a browser takes."""

    path = readme_picture.PICTURE

    def make(self) -> None:
        """Write the page, and take its picture."""
        readme_picture.main()

    def difference(self) -> str:
        """Compare the files that determine the picture, and the picture itself, with the record."""
        return readme_picture.difference()


def svg_difference(drawn: str, stored: str) -> str:
    """Describe how two drawings differ, apart from small differences between their numbers."""
    drawn, stored = IDS.sub("", drawn), IDS.sub("", stored)
    if NUMBER.sub("#", drawn) != NUMBER.sub("#", stored):
        return "other shapes or words"
    changed = []
    for place, parts in enumerate(zip(SEEN.split(drawn), SEEN.split(stored), strict=True)):
        tolerance = LAST_DIGIT if place % 2 else TOLERANCE
        changed += [
            f"{new} for {old}"
            for new, old in zip(*map(NUMBER.findall, parts), strict=True)
            if abs(float(new) - float(old)) > tolerance
        ]
    return ", ".join(changed)


def png_difference(drawn: bytes, stored: bytes) -> str:
    """Describe how two images differ, apart from small differences of letters."""
    new, old = (imread(io.BytesIO(content), format="png")[..., :3] for content in (drawn, stored))
    if new.shape != old.shape:
        return f"{new.shape[1]} x {new.shape[0]} for {old.shape[1]} x {old.shape[0]} pixels"
    for top, left in product((0, BLOCK // 2), repeat=2):  # blocks that overlap
        means = [_block_means(image[top:, left:]) for image in (new, old)]
        change = np.abs(means[0] - means[1]).max(axis=-1)
        if change.max() > COLOUR:
            row, column = np.unravel_index(change.argmax(), change.shape)
            place = left + int(column) * BLOCK, top + int(row) * BLOCK
            return f"another colour at {place}, by {change.max():.2f}"
    return ""


def _block_means(image: Any) -> Any:
    """Compute the mean colour of each block of pixels."""
    height, width = (size // BLOCK * BLOCK for size in image.shape[:2])
    blocks = image[:height, :width].reshape(height // BLOCK, BLOCK, width // BLOCK, BLOCK, 3)
    return blocks.mean(axis=(1, 3))


def attention(data: Any) -> Figure:
    """Draw the cross-attention of each head for a sentence."""
    weights = torch.tensor(data["heads"])
    names = "target", "source"
    return plot_heads(
        weights, data["target"], data["source"], title=data["title"], axis_names=names
    )


def attention_compared(data: Any) -> Figure:
    """Draw the cross-attention of several models for a sentence."""
    tokens = data["target"], data["source"]
    rows = [
        [Panel(each["title"], torch.tensor(each["weights"]), *tokens) for each in row]
        for row in data["rows"]
    ]
    return draw_panels(rows, title=data["title"], axis_names=("target", "source"), theme="light")


def compare(data: Any) -> Figure:
    """Draw learning curves, BLEU and speed of several models."""
    return comparison_figure(data["groups"], data["results"])


def loss(data: Any) -> Figure:
    """Draw the learning curves of a run."""
    return plots.learning_curves(data["metrics"])


def lengths(data: Any) -> Figure:
    """Draw time and memory of attention against the length, with logarithmic axes."""
    results = data["results"]
    figure = new_figure(10.4, 6.4)
    grid = figure.subplots(2, 3)
    panels = [(0, 0, "forward", "seconds"), (0, 1, "training", "seconds"),
              (0, 2, "decoding", "seconds"), (1, 0, "forward", "megabytes"),
              (1, 1, "training", "megabytes")]  # fmt: skip
    titles = {"forward": "forward pass", "training": "training: forward and backward",
              "decoding": "one decoding step"}  # fmt: skip
    labels = {"seconds": "milliseconds", "megabytes": "peak memory (MB)"}
    for row, column, kind, quantity in panels:
        axes = grid[row][column]
        plots.style(axes, "length", labels[quantity])
        for number, name in enumerate(LENGTH_LINES):
            chosen = [
                each for each in results if (each["implementation"], each["kind"]) == (name, kind)
            ]
            unit = 1e3 if quantity == "seconds" else 1.0
            options: dict[str, Any] = {"label": name}
            if name.startswith("minimum"):
                options |= {"color": plots.MUTED, "marker": "", "linewidth": 1.2, "zorder": 1}
                options["linestyle"] = ":" if "window" in name else "--"
            positions = [each["length"] for each in chosen]
            values = [unit * statistics.median(each[quantity]) for each in chosen]
            plots.plot_line(axes, positions, values, number, **options)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter("{x:,g}")
        ticks = sorted({each["length"] for each in results})[::2]
        axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks])
        axes.set_title(titles[kind] if row == 0 else f"memory, {kind}", fontsize=10)
    grid[1][2].axis("off")
    handles, names = grid[0][0].get_legend_handles_labels()
    grid[1][2].legend(handles, names, loc="center left", frameon=False)
    return figure


LENGTH_LINES = (
    "torch",
    "x-transformers",
    "ours",
    "ours, window 256",
    "ours, packed documents",
    "window 256, stored mask",
    "minimum",
    "minimum, window 256",
)
"""The contestants of ``benchmarks/lengths.py`` that the picture shows."""


def pretrain_encoder(data: Any) -> Figure:
    """Draw the predictions of a pretrained encoder, its loss, and what few labels suffice for."""
    figure: Figure = draw_pretraining(data)
    return figure


def vision_transformer(data: Any) -> Figure:
    """Draw the patches of an image, the attention to them, and the encodings of their positions."""
    figure: Figure = draw_vision(data)
    return figure


DATA_FIGURES = (
    attention,
    attention_compared,
    compare,
    lengths,
    loss,
    pretrain_encoder,
    vision_transformer,
)

PICTURES: list[Picture] = [
    *map(BookFigure, draw.load()),
    *map(DataFigure, DATA_FIGURES),
    ReadmePicture(),
]


def main(names: list[str]) -> None:
    """Make pictures."""
    known: dict[str, Callable[[], None]] = {each.path.stem: each.make for each in PICTURES}
    known["explorer_page"] = explorer_page.main
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"error: no picture is named {unknown[0]!r}")
    for name in names or known:
        known[name]()


if __name__ == "__main__":
    main(sys.argv[1:])
