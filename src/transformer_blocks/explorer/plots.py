"""Figures: attention maps drawn by matplotlib, for a paper or a notebook."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from transformer_blocks._checks import check_size
from transformer_blocks.explorer.packages import check_packages
from transformer_blocks.explorer.style import PALETTES, Theme

LARGEST_SIDE, LARGEST_AREA = 300.0, 2000.0  # inches; square inches


def plot_attention(
    weights: Tensor,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    mask: Tensor | None = None,
    title: str = "",
    axis_names: tuple[str, str] = ("query", "key"),
    theme: Theme = "light",
    axes: Any = None,
) -> Any:
    """Draw the attention map of one head: a row for each query, a column for each key.

    The colours of the weights range from zero to the largest weight, which the colour bar names.
    Labels have no markers of subwords. The figure grows with the number of tokens, up to the
    largest size that can be rendered. If labels would overlap, only some are shown; if cells are
    smaller than a pixel, the largest of several weights is drawn.

    Args:
        weights: Attention weights, of shape (L, S).
        queries: The L tokens of the queries, which label the rows.
        keys: The S tokens of the keys, which label the columns.
        mask: Boolean mask of shape (L, S), where True hides; masked cells are hatched, with a grey
            cover if they are small.
        title: Title of the figure.
        axis_names: The names of the rows' axis and of the columns' axis, for example "target" and
            "source" for a translator's cross-attention.
        theme: Colours for a light or a dark background: "light" or "dark".
        axes: Matplotlib axes to draw into; a new figure by default.

    Returns:
        The ``matplotlib.figure.Figure``: leave it as the last line of a notebook's cell, or call
        its ``savefig``.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
        TypeError: If ``mask`` is not boolean.
        ValueError: If shapes do not fit, or ``theme`` is unknown.
    """
    _check(weights, queries, keys, mask, theme, leading="")
    check_packages("a figure", "matplotlib", extra="plot")
    from transformer_blocks.explorer import panels

    panel = panels.Panel("", weights, queries, keys, mask)
    if axes is None:
        return panels.draw_panels([[panel]], title=title, axis_names=axis_names, theme=theme)
    panel = panel._replace(title=title)
    style = panels.make_style([panel], "", axis_names, theme)
    box, figure = axes.get_position(), axes.figure
    size = box.width * figure.get_figwidth(), box.height * figure.get_figheight()
    image = panels.draw_panel(axes, panel, style, size)
    panels.label_colour_bar(figure.colorbar(image, ax=axes), style)
    return figure


def plot_heads(
    weights: Tensor,
    queries: Sequence[str],
    keys: Sequence[str],
    *,
    mask: Tensor | None = None,
    title: str = "",
    axis_names: tuple[str, str] = ("query", "key"),
    theme: Theme = "light",
    columns: int = 3,
) -> Any:
    """Draw the mean of the attention maps of a layer, then the map of each head.

    All maps have the same colour scale, from zero to the largest weight of any head.

    Args:
        weights: Attention weights, of shape (H, L, S).
        queries: The L tokens of the queries, which label the rows.
        keys: The S tokens of the keys, which label the columns.
        mask: Boolean mask of shape (L, S), where True hides; masked cells are hatched.
        title: Title of the figure.
        axis_names: The names of the rows' axis and of the columns' axis.
        theme: Colours for a light or a dark background: "light" or "dark".
        columns: Largest number of panels side by side.

    Returns:
        The ``matplotlib.figure.Figure``.

    Raises:
        ModuleNotFoundError: If matplotlib is not installed.
        TypeError: If ``mask`` is not boolean.
        ValueError: If shapes do not fit, or ``theme`` is unknown.
    """
    check_size(columns=columns)
    _check(weights, queries, keys, mask, theme, leading="H, ")
    check_packages("a figure", "matplotlib", extra="plot")
    from transformer_blocks.explorer.panels import Panel, draw_panels

    maps = [("mean of the heads", weights.float().mean(0))]
    maps += [(f"head {number}", table) for number, table in enumerate(weights)]
    panels = [Panel(name, table, queries, keys, mask) for name, table in maps]
    rows = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    return draw_panels(rows, title=title, axis_names=axis_names, theme=theme)


def _check(
    weights: Tensor,
    queries: Sequence[str],
    keys: Sequence[str],
    mask: Tensor | None,
    theme: Theme,
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
    if not weights.numel():
        raise ValueError(f"weights must not be empty, got shape {tuple(weights.shape)}")
    if mask is not None and mask.dtype != torch.bool:
        raise TypeError(f"mask must be bool, where True hides a key, got dtype={mask.dtype}")
    if mask is not None and tuple(mask.shape) != size:
        raise ValueError(f"mask must have shape (L, S) = {size}, got {tuple(mask.shape)}")
    if not bool(weights.isfinite().all()):
        raise ValueError("weights must be finite, got NaN or infinity")
    if theme not in PALETTES:
        raise ValueError(f'theme must be "light" or "dark", got theme={theme!r}')


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
