"""Figures: attention as matplotlib draws it, for a paper or a notebook."""

import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from transformer_blocks._checks import check_size
from transformer_blocks.explorer.fonts import font_for
from transformer_blocks.explorer.packages import check_packages

LARGEST_PANEL, LARGEST_SIDE, LARGEST_AREA = 24.0, 300.0, 2000.0  # inches; square inches
LABEL = 0.15  # inches that a label takes
CELLS = 100  # cells of a table that are drawn in an inch
LONGEST_LABEL = 40  # letters


def plot_attention(
    weights: Tensor,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    hidden: Tensor | None = None,
    title: str = "",
    axes: Any = None,
) -> Any:
    """Draw one head: a row for each token that looks, a column for each that is looked at.

    The figure grows with the number of tokens, up to a size that can be drawn. Where labels would
    overlap then, only some are shown; where cells are smaller than a pixel, the largest of several
    weights is.

    Args:
        weights: Between 0 (black) and 1 (bright). Shape (L, S).
        queries: The L tokens that look.
        keys: The S tokens that are looked at.
        hidden: Which cells a mask hides; they are hatched, or grey where cells are too small for
            that. Boolean, shape (L, S).
        title: Above it.
        axes: Where to draw; axes of matplotlib. Without, a figure is made.

    Returns:
        The figure, a ``matplotlib.figure.Figure``: leave it at the end of a notebook's cell, or
        ``savefig`` it.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
        TypeError: If ``hidden`` is not boolean.
        ValueError: If shapes do not fit.
    """
    _check(weights, queries, keys, hidden, leading="")
    if axes is None:
        width, height = panel_size(queries, keys)
        axes = new_figure(width, height).subplots()
    font = font_for("".join((*queries, *keys, title)))
    _draw(axes, weights, queries, keys, hidden, title, font)
    return axes.figure


def _draw(
    axes: Any,
    weights: Tensor,
    queries: Sequence[str],
    keys: Sequence[str],
    hidden: Tensor | None,
    title: str,
    font: Any,
) -> None:
    """Draw one head into axes."""
    from matplotlib.patches import Rectangle

    place, figure = axes.get_position(), axes.figure
    width, height = place.width * figure.get_figwidth(), place.height * figure.get_figheight()
    rows, columns = (_step(len(queries), height), _step(len(keys), width))
    are_small = max(rows, columns) > 1  # all labels would overlap
    options = {
        "extent": (-0.5, len(keys) - 0.5, len(queries) - 0.5, -0.5),
        "aspect": "auto" if are_small else "equal",
    }
    table = _drawable(weights.detach().float().cpu(), height, width)
    axes.imshow(table.numpy(), cmap="magma", vmin=0.0, vmax=1.0, **options)
    axes.set_title(title, fontproperties=font, fontsize=10, parse_math=False)
    shared = {"fontproperties": font, "parse_math": False}
    axes.set_xticks(*_labels(keys, columns), rotation=90, **shared)
    axes.set_yticks(*_labels(queries, rows), **shared)
    axes.tick_params(length=0)
    if hidden is None:
        return
    if are_small:
        cover = _drawable(hidden.cpu().float(), height, width)
        grey = torch.full((*cover.shape, 4), 128, dtype=torch.uint8)
        grey[..., 3] = 160 * cover  # opacity
        axes.imshow(grey.numpy(), **options)
        return
    for row, column in hidden.cpu().nonzero().tolist():
        corner = column - 0.5, row - 0.5
        axes.add_patch(
            Rectangle(corner, 1, 1, fill=False, hatch="////", edgecolor="#888888", linewidth=0)
        )


def _step(count: int, inches: float) -> int:
    """Find how many labels lie between two that are shown, so that none overlap."""
    return max(1, math.ceil(count * LABEL / max(inches, LABEL)))


def _labels(tokens: Sequence[str], step: int) -> tuple[range, list[str]]:
    """Choose the labels to show, and cut long ones."""
    places = range(0, len(tokens), step)
    texts = [tokens[place] for place in places]
    cut = [f"{text[: LONGEST_LABEL - 1]}…" if len(text) > LONGEST_LABEL else text for text in texts]
    return places, cut


def _drawable(table: Tensor, height: float, width: float) -> Tensor:
    """Reduce a table to the cells that can be seen; of several, the largest number stays."""
    size = [
        min(length, math.ceil(CELLS * inches))
        for length, inches in zip(table.shape, (height, width), strict=True)
    ]
    return table if list(table.shape) == size else F.adaptive_max_pool2d(table[None], size)[0]


def plot_heads(
    weights: Tensor,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    hidden: Tensor | None = None,
    title: str = "",
    columns: int = 3,
) -> Any:
    """Draw all heads of a layer, and the mean of them first.

    Args:
        weights: Shape (H, L, S).
        queries: The L tokens that look.
        keys: The S tokens that are looked at.
        hidden: Which cells a mask hides. Shape (L, S).
        title: Above it.
        columns: Panels side by side.

    Returns:
        The figure, a ``matplotlib.figure.Figure``.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
        TypeError: If ``hidden`` is not boolean.
        ValueError: If shapes do not fit.
    """
    check_size(columns=columns)
    _check(weights, queries, keys, hidden, leading="H, ")
    panels = [("mean of the heads", weights.float().mean(0))]
    panels += [(f"head {number}", table) for number, table in enumerate(weights, start=1)]
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    width, height = panel_size(queries, keys)
    figure = new_figure(width * columns, height * rows + 0.5)
    font = font_for("".join((*queries, *keys, title)))
    for number, (name, table) in enumerate(panels, start=1):
        axes = figure.add_subplot(rows, columns, number)
        _draw(axes, table, queries, keys, hidden, name, font)
    add_colour_bar(figure)
    if title:
        figure.suptitle(title, fontproperties=font, fontsize=12, parse_math=False)
    return figure


def _check(
    weights: Tensor,
    queries: Sequence[str],
    keys: Sequence[str],
    hidden: Tensor | None,
    *,
    leading: str,
) -> None:
    """Raise unless weights are numbers, and tables have the size of their labels."""
    size = len(queries), len(keys)
    if weights.dim() != 2 + bool(leading) or tuple(weights.shape[-2:]) != size:
        raise ValueError(
            f"weights must have shape ({leading}L, S) with L={size[0]} and S={size[1]} tokens, "
            f"got {tuple(weights.shape)}"
        )
    if hidden is not None and hidden.dtype != torch.bool:
        raise TypeError(f"hidden must be bool, got dtype={hidden.dtype}")
    if hidden is not None and tuple(hidden.shape) != size:
        raise ValueError(f"hidden must have shape (L, S) = {size}, got {tuple(hidden.shape)}")
    if not bool(weights.isfinite().all()):
        raise ValueError("weights must be finite, got NaN or infinity")


def new_figure(width: float, height: float) -> Any:
    """Make a figure of its own, in inches: no window, no global state.

    One that is too large to draw is made smaller.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
    """
    check_packages("a figure", "matplotlib", extra="plot")
    from transformer_blocks.explorer.figure import PlainFigure

    width, height = min(width, LARGEST_SIDE), min(height, LARGEST_SIDE)
    factor = min(1.0, math.sqrt(LARGEST_AREA / (width * height)))
    return PlainFigure(width * factor, height * factor)


def panel_size(queries: Sequence[str], keys: Sequence[str]) -> tuple[float, float]:
    """Find the size in inches that shows so many tokens."""
    width, height = max(2.6, 0.34 * len(keys) + 1.2), max(2.2, 0.30 * len(queries) + 1.2)
    return min(width, LARGEST_PANEL), min(height, LARGEST_PANEL)


def add_colour_bar(figure: Any) -> None:
    """Say beside the panels which colour is which weight."""
    image = figure.axes[0].images[0]
    figure.colorbar(image, ax=figure.axes, label="weight", shrink=0.6)
