"""Plots: one style for all figures, and PNG files written atomically."""

import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.files import write_atomically
from transformer_blocks.explorer.figure import style_axes
from transformer_blocks.explorer.plots import new_figure
from transformer_blocks.explorer.style import LINES, MARKERS, PALETTES

LARGEST = 2**16 - 1  # pixels on a side that matplotlib can draw
WIDTH = 1600  # pixels, so that a page that shows half as many is sharp on any display
MUTED = PALETTES["light"].muted
MOST_MARKERS = 25  # on a line
LOSSES = {"train_loss": "training", "validation_loss": "validation"}
SCORES = {
    "validation_bleu": "BLEU of a validation sample, greedy",
    "validation_accuracy": "accuracy of the validation texts",
    "validation_perplexity": "perplexity of the validation text",
}


def as_png(figure: Figure) -> bytes:
    """Render a figure as a PNG image, at least 1,600 pixels wide where it is not small."""
    content = io.BytesIO()
    width, height = figure.get_size_inches()
    dpi = min(max(110.0, WIDTH / width), 300.0, LARGEST / max(width, height))
    figure.savefig(content, format="png", dpi=dpi, metadata={"Software": None})
    return content.getvalue()


def save(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG file, atomically."""
    write_atomically(path, as_png(figure))


def style(axes: Axes, xlabel: str, ylabel: str) -> None:
    """Give axes the colours of all pictures, labels, a light grid, and two borders only."""
    style_axes(axes)
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.grid(color=MUTED, alpha=0.2, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)


def plot_line(
    axes: Axes, x: Sequence[float], y: Sequence[float], number: int, **options: Any
) -> None:
    """Draw the line with a number: each has a colour and a marker of its own."""
    shared = {
        "color": LINES[number % len(LINES)],
        "marker": MARKERS[number % len(MARKERS)],
        "markersize": 5,
        "markevery": 1 + len(x) // MOST_MARKERS,
        "linewidth": 1.6,
    }
    axes.plot(x, y, **{**shared, **options})


def learning_curves(rows: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw the losses of a training and the score of its validations; a row holds the metrics."""
    minutes = [row["minutes"] for row in rows]
    (score,) = (name for name in rows[0] if name.startswith("validation_") and "loss" not in name)
    figure = new_figure(7.8, 3.4)
    left, right = figure.subplots(1, 2)
    style(left, "minutes of training", "loss (nats)")
    style(right, "minutes of training", SCORES[score])
    for number, (key, name) in enumerate(LOSSES.items()):
        plot_line(left, minutes, [row[key] for row in rows], number, label=name)
    left.legend(frameon=False)
    plot_line(right, minutes, [row[score] for row in rows], 2, clip_on=False, zorder=3)
    for axes in (left, right):
        axes.set_xlim(left=0.0)
    right.set_ylim(bottom=0.0)
    return figure
