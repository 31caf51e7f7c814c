"""Panels: several attention maps in one figure, with one scale and labels that fit.

The size of each panel follows from its tokens, and the margins from the measured size of their
labels, so that nothing is cut off and nothing overlaps. Imported only where a figure is made.
"""

import math
import textwrap
from collections.abc import Sequence
from typing import Any, NamedTuple
from unicodedata import east_asian_width

import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.image import AxesImage
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Affine2D
from torch import Tensor

from transformer_blocks.explorer.figure import (
    PlainFigure,
    colour_map,
    style_axes,
)
from transformer_blocks.explorer.fonts import font_for
from transformer_blocks.explorer.style import PALETTES, Palette, Theme
from transformer_blocks.explorer.tokens import LINE_END, encodable, token_labels

LARGEST_PANEL = 24.0  # inches
LABEL = 0.15  # inches per label
CELL, LARGEST_CELL = 0.3, 0.45  # inches per cell
FEW_TOKENS = 2.2  # inches of a panel whose cells may be larger than CELL
CELLS = 100  # largest number of cells drawn per inch
HATCHED = 15  # largest number of cells per inch that are hatched one by one
HATCH = "////"
LONGEST_LABEL, LONGEST_STACK = 40, 20  # characters
PAD = 0.12  # inches between a text and what is beside it
BAR = 0.14  # inches, the width of the colour bar
SHORTEST_BAR, LONGEST_BAR = 1.4, 3.2  # inches
SMALLEST_SCALE = 0.1  # of a panel
STACK = 1.0  # lines of text from one character of an upright label to the next
SIZES = {"title": 12.0, "panel": 10.5, "name": 9.5, "token": 10.0, "bar": 9.0}  # points
UPRIGHT = {"ー": "｜", "～": "≀", "…": "︙", "「": "﹁", "」": "﹂", "（": "︵", "）": "︶"}


class Panel(NamedTuple):
    """The attention map of one head.

    Attributes:
        title: Title of the panel.
        weights: Attention weights, of shape (L, S).
        queries: The L tokens of the queries, which label the rows.
        keys: The S tokens of the keys, which label the columns.
        mask: Boolean mask of shape (L, S), where True hides; None without one.
    """

    title: str
    weights: Tensor
    queries: Sequence[str]
    keys: Sequence[str]
    mask: Tensor | None = None


class Style(NamedTuple):
    """What all panels of a figure share.

    Attributes:
        palette: The colours of the theme.
        font: The font of all texts.
        axis_names: The names of the rows' axis and of the columns' axis.
        largest: The weight at the upper end of the colour scale.
    """

    palette: Palette
    font: FontProperties
    axis_names: tuple[str, str]
    largest: float


def draw_panels(
    rows: Sequence[Sequence[Panel]], *, title: str, axis_names: tuple[str, str], theme: Theme
) -> Figure:
    """Draw attention maps in a grid, with one colour scale and one colour bar.

    If the figure would be too large to be rendered, it is drawn again with smaller panels, as small
    as their labels, whose size does not change, make necessary.

    Args:
        rows: The panels of each row of the grid.
        title: The title above the figure.
        axis_names: The names of the rows' axis and of the columns' axis.
        theme: Whether the background is light or dark.

    Returns:
        The figure.
    """
    style = make_style([panel for row in rows for panel in row], title, axis_names, theme)
    figure, scale = PlainFigure(1.0, 1.0, theme), 1.0
    figure.set_layout_engine("none")
    while (excess := _draw_grid(figure, rows, title, style, scale)) > 0 and scale > SMALLEST_SCALE:
        scale = max(SMALLEST_SCALE, 0.99 * scale * (1 - excess))
    return figure


def make_style(
    panels: Sequence[Panel], title: str, axis_names: tuple[str, str], theme: Theme
) -> Style:
    """Find the font and the colour scale that all panels of a figure share."""
    texts = [title, *axis_names]
    for panel in panels:
        texts += [panel.title, *_labels(panel.queries).values()]
        texts += map(_stack, _labels(panel.keys).values())
    axis_names = encodable(axis_names[0]), encodable(axis_names[1])
    largest = max(float(panel.weights.max()) for panel in panels)
    return Style(PALETTES[theme], font_for(encodable("".join(texts))), axis_names, largest)


def _draw_grid(
    figure: PlainFigure, rows: Sequence[Sequence[Panel]], title: str, style: Style, scale: float
) -> float:
    """Draw all panels and the colour bar, measure them with their labels, and place them.

    Returns:
        The part of the panels that the figure has no space for; 0 if its content fits.
    """
    figure.clear()
    figure.set_size(1.0, 1.0)  # until the axes are placed, a part of the figure is an inch

    def add_axes(width: float, height: float) -> Axes:
        return figure.add_axes((0.0, -height, width, height))  # the upper left corner at (0, 0)

    grid: dict[tuple[int, int], Axes] = {}
    for number, row in enumerate(rows):
        for column, panel in enumerate(row):
            axes = grid[number, column] = add_axes(*_panel_size(panel, scale))
            is_lowest = all(len(other) <= column for other in rows[number + 1 :])
            row_name, column_name = style.axis_names
            names = row_name if column == 0 else "", column_name if is_lowest else ""
            image = draw_panel(axes, panel, style, names)
    height = max(_panel_size(panel, scale)[1] for panel in rows[0])
    axes = grid[0, max(map(len, rows))] = add_axes(BAR, min(max(height, SHORTEST_BAR), LONGEST_BAR))
    label_colour_bar(figure.colorbar(image, cax=axes), style)
    inches = figure.dpi_scale_trans.inverted()
    boxes = [
        (place, (axes.get_tightbbox() or axes.bbox).transformed(inches))
        for place, axes in grid.items()
    ]
    lefts, width = _place([(column, -box.x0, box.x1) for (_, column), box in boxes])
    text = figure.text(0.0, 0.0, encodable(title), va="top", **_text(style, "title"))
    share = (width - lefts[0] - PAD) / max(text.get_window_extent().width / figure.dpi, PAD)
    if share < 1:  # break lines at spaces where possible; letters differ in width
        text.set_text("\n".join(textwrap.wrap(text.get_text(), int(0.9 * share * len(title)) or 1)))
    head = text.get_window_extent().height / figure.dpi + PAD if title else 0.0
    tops, height = _place([(row, box.y1, -box.y0) for (row, _), box in boxes], head)
    text.set_position((lefts[0] / width, 1 - PAD / height))
    for (number, column), axes in grid.items():
        place = axes.get_position().translated(lefts[column], height - tops[number])
        axes.set_position(place.transformed(Affine2D().scale(1 / width, 1 / height)))
    across = sum(_panel_size(panel, scale)[0] for panel in rows[0]) / width
    down = sum(_panel_size(row[0], scale)[1] for row in rows) / height
    return (1 - figure.set_size(width, height)) / ((across + down) / 2)


def _place(
    spaces: Sequence[tuple[int, float, float]], end: float = 0.0
) -> tuple[dict[int, float], float]:
    """Place the columns of a grid from left to right, or its rows from top to bottom, in inches.

    Args:
        spaces: For each axes, its column, the space before its left edge, and that behind it.
        end: Where the first column may begin.

    Returns:
        The place of the left edge of each column, and where the last column ends.
    """
    places = {}
    for column in sorted({column for column, _, _ in spaces}):
        places[column] = end + PAD + max(before for each, before, _ in spaces if each == column)
        end = places[column] + max(behind for each, _, behind in spaces if each == column) + PAD
    return places, end


def _panel_size(panel: Panel, scale: float) -> tuple[float, float]:
    """Compute the width and height of a panel in inches; cells are square where labels fit."""
    size = len(panel.keys), len(panel.queries)
    wished = min(LARGEST_CELL, max(CELL, FEW_TOKENS / max(size)))
    width, height = (min(wished * scale, LARGEST_PANEL * scale / each) for each in size)
    if min(width, height) >= LABEL:
        width = height = min(width, height)
    return width * size[0], height * size[1]


def draw_panel(
    axes: Axes,
    panel: Panel,
    style: Style,
    names: tuple[str, str],
) -> AxesImage:
    """Draw an attention map into axes.

    Args:
        axes: The axes.
        panel: The attention map.
        style: What all panels of the figure share.
        names: The names that are shown of the rows' axis and of the columns' axis.

    Returns:
        The image of the weights, for a colour bar.
    """
    style_axes(axes, style.palette)
    box, palette = axes.get_window_extent(), style.palette
    width, height = box.width / axes.figure.dpi, box.height / axes.figure.dpi
    row_step = label_step(len(panel.queries), height)
    column_step = label_step(len(panel.keys), width)
    are_small = max(row_step, column_step) > 1  # all labels would overlap
    right, bottom = len(panel.keys) - 0.5, len(panel.queries) - 0.5
    place: dict[str, Any] = {
        "extent": (-0.5, right, bottom, -0.5),
        "aspect": "auto" if are_small else "equal",
    }
    table = _downsample(panel.weights.detach().float().cpu(), height, width)
    top = style.largest if style.largest > 0 else 1.0
    image = axes.imshow(table.numpy(), cmap=colour_map(palette.weights), vmin=0, vmax=top, **place)
    axes.set_title(encodable(panel.title), loc="left", pad=5, **_text(style, "panel"))
    columns, rows = _labels(panel.keys, column_step), _labels(panel.queries, row_step)
    stacked = [_stack(text) for text in columns.values()]
    axes.set_xticks(list(columns), stacked, **_text(style, "token"))
    for label, text in zip(axes.get_xticklabels(), columns.values(), strict=True):
        label.set(rotation=0 if _is_upright(text) else 90, linespacing=STACK)
    axes.set_yticks(list(rows), list(rows.values()), **_text(style, "token"))
    axes.tick_params(length=0, pad=3)
    axes.set_ylabel(names[0], labelpad=4, **_text(style, "name"))
    axes.set_xlabel(names[1], labelpad=4, **_text(style, "name"))
    if not are_small:
        lines: dict[str, Any] = {"color": palette.muted, "alpha": 0.18, "linewidth": 0.6}
        axes.vlines([column + 0.5 for column in range(len(panel.keys) - 1)], -0.5, bottom, **lines)
        axes.hlines([row + 0.5 for row in range(len(panel.queries) - 1)], -0.5, right, **lines)
    if panel.mask is not None:
        _draw_mask(axes, panel.mask.cpu(), (height, width), palette, place)
    return image


def _draw_mask(
    axes: Axes, mask: Tensor, size: tuple[float, float], palette: Palette, place: dict[str, Any]
) -> None:
    """Cover masked cells in grey, and hatch them; where they are small, hatch areas of them."""
    cover = _downsample(mask.float(), *size)
    colours = colour_map((f"{palette.muted}00", f"{palette.muted}2e"))  # up to 18 % opaque
    axes.imshow(cover.numpy(), cmap=colours, vmin=0.0, vmax=1.0, **place)
    areas = 1 - _downsample(1 - mask.float(), *size, cells=HATCHED)  # where all cells are masked
    edges = F.pad(areas, (1, 1)).diff(dim=1)  # 1 where a run of masked areas begins, -1 behind it
    runs = zip((edges > 0).nonzero().tolist(), (edges < 0).nonzero().tolist(), strict=True)
    boxes = [
        Path.unit_rectangle().transformed(Affine2D().scale(end - start, 1).translate(start, row))
        for (row, start), (_, end) in runs
    ]
    if boxes:
        scale = mask.shape[1] / areas.shape[1], mask.shape[0] / areas.shape[0]
        area = Path.make_compound_path(*boxes)
        area = area.transformed(Affine2D().scale(*scale).translate(-0.5, -0.5))
        edge = to_rgba(palette.muted, 0.55)
        axes.add_patch(
            PathPatch(area, hatch=HATCH, linewidth=0.0, facecolor="none", edgecolor=edge)
        )


def label_colour_bar(bar: Colorbar, style: Style) -> None:
    """Label a colour bar: round weights, and the largest one at its upper end."""
    _, top = bar.mappable.get_clim()
    ticks = [x for x in MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(0, top) if x < 0.9 * top]
    texts = [f"{tick:.{_digits(ticks[1])}f}" for tick in ticks]
    end = f"{top:.{max(2, 1 + _digits(top))}f} (largest)" if style.largest > 0 else "1"
    bar.set_ticks([*ticks, top], labels=[*texts, end], **_text(style, "bar"))
    bar.ax.tick_params(length=2, color=style.palette.muted)
    bar.ax.yaxis.set_label_position("left")
    bar.set_label("attention weight", **_text(style, "name"))
    bar.outline.set(edgecolor=style.palette.muted, linewidth=0.6)


def _digits(number: float) -> int:
    """Return how many decimal places show one digit of a number that is not zero."""
    return max(0, -math.floor(math.log10(number * 1.0001)))


def label_step(count: int, inches: float) -> int:
    """Return the smallest n for which the labels of every n-th token do not overlap."""
    return max(1, math.ceil(count * LABEL / max(inches, LABEL) - 1e-6))


def _labels(tokens: Sequence[str], step: int = 1) -> dict[int, str]:
    """Select the labels to show, without markers of subwords, and shorten long ones."""
    labels = list(enumerate(token_labels(tokens)))[::step]
    return {place: _shorten(label.text) for place, label in labels}


def _shorten(text: str) -> str:
    """Shorten a label that would take too much space, and write it in one line."""
    text = text.replace("\n", LINE_END)
    longest = LONGEST_STACK if _is_upright(text) else LONGEST_LABEL
    return f"{text[: longest - 1]}…" if len(text) > longest else text


def _is_upright(text: str) -> bool:
    """Decide whether a column shows its label upright: one character, or wide ones such as CJK."""
    return len(text) == 1 or all(each == "…" or east_asian_width(each) in "WF" for each in text)


def _stack(text: str) -> str:
    """Write an upright label's characters one below the other, with their upright forms."""
    if not _is_upright(text):
        return text
    return "\n".join(UPRIGHT.get(character, character) for character in text)


def _text(style: Style, size: str) -> dict[str, Any]:
    """Return the properties of a text; a dollar in it begins no formula."""
    colour = style.palette.muted if size in ("name", "bar") else style.palette.text
    font = style.font.copy()
    font.set_size(SIZES[size])
    return {"fontproperties": font, "color": colour, "parse_math": False}


def _downsample(table: Tensor, height: float, width: float, *, cells: int = CELLS) -> Tensor:
    """Reduce a table to the number of cells that can be drawn, by taking maxima."""
    size = [
        max(1, min(length, math.ceil(cells * inches)))
        for length, inches in zip(table.shape, (height, width), strict=True)
    ]
    return table if list(table.shape) == size else F.adaptive_max_pool2d(table[None], size)[0]
