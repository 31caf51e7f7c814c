"""Drawing: functions for the figures of all steps."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

FOLDER = Path("runs/ladder")


def new_figure(panels: int, *, width: float = 4.2, height: float = 3.6) -> tuple[Figure, Any]:
    """Make a figure with panels side by side.

    Args:
        panels: Number of panels.
        width: Width of a panel, in inches.
        height: Height of the figure, in inches.

    Returns:
        The figure and an array of its axes.
    """
    figure = Figure(figsize=(width * panels, height), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    return figure, axes


def heat_map(
    axes: Axes, weights: Tensor, *, queries: Sequence[str], keys: Sequence[str], title: str
) -> None:
    """Draw attention weights from 0 (dark) to 1 (bright), each with its value.

    Args:
        axes: Axes to draw into.
        weights: Attention weights, of shape (L, S).
        queries: Labels of the L rows.
        keys: Labels of the S columns.
        title: Title of the panel.
    """
    axes.imshow(weights.detach().numpy(), cmap="magma", vmin=0.0, vmax=1.0, aspect="auto")
    axes.set_xticks(range(len(keys)), keys)
    axes.set_yticks(range(len(queries)), queries)
    axes.tick_params(length=0)
    axes.set_title(title, fontsize=10)
    for row, values in enumerate(weights.tolist()):
        for column, value in enumerate(values):
            color = "black" if value > 0.6 else "white"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=color, size=8)


def tidy(axes: Axes, *, x: str, y: str) -> None:
    """Label the axes of a diagram, and remove its upper and right border."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def save(figure: Figure, name: str, folder: Path) -> None:
    """Save the figure of a step as a PNG file, and print its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    figure.savefig(path, dpi=120)
    print(f"\nFigure: {path}")
