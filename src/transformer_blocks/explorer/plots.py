"""Figures: attention maps drawn by matplotlib, for a paper or a notebook."""

from typing import Annotated, Any

from torch import Tensor

from transformer_blocks._contracts import Mask, Size, Vectors, checked, one_of
from transformer_blocks.explorer.checks import Text, Tokens, check_weights
from transformer_blocks.explorer.packages import check_packages
from transformer_blocks.explorer.style import PALETTES, Theme

KnownTheme = Annotated[Theme, one_of(*PALETTES)]


@checked
def plot_attention(
    weights: Annotated[Tensor, Vectors("L S")],
    queries: Tokens,
    keys: Tokens,
    *,
    mask: Mask | None = None,
    title: Text = "",
    axis_names: tuple[Text, Text] = ("query", "key"),
    theme: KnownTheme = "light",
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
        mask: Boolean mask of shape (L, S), where True hides; masked cells are grey and
            hatched.
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
        TypeError: If an argument is of another type, or ``mask`` is not boolean.
        ValueError: If shapes do not fit, a weight is not finite, or ``theme`` is unknown.
    """
    _check(weights, queries, keys, mask)
    from transformer_blocks.explorer import panels

    panel = panels.Panel("" if axes is None else title, weights, queries, keys, mask)
    if axes is None:
        return panels.draw_panels([[panel]], title=title, axis_names=axis_names, theme=theme)
    style = panels.make_style([panel], "", axis_names, theme)
    image = panels.draw_panel(axes, panel, style, style.axis_names)
    panels.label_colour_bar(axes.figure.colorbar(image, ax=axes), style)
    return axes.figure


@checked
def plot_heads(
    weights: Annotated[Tensor, Vectors("H L S")],
    queries: Tokens,
    keys: Tokens,
    *,
    mask: Mask | None = None,
    title: Text = "",
    axis_names: tuple[Text, Text] = ("query", "key"),
    theme: KnownTheme = "light",
    columns: Size = 3,
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
        TypeError: If an argument is of another type, or ``mask`` is not boolean.
        ValueError: If shapes do not fit, a weight is not finite, or ``theme`` is unknown.
    """
    _check(weights, queries, keys, mask)
    from transformer_blocks.explorer.panels import Panel, draw_panels

    maps = [("mean of the heads", weights.float().mean(0))]
    maps += [(f"head {number}", table) for number, table in enumerate(weights)]
    panels = [Panel(name, table, queries, keys, mask) for name, table in maps]
    rows = [panels[start : start + columns] for start in range(0, len(panels), columns)]
    return draw_panels(rows, title=title, axis_names=axis_names, theme=theme)


def _check(weights: Tensor, queries: Tokens, keys: Tokens, mask: Tensor | None) -> None:
    """Raise unless weights can be drawn: they fit, are finite, and matplotlib is installed."""
    check_weights("weights", weights, queries, keys, mask)
    if not bool(weights.isfinite().all()):
        raise ValueError("weights must be finite, got NaN or infinity")
    check_packages("a figure", "matplotlib", extra="plot")


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

    return PlainFigure(width, height)
