"""Figures: attention as matplotlib draws it, for a paper or a notebook."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from transformer_blocks._checks import check_size
from transformer_blocks.explorer.fonts import font_for


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

    Args:
        weights: Between 0 (black) and 1 (bright). Shape (L, S).
        queries: The L tokens that look.
        keys: The S tokens that are looked at.
        hidden: Which cells a mask hides; they are hatched. Boolean, shape (L, S).
        title: Above it.
        axes: Where to draw; axes of matplotlib. Without, a figure is made.

    Returns:
        The figure, a ``matplotlib.figure.Figure``: show it in a notebook, or ``savefig`` it.

    Raises:
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

    axes.imshow(weights.detach().float().cpu().numpy(), cmap="magma", vmin=0.0, vmax=1.0)
    axes.set_title(title, fontproperties=font, fontsize=10, parse_math=False)
    axes.set_xticks(range(len(keys)), keys, fontproperties=font, rotation=90, parse_math=False)
    axes.set_yticks(range(len(queries)), queries, fontproperties=font, parse_math=False)
    axes.tick_params(length=0)
    if hidden is not None:
        for row, column in hidden.cpu().nonzero().tolist():
            corner = column - 0.5, row - 0.5
            axes.add_patch(
                Rectangle(corner, 1, 1, fill=False, hatch="////", edgecolor="#888888", linewidth=0)
            )


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
    if hidden is not None and tuple(hidden.shape) != size:
        raise ValueError(f"hidden must have shape (L, S) = {size}, got {tuple(hidden.shape)}")
    if not bool(weights.isfinite().all()):
        raise ValueError("weights must be finite, got NaN or infinity")


def new_figure(width: float, height: float) -> Any:
    """Make a figure of its own, in inches: no window, no global state."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def panel_size(queries: Sequence[str], keys: Sequence[str]) -> tuple[float, float]:
    """Find the size in inches that shows so many tokens."""
    return max(2.6, 0.34 * len(keys) + 1.2), max(2.2, 0.30 * len(queries) + 1.2)


def add_colour_bar(figure: Any) -> None:
    """Say beside the panels which colour is which weight."""
    image = figure.axes[0].images[0]
    figure.colorbar(image, ax=figure.axes, label="weight", shrink=0.6)
