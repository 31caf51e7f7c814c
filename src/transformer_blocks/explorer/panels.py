"""Panels: several attention maps in one figure, with one scale and labels that fit.

The size of each panel follows from its tokens, and the margins from the measured size of their
labels, so that nothing is cut off and nothing overlaps. Imported only where a figure is made.
"""

import math
import re
import textwrap
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.colorbar import Colorbar
from matplotlib.colors import to_rgb, to_rgba
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.image import AxesImage
from matplotlib.patches import PathPatch
from matplotlib.path import Path
from matplotlib.ticker import MaxNLocator
from matplotlib.transforms import Affine2D
from torch import Tensor

from transformer_blocks.explorer.figure import (
    LARGEST_AREA,
    LARGEST_SIDE,
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
SMALLEST_SCALE = 1e-3  # of a panel
STACK = 1.0  # lines of text from one character of an upright label to the next
SIZES = {"title": 12.0, "panel": 10.5, "name": 9.5, "token": 10.0, "bar": 9.0}  # points
UPRIGHT = {"ー": "｜", "～": "≀", "…": "︙", "「": "﹁", "」": "﹂", "（": "︵", "）": "︶"}
UPRIGHT_TEXT = re.compile(  # Chinese, Japanese and Korean, whose characters stand upright
    "["
    "\u2e80-\u303e"  # radicals, punctuation
    "\u3041-\u9fff"  # kana, ideographs
    "\uac00-\ud7a3"  # hangul
    "\uf900-\ufaff\U00020000-\U0003ffff"  # more ideographs
    "\uff01-\uff60"  # full-width forms
    "\u2026"  # the end of a shortened label
    "]+"
)


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
        theme: Whether the background is light or dark.
        font: The font of all texts.
        axis_names: The names of the rows' axis and of the columns' axis.
        largest: The weight at the upper end of the colour scale.
    """

    theme: Theme
    font: FontProperties
    axis_names: tuple[str, str]
    largest: float

    @property
    def palette(self) -> Palette:
        """The colours of the theme."""
        return PALETTES[self.theme]


def draw_panels(
    rows: Sequence[Sequence[Panel]], *, title: str, axis_names: tuple[str, str], theme: Theme
) -> Figure:
    """Draw attention maps in a grid, with one colour scale and one colour bar.

    Args:
        rows: The panels of each row of the grid.
        title: The title above the figure.
        axis_names: The names of the rows' axis and of the columns' axis.
        theme: Whether the background is light or dark.

    Returns:
        The figure.
    """
    title = encodable(title)
    rows = [[panel._replace(title=encodable(panel.title)) for panel in row] for row in rows]
    figure = PlainFigure(1.0, 1.0, theme)
    figure.set_layout_engine("none")
    style = make_style([panel for row in rows for panel in row], title, axis_names, theme)
    layout = _Layout(figure, rows, title, style)
    factor = figure.set_size(*layout.size)
    images = []
    for panel, box, has_names in layout.boxes():
        axes = figure.add_axes(layout.fraction(box))
        size = box.width * factor, box.height * factor
        images.append(draw_panel(axes, panel, style, size, has_names))
    bar = figure.colorbar(images[0], cax=figure.add_axes(layout.fraction(layout.bar)))
    label_colour_bar(bar, style)
    text = "\n".join(layout.lines)
    x, y = layout.title_left / layout.width, 1 - PAD / layout.height
    figure.text(x, y, text, va="top", **_text(style, "title"))
    return figure


def make_style(
    panels: Sequence[Panel], title: str, axis_names: tuple[str, str], theme: Theme
) -> Style:
    """Find the font and the colour scale that all panels of a figure share."""
    rows = {_shorten(label.text) for each in panels for label in token_labels(each.queries)}
    columns = {_shorten(label.text) for each in panels for label in token_labels(each.keys)}
    axis_names = encodable(axis_names[0]), encodable(axis_names[1])
    names = {title, *axis_names, *(panel.title for panel in panels)}
    font = font_for("".join(sorted(rows | names | set(map(_stack, columns)))))
    largest = max(float(panel.weights.max()) for panel in panels)
    return Style(theme, font, axis_names, largest)


class Box(NamedTuple):
    """A rectangle in inches, measured from the upper left corner of the figure."""

    left: float
    top: float
    width: float
    height: float


class _Layout:
    """Where everything in a figure of panels is, in inches.

    If the figure would be too large to be rendered, the panels are made smaller, until their
    labels alone fill it.
    """

    def __init__(
        self, figure: Figure, rows: Sequence[Sequence[Panel]], title: str, style: Style
    ) -> None:
        self.rows = rows
        self.columns = range(max(map(len, rows)))
        titles = [[_extent(figure, each.title, style, "panel")[0] for each in row] for row in rows]
        labels = [[_label_extents(figure, each, style) for each in row] for row in rows]
        name = _extent(figure, "query", style, "name")[1] + PAD / 2
        self.lefts = [
            self._widest(c, [[s[0] for s in row] for row in labels]) for c in self.columns
        ]
        self.lefts = [PAD + each for each in self.lefts]
        self.lefts[0] += name
        self.bottoms = [max(size[1] for size in row) + PAD for row in labels]
        for number in {self._lowest(column) for column in self.columns}:
            self.bottoms[number] += name
        self.tops = [0.26 if any(each.title for each in row) else PAD for row in rows]
        end = _extent(figure, _end_of_scale(style.largest), style, "bar")[0]
        bar_width = 2 * PAD + name + BAR + end + 2 * PAD
        scale = 1.0
        while True:
            self.sizes = [[_panel_size(each, scale) for each in row] for row in rows]
            self.widths = [
                max(self._widest(c, [[s[0] for s in row] for row in self.sizes]),
                    self._widest(c, titles))
                for c in self.columns
            ]  # fmt: skip
            self.heights = [max(size[1] for size in row) for row in self.sizes]
            self.width = sum(self.lefts) + sum(self.widths) + PAD * len(self.columns) + bar_width
            self.lines = _wrap(figure, title, style, self.width - 2 * PAD) if title else []
            self.head = len(self.lines) * 0.21 + (1.5 * PAD if title else 0.0)
            panels = sum(self.tops) + sum(self.heights) + sum(self.bottoms)
            bar = self.tops[0] + SHORTEST_BAR + PAD
            self.height = self.head + max(panels, bar) + PAD
            fits = math.prod(self.size) < LARGEST_AREA and max(self.size) < LARGEST_SIDE
            if fits or scale < SMALLEST_SCALE:
                break
            scale *= 0.9
        self.bar = Box(
            self.width - bar_width + 2 * PAD + name,
            self.head + self.tops[0],
            BAR,
            min(max(self.heights[0], SHORTEST_BAR), LONGEST_BAR),
        )
        longest = max(
            (_extent(figure, line, style, "title")[0] for line in self.lines), default=0.0
        )
        self.title_left = self.lefts[0] if self.lefts[0] + longest + PAD < self.width else PAD

    @property
    def size(self) -> tuple[float, float]:
        """The width and the height of the figure."""
        return self.width, self.height

    def fraction(self, box: Box) -> tuple[float, float, float, float]:
        """Compute the place of a box as matplotlib takes it: from below, in parts of the figure."""
        return (
            box.left / self.width,
            1 - (box.top + box.height) / self.height,
            box.width / self.width,
            box.height / self.height,
        )

    def boxes(self) -> Iterator[tuple[Panel, Box, tuple[bool, bool]]]:
        """Yield each panel, its box, and whether the names of its rows and columns are shown."""
        top = self.head
        for number, row in enumerate(self.rows):
            top += self.tops[number]
            left = 0.0
            for column, panel in enumerate(row):
                left += self.lefts[column]
                width, height = self.sizes[number][column]
                has_names = column == 0, number == self._lowest(column)
                yield panel, Box(left, top, width, height), has_names
                left += self.widths[column] + PAD
            top += self.heights[number] + self.bottoms[number]

    def _lowest(self, column: int) -> int:
        """Find the lowest row with a panel in a column."""
        return max(number for number, row in enumerate(self.rows) if column < len(row))

    def _widest(self, column: int, values: Sequence[Sequence[float]]) -> float:
        """Find the largest value of a column."""
        return max(row[column] for row in values if column < len(row))


def _panel_size(panel: Panel, scale: float) -> tuple[float, float]:
    """Compute the width and height of a panel in inches; cells are square where labels fit."""
    size = len(panel.keys), len(panel.queries)
    wished = min(LARGEST_CELL, max(CELL, FEW_TOKENS / max(1, *size)))
    width, height = (min(wished * scale, LARGEST_PANEL * scale / max(1, each)) for each in size)
    if min(width, height) >= LABEL:
        width = height = min(width, height)
    return width * max(1, size[0]), height * max(1, size[1])


def draw_panel(
    axes: Axes,
    panel: Panel,
    style: Style,
    size: tuple[float, float],
    has_names: tuple[bool, bool] = (True, True),
) -> AxesImage:
    """Draw an attention map into axes.

    Args:
        axes: The axes.
        panel: The attention map.
        style: What all panels of the figure share.
        size: Width and height of the axes in inches.
        has_names: Whether the names of the rows' axis and of the columns' axis are shown.

    Returns:
        The image of the weights, for a colour bar.
    """
    style_axes(axes, style.theme)
    (width, height), palette = size, style.palette
    row_step = label_step(len(panel.queries), height)
    column_step = label_step(len(panel.keys), width)
    are_small = max(row_step, column_step) > 1  # all labels would overlap
    extent = (-0.5, len(panel.keys) - 0.5, len(panel.queries) - 0.5, -0.5)
    aspect: Literal["auto", "equal"] = "auto" if are_small else "equal"
    table = _downsample(panel.weights.detach().float().cpu(), height, width)
    image = axes.imshow(
        table.numpy(),
        cmap=colour_map(palette.weights),
        vmin=0.0,
        vmax=style.largest if style.largest > 0 else 1.0,
        extent=extent,
        aspect=aspect,
    )
    axes.set_title(panel.title, loc="left", pad=5, **_text(style, "panel"))
    columns, rows = _labels(panel.keys, column_step), _labels(panel.queries, row_step)
    stacked = [_stack(text) for text in columns.values()]
    axes.set_xticks(list(columns), stacked, **_text(style, "token"))
    for label, text in zip(axes.get_xticklabels(), columns.values(), strict=True):
        label.set(rotation=0 if _is_upright(text) else 90, linespacing=STACK)
    axes.set_yticks(list(rows), list(rows.values()), **_text(style, "token"))
    axes.tick_params(length=0, pad=3)
    if has_names[0]:
        axes.set_ylabel(style.axis_names[0], labelpad=4, **_text(style, "name"))
    if has_names[1]:
        axes.set_xlabel(style.axis_names[1], labelpad=4, **_text(style, "name"))
    if not are_small:
        axes.set_xticks([column + 0.5 for column in range(len(panel.keys) - 1)], minor=True)
        axes.set_yticks([row + 0.5 for row in range(len(panel.queries) - 1)], minor=True)
        axes.grid(which="minor", color=palette.muted, alpha=0.18, linewidth=0.6)
        axes.tick_params(which="minor", length=0)
    if panel.mask is not None:
        _draw_mask(axes, panel.mask.cpu(), (height, width), extent, aspect, palette)
    return image


def _draw_mask(
    axes: Axes,
    mask: Tensor,
    size: tuple[float, float],
    extent: tuple[float, float, float, float],
    aspect: Literal["auto", "equal"],
    palette: Palette,
) -> None:
    """Hatch masked cells; where cells are small, hatch whole areas of them, over a grey cover."""
    if aspect == "auto":
        cover = _downsample(mask.float(), *size)
        colours = torch.empty(*cover.shape, 4)
        colours[..., :3] = torch.tensor(to_rgb(palette.muted))
        colours[..., 3] = 0.18 * cover  # opacity
        axes.imshow(colours.numpy(), extent=extent, aspect=aspect)
    areas = 1 - _downsample(1 - mask.float(), *size, cells=HATCHED)  # where all cells are masked
    boxes = []
    for row, values in enumerate(areas.bool().tolist()):
        start = 0
        for value, run in groupby(values):
            end = start + len(list(run))
            if value:
                box = Affine2D().scale(end - start, 1).translate(start, row)
                boxes.append(Path.unit_rectangle().transformed(box))
            start = end
    if boxes:
        scale = mask.shape[1] / areas.shape[1], mask.shape[0] / areas.shape[0]
        area = Path.make_compound_path(*boxes)
        area = area.transformed(Affine2D().scale(*scale).translate(-0.5, -0.5))
        face, edge = palette.panel if aspect == "equal" else "none", to_rgba(palette.muted, 0.55)
        patch = PathPatch(area, hatch=HATCH, linewidth=0.0, facecolor=face, edgecolor=edge)
        axes.add_patch(patch)


def label_colour_bar(bar: Colorbar, style: Style) -> None:
    """Label a colour bar: round weights, and the largest one at its upper end."""
    largest = style.largest if style.largest > 0 else 1.0
    ticks = [
        x
        for x in MaxNLocator(5, steps=[1, 2, 5, 10]).tick_values(0.0, largest)
        if x < 0.9 * largest
    ]
    digits = max(0, -math.floor(math.log10(ticks[1] * 1.0001)))
    texts = [f"{tick:.{digits}f}" for tick in ticks]
    bar.set_ticks([*ticks, largest], labels=[*texts, _end_of_scale(style.largest)])
    for label in bar.ax.get_yticklabels():
        label.set(**_text(style, "bar"))
    bar.ax.tick_params(length=2, color=style.palette.muted)
    bar.ax.yaxis.set_label_position("left")
    bar.set_label("attention weight", **_text(style, "name"))
    bar.outline.set(edgecolor=style.palette.muted, linewidth=0.6)


def _end_of_scale(largest: float) -> str:
    """Name the upper end of the colour scale."""
    if largest <= 0:
        return "1"
    digits = max(2, 1 - math.floor(math.log10(largest)))
    return f"{largest:.{digits}f} (largest)"


def label_step(count: int, inches: float) -> int:
    """Return the smallest n for which the labels of every n-th token do not overlap."""
    return max(1, math.ceil(count * LABEL / max(inches, LABEL) - 1e-6))


def _labels(tokens: Sequence[str], step: int) -> dict[int, str]:
    """Select the labels to show, without markers of subwords, and shorten long ones."""
    labels = token_labels(tokens)
    texts = {place: labels[place].text for place in range(0, len(tokens), step)}
    return {place: _shorten(text) for place, text in texts.items()}


def _shorten(text: str) -> str:
    """Shorten a label that would take too much space, and write it in one line."""
    text = text.replace("\n", LINE_END)
    longest = LONGEST_STACK if _is_upright(text) else LONGEST_LABEL
    return f"{text[: longest - 1]}…" if len(text) > longest else text


def _is_upright(text: str) -> bool:
    """Decide whether a column shows its label upright: a single character, or CJK throughout."""
    return len(text) == 1 or UPRIGHT_TEXT.fullmatch(text) is not None


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


def _extent(
    figure: Figure, text: str, style: Style, size: str, linespacing: float = 1.2
) -> tuple[float, float]:
    """Measure the width and height of a text in inches."""
    shown = figure.text(0, 0, text, linespacing=linespacing, **_text(style, size))
    box = shown.get_window_extent(figure.canvas.get_renderer())  # type: ignore[attr-defined]
    shown.remove()
    return box.width / figure.dpi, box.height / figure.dpi


def _label_extents(figure: Figure, panel: Panel, style: Style) -> tuple[float, float]:
    """Measure the widest label of a row and the highest label of a column, in inches."""
    width, height = _panel_size(panel, 1.0)
    rows = _labels(panel.queries, label_step(len(panel.queries), height)).values()
    columns = _labels(panel.keys, label_step(len(panel.keys), width)).values()
    widest = max((_extent(figure, each, style, "token")[0] for each in set(rows)), default=0.0)
    highest = max(
        (
            _extent(figure, _stack(each), style, "token", linespacing=STACK)[_is_upright(each)]
            for each in set(columns)
        ),
        default=0.0,
    )
    return widest + PAD / 2, highest + PAD / 2


def _wrap(figure: Figure, text: str, style: Style, width: float) -> list[str]:
    """Break a text into lines that are at most ``width`` inches wide, at spaces where possible."""
    share = 0.9 * width / _extent(figure, text, style, "title")[0]  # as letters differ in width
    return textwrap.wrap(text, max(1, int(share * len(text)))) if share < 0.9 else [text]


def _downsample(table: Tensor, height: float, width: float, *, cells: int = CELLS) -> Tensor:
    """Reduce a table to the number of cells that can be drawn, by taking maxima."""
    size = [
        max(1, min(length, math.ceil(cells * inches)))
        for length, inches in zip(table.shape, (height, width), strict=True)
    ]
    return table if list(table.shape) == size else F.adaptive_max_pool2d(table[None], size)[0]
