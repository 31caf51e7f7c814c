"""Figures: attention maps drawn by matplotlib, for a paper or a notebook."""

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
LABEL = 0.15  # inches per label
CELLS = 100  # largest number of cells drawn per inch
LONGEST_LABEL = 40  # characters


def plot_attention(
    weights: Tensor,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    mask: Tensor | None = None,
    title: str = "",
    axes: Any = None,
) -> Any:
    """Draw the attention map of one head: a row for each query, a column for each key.

    The figure grows with the number of tokens, up to the largest size that can be rendered. If
    labels would overlap, only some are shown; if cells are smaller than a pixel, the largest of
    several weights is drawn.

    Args:
        weights: Attention weights from 0 (black) to 1 (bright), of shape (L, S).
        queries: The L tokens of the queries, which label the rows.
        keys: The S tokens of the keys, which label the columns.
        mask: Boolean mask of shape (L, S), where True hides; masked cells are hatched, or grey if
            they are too small for that.
        title: Title of the panel.
        axes: Matplotlib axes to draw into; a new figure by default.

    Returns:
        The ``matplotlib.figure.Figure``: leave it as the last line of a notebook's cell, or call
        its ``savefig``.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
        TypeError: If ``mask`` is not boolean.
        ValueError: If shapes do not fit.
    """
    _check(weights, queries, keys, mask, leading="")
    if axes is None:
        width, height = panel_size(queries, keys)
        axes = new_figure(width, height).subplots()
    font = font_for("".join((*queries, *keys, title)))
    _draw(axes, weights, queries, keys, mask, title, font)
    return axes.figure


def _draw(
    axes: Any,
    weights: Tensor,
    queries: Sequence[str],
    keys: Sequence[str],
    mask: Tensor | None,
    title: str,
    font: Any,
) -> None:
    """Draw the attention map of one head into axes."""
    from matplotlib.patches import Rectangle

    box, figure = axes.get_position(), axes.figure
    width, height = box.width * figure.get_figwidth(), box.height * figure.get_figheight()
    row_step, column_step = _label_step(len(queries), height), _label_step(len(keys), width)
    are_small = max(row_step, column_step) > 1  # all labels would overlap
    options = {
        "extent": (-0.5, len(keys) - 0.5, len(queries) - 0.5, -0.5),
        "aspect": "auto" if are_small else "equal",
    }
    image = _downsample(weights.detach().float().cpu(), height, width)
    axes.imshow(image.numpy(), cmap="magma", vmin=0.0, vmax=1.0, **options)
    axes.set_title(title, fontproperties=font, fontsize=10, parse_math=False)
    shared = {"fontproperties": font, "parse_math": False}
    axes.set_xticks(*_labels(keys, column_step), rotation=90, **shared)
    axes.set_yticks(*_labels(queries, row_step), **shared)
    axes.tick_params(length=0)
    if mask is None:
        return
    if are_small:
        cover = _downsample(mask.cpu().float(), height, width)
        grey = torch.full((*cover.shape, 4), 128, dtype=torch.uint8)
        grey[..., 3] = 160 * cover  # opacity
        axes.imshow(grey.numpy(), **options)
        return
    for row, column in mask.cpu().nonzero().tolist():
        corner = column - 0.5, row - 0.5
        axes.add_patch(
            Rectangle(corner, 1, 1, fill=False, hatch="////", edgecolor="#888888", linewidth=0)
        )


def _label_step(count: int, inches: float) -> int:
    """Return the smallest n for which the labels of every n-th token do not overlap."""
    return max(1, math.ceil(count * LABEL / max(inches, LABEL)))


def _labels(tokens: Sequence[str], step: int) -> tuple[range, list[str]]:
    """Select the labels to show, and shorten long ones."""
    positions = range(0, len(tokens), step)
    texts = [tokens[position] for position in positions]
    shortened = [
        f"{text[: LONGEST_LABEL - 1]}…" if len(text) > LONGEST_LABEL else text for text in texts
    ]
    return positions, shortened


def _downsample(table: Tensor, height: float, width: float) -> Tensor:
    """Reduce a table to the number of cells that can be drawn, by taking maxima."""
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
    mask: Tensor | None = None,
    title: str = "",
    columns: int = 3,
) -> Any:
    """Draw the mean of the attention maps of a layer, then the map of each head.

    Args:
        weights: Attention weights from 0 to 1, of shape (H, L, S).
        queries: The L tokens of the queries, which label the rows.
        keys: The S tokens of the keys, which label the columns.
        mask: Boolean mask of shape (L, S), where True hides; masked cells are hatched.
        title: Title of the figure.
        columns: Largest number of panels side by side.

    Returns:
        The ``matplotlib.figure.Figure``.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
        TypeError: If ``mask`` is not boolean.
        ValueError: If shapes do not fit.
    """
    check_size(columns=columns)
    _check(weights, queries, keys, mask, leading="H, ")
    panels = [("mean of the heads", weights.float().mean(0))]
    panels += [(f"head {number}", table) for number, table in enumerate(weights, start=1)]
    columns = min(columns, len(panels))
    rows = -(-len(panels) // columns)
    width, height = panel_size(queries, keys)
    figure = new_figure(width * columns, height * rows + 0.5)
    font = font_for("".join((*queries, *keys, title)))
    for number, (name, table) in enumerate(panels, start=1):
        axes = figure.add_subplot(rows, columns, number)
        _draw(axes, table, queries, keys, mask, name, font)
    add_colour_bar(figure)
    if title:
        figure.suptitle(title, fontproperties=font, fontsize=12, parse_math=False)
    return figure


def _check(
    weights: Tensor,
    queries: Sequence[str],
    keys: Sequence[str],
    mask: Tensor | None,
    *,
    leading: str,
) -> None:
    """Raise unless weights are finite, and weights and mask have one row or column per label."""
    size = len(queries), len(keys)
    if weights.dim() != 2 + bool(leading) or tuple(weights.shape[-2:]) != size:
        raise ValueError(
            f"weights must have shape ({leading}L, S) with L={size[0]} and S={size[1]} tokens, "
            f"got {tuple(weights.shape)}"
        )
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(f"mask must be bool, where True hides a key, got dtype={mask.dtype}")
    if mask is not None and tuple(mask.shape) != size:
        raise ValueError(f"mask must have shape (L, S) = {size}, got {tuple(mask.shape)}")
    if not bool(weights.isfinite().all()):
        raise ValueError("weights must be finite, got NaN or infinity")


def new_figure(width: float, height: float) -> Any:
    """Create a figure without a window or global state; sizes that are too large are reduced.

    Args:
        width: Width in inches.
        height: Height in inches.

    Returns:
        A new ``matplotlib.figure.Figure``.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
    """
    check_packages("a figure", "matplotlib", extra="plot")
    from transformer_blocks.explorer.figure import PlainFigure

    width, height = min(width, LARGEST_SIDE), min(height, LARGEST_SIDE)
    factor = min(1.0, math.sqrt(LARGEST_AREA / (width * height)))
    return PlainFigure(width * factor, height * factor)


def panel_size(queries: Sequence[str], keys: Sequence[str]) -> tuple[float, float]:
    """Compute the width and height in inches of a panel with these labels."""
    width, height = max(2.6, 0.34 * len(keys) + 1.2), max(2.2, 0.30 * len(queries) + 1.2)
    return min(width, LARGEST_PANEL), min(height, LARGEST_PANEL)


def add_colour_bar(figure: Any) -> None:
    """Add a colour bar of the attention weights beside the panels."""
    image = figure.axes[0].images[0]
    figure.colorbar(image, ax=figure.axes, label="attention weight", shrink=0.6)
