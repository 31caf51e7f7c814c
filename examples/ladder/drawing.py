"""Drawing: what the pictures of these steps share."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from torch import Tensor

FOLDER = Path("runs/ladder")


def new_figure(panels: int, *, width: float = 4.2, height: float = 3.6) -> tuple[Figure, Any]:
    """Make a figure with a row of panels, sizes in inches."""
    figure = Figure(figsize=(width * panels, height), layout="constrained")
    axes = figure.subplots(1, panels, squeeze=False)[0]
    return figure, axes


def heat_map(
    axes: Axes, table: Tensor, *, rows: Sequence[str], columns: Sequence[str], title: str
) -> None:
    """Draw weights from 0 (dark) to 1 (bright), each with its number.

    Args:
        axes: Where to draw.
        table: Shape (rows, columns).
        rows: What looks.
        columns: What is looked at.
        title: Above it.
    """
    axes.imshow(table.detach().numpy(), cmap="magma", vmin=0.0, vmax=1.0, aspect="auto")
    axes.set_xticks(range(len(columns)), columns)
    axes.set_yticks(range(len(rows)), rows)
    axes.tick_params(length=0)
    axes.set_title(title, fontsize=10)
    for row, weights in enumerate(table.tolist()):
        for column, weight in enumerate(weights):
            color = "black" if weight > 0.6 else "white"
            axes.text(column, row, f"{weight:.2f}", ha="center", va="center", color=color, size=8)


def tidy(axes: Axes, *, x: str, y: str) -> None:
    """Label a diagram's axes and leave out what says nothing."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)


def save(figure: Figure, name: str, folder: Path) -> None:
    """Write the picture of a step and say where."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.png"
    figure.savefig(path, dpi=120)
    print(f"\nPicture: {path}")
