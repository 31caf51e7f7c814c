"""Plots: one style for all figures, and PNG files written atomically."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

from common.files import write_atomically
from transformer_blocks.explorer import plot_attention
from transformer_blocks.explorer.fonts import font_for
from transformer_blocks.explorer.plots import add_colour_bar, new_figure, panel_size

LARGEST = 2**16 - 1  # pixels on a side that matplotlib can draw


def save(figure: Figure, path: Path) -> None:
    """Write a figure as a PNG file, atomically."""
    content = io.BytesIO()
    dpi = min(150.0, LARGEST / max(figure.get_size_inches()))
    figure.savefig(content, format="png", dpi=dpi)
    write_atomically(path, content.getvalue())


def style(axes: Axes, xlabel: str, ylabel: str) -> None:
    """Label both axes, and draw a light grid, and remove the upper and right border."""
    axes.set_xlabel(xlabel)
    axes.set_ylabel(ylabel)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


class AttentionMap(NamedTuple):
    """The attention weights of one head over one sequence.

    Attributes:
        title: Name of the layer and head.
        weights: Attention weights, of shape (L, S).
        queries: The L query tokens.
        keys: The S key tokens.
    """

    title: str
    weights: Tensor
    queries: Sequence[str]
    keys: Sequence[str]


def plot_attention_grid(rows: Sequence[Sequence[AttentionMap]], path: Path, *, title: str) -> None:
    """Draw attention maps in a grid, for example a row for each layer and a column for each head.

    Args:
        rows: The maps of each row of the grid.
        path: The PNG file to write.
        title: The title above the figure.
    """
    columns = max(map(len, rows))
    sizes = [panel_size(each.queries, each.keys) for row in rows for each in row]
    width, height = (max(size) for size in zip(*sizes, strict=True))
    figure = new_figure(width * columns, height * len(rows) + 0.5)
    for number, row in enumerate(rows):
        for column, each in enumerate(row):
            axes = figure.add_subplot(len(rows), columns, number * columns + column + 1)
            plot_attention(each.weights, each.queries, each.keys, title=each.title, axes=axes)
    add_colour_bar(figure)
    figure.suptitle(title, fontproperties=font_for(title), fontsize=12, parse_math=False)
    save(figure, path)
