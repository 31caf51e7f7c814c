"""The style of all figures of the book, and the shapes that several of them draw.

A figure is an SVG file without colours of its own for text and background: they are CSS variables,
which a page sets for its light or dark theme, with the colours of a white page as defaults. A shade
of an attention weight is a colour with an opacity, and therefore fits either theme. Lines take the
colours and markers of all pictures (see ``transformer_blocks.explorer.style``).
"""

import io
import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl
import matplotlib_fontja
from cycler import cycler
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import FancyArrowPatch, Rectangle

from transformer_blocks.explorer.style import LINES, MARKERS

# Placeholders that become CSS variables; no other colour is so close to black or white.
INK, MUTED, PANEL, GROUND = "#010101", "#020202", "#030303", "#fefefe"
VARIABLES = {
    INK: "var(--figure-ink, #24292f)",
    MUTED: "var(--figure-muted, #656d76)",
    PANEL: "var(--figure-panel, #eef1f4)",
    GROUND: "var(--figure-ground, #ffffff)",
}
COLORS = LINES
BLUE, ORANGE, GREEN, RED, PURPLE, SKY, _ = COLORS

matplotlib_fontja.japanize()
SETTINGS: dict[Any, Any] = {
    "axes.edgecolor": MUTED,
    "axes.facecolor": "none",
    "axes.labelcolor": INK,
    "axes.prop_cycle": cycler(color=COLORS) + cycler(marker=list(MARKERS)),
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": INK,
    "axes.titlesize": 11,
    "figure.facecolor": GROUND,
    "font.family": ["DejaVu Sans", "IPAexGothic"],
    "font.size": 10,
    "grid.color": MUTED,
    "grid.alpha": 0.25,
    "hatch.color": MUTED,
    "hatch.linewidth": 0.6,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "lines.markersize": 4,
    "svg.fonttype": "none",
    "text.color": INK,
    "xtick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.color": MUTED,
    "ytick.labelcolor": INK,
}

FIGURES: dict[str, Callable[[], Figure]] = {}
COMPUTATIONS: dict[str, Callable[[], dict[str, Any]]] = {}
RECORDED = Path(__file__).parents[1] / "images" / "data"


def figure(draw: Callable[[], Figure]) -> Callable[[], Figure]:
    """Register a function that draws a figure; the file gets the function's name."""
    FIGURES[draw.__name__] = draw
    return draw


def figure_of(
    compute: Callable[[], dict[str, Any]],
) -> Callable[[Callable[..., Figure]], Callable[..., Figure]]:
    """Register a function that draws the recorded result of a long computation.

    Each CPU rounds in its own way, and a training multiplies the difference. Therefore its numbers
    are computed by ``make pictures`` alone, and kept in ``docs/images/data``.

    Args:
        compute: Returns the numbers by name; the function that draws takes them as keyword
            arguments.
    """

    def register(draw: Callable[..., Figure]) -> Callable[..., Figure]:
        name = draw.__name__
        COMPUTATIONS[name] = compute
        FIGURES[name] = lambda: draw(**json.loads(recorded(name).read_text("utf-8"))["numbers"])
        return draw

    return register


def recorded(name: str) -> Path:
    """Return the file with the recorded numbers of a figure."""
    return RECORDED / f"{name}.json"


def record(name: str) -> None:
    """Compute the numbers of a figure, and record them with three decimals."""
    numbers = json.loads(json.dumps(COMPUTATIONS[name]()), parse_float=lambda x: round(float(x), 3))
    content = {
        "command": f"python docs/figures/pictures.py {name}",
        "origin": "the computation of this figure, as its chapter makes it",
        "numbers": numbers,
    }
    recorded(name).write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")


def as_svg(name: str) -> str:
    """Draw a figure, and return it as SVG with CSS variables instead of placeholders."""
    with mpl.rc_context({**SETTINGS, "svg.hashsalt": name}):
        file = io.StringIO()
        FIGURES[name]().savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    text = file.getvalue()
    for placeholder, variable in VARIABLES.items():
        text = text.replace(placeholder, variable)
    text = re.sub(r'width="[\d.]+pt" height="[\d.]+pt" ', "", text, count=1)
    return re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.S)


def new_figure(width: float = 6.4, height: float = 3.0) -> Figure:
    """Make an empty figure; a page shows it 6.4 inches wide, a telephone half as wide."""
    return Figure(figsize=(width, height), layout="constrained")


def arrow(
    axes: Axes,
    start: tuple[float, float],
    end: tuple[float, float],
    *,
    color: str = MUTED,
    width: float = 1.2,
    curve: float = 0.0,
) -> None:
    """Draw an arrow between two points."""
    axes.add_patch(
        FancyArrowPatch(
            start,
            end,
            arrowstyle="-|>",
            mutation_scale=9,
            color=color,
            lw=width,
            shrinkA=0,
            shrinkB=0,
            connectionstyle=f"arc3,rad={curve}",
        )
    )


def note(
    axes: Axes,
    x: float,
    y: float,
    text: str,
    *,
    color: str = MUTED,
    size: float = 9,
    **options: Any,
) -> None:
    """Write a text, centred at a point unless told otherwise."""
    axes.text(x, y, text, **{"ha": "center", "va": "center", **options}, color=color, size=size)


def weight_table(
    axes: Axes,
    weights: Sequence[Sequence[float]],
    *,
    queries: Sequence[str],
    keys: Sequence[str],
    masked: Sequence[Sequence[bool]] | None = None,
    title: str = "",
    digits: int = 2,
    color: str = BLUE,
    show_numbers: bool = True,
) -> None:
    """Draw attention weights as a table: one row for each query, one column for each key.

    Args:
        axes: Axes to draw into.
        weights: Attention weights, of shape (L, S).
        queries: Labels of the L rows.
        keys: Labels of the S columns.
        masked: Whether a key is masked, of shape (L, S); masked cells are hatched.
        title: Title of the table.
        digits: Number of decimals.
        color: The colour of the weight 1; smaller weights are fainter.
        show_numbers: Whether to write the weight into each cell.
    """
    for row, values in enumerate(weights):
        for column, weight in enumerate(values):
            corner = (column - 0.5, row - 0.5)
            axes.add_patch(
                Rectangle(corner, 1, 1, facecolor=color, alpha=max(0.0, min(1.0, weight)), lw=0)
            )
            if masked is not None and masked[row][column]:
                axes.add_patch(Rectangle(corner, 1, 1, facecolor="none", hatch="////", lw=0))
            elif show_numbers:
                axes.text(
                    column,
                    row,
                    f"{weight:.{digits}f}",
                    ha="center",
                    va="center",
                    size=8.5,
                    color="white" if weight > 0.6 else INK,
                )
            axes.add_patch(Rectangle(corner, 1, 1, facecolor="none", edgecolor=MUTED, lw=0.4))
    axes.set_xlim(-0.5, len(keys) - 0.5)
    axes.set_ylim(len(queries) - 0.5, -0.5)
    axes.set_xticks(range(len(keys)), keys)
    axes.set_yticks(range(len(queries)), queries)
    axes.tick_params(length=0)
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    axes.spines[:].set_visible(False)
    axes.set_title(title, pad=8)


def curves(axes: Axes, *, x: str, y: str, title: str = "") -> None:
    """Name the axes of a diagram, and draw a faint grid."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_title(title)
    axes.grid(visible=True)
