"""Style: the colours and markers of every picture, on pages and in figures.

Lines take the colours of Okabe and Ito (https://jfly.uni-koeln.de/color/), which colour-blind
readers can distinguish, and a marker each. Attention weights take one sequential map, whose
lightness changes in one direction only, so that a picture printed in grey shows the same order.
"""

from typing import Literal, NamedTuple

Theme = Literal["light", "dark"]

LINES = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#7f7f7f")
"""Colours of lines and of heads, in the order of use."""

MARKERS = "osD^vPX"
"""Markers of lines, in the order of use; one for each colour."""


class Palette(NamedTuple):
    """The colours of a picture with a light or a dark background.

    Attributes:
        background: The background, which is opaque.
        panel: Areas within a picture.
        text: Text and lines of text's importance.
        muted: Less important text, ticks and hatches.
        accent: What is selected.
        weights: The sequential map of attention weights, from zero to the largest.
        differences: The diverging map of differences, from negative over zero to positive.
    """

    background: str
    panel: str
    text: str
    muted: str
    accent: str
    weights: tuple[str, ...]
    differences: tuple[str, ...]


PALETTES: dict[Theme, Palette] = {
    "light": Palette(
        background="#ffffff",
        panel="#f4f5f8",
        text="#1a1c22",
        muted="#555b68",
        accent="#c2410c",
        weights=("#ffffff", "#d3e3f5", "#8fbde6", "#3b82c4", "#0f4c8f", "#062450"),
        differences=("#9a3412", "#f0a97c", "#ffffff", "#8fbde6", "#0f4c8f"),
    ),
    "dark": Palette(
        background="#101217",
        panel="#191c23",
        text="#eceef3",
        muted="#a9b0bd",
        accent="#ffb454",
        weights=("#101217", "#12304f", "#17568c", "#3b8bcf", "#8cc4f2", "#e8f4ff"),
        differences=("#ffb088", "#8a3d1c", "#101217", "#17568c", "#8cc4f2"),
    ),
}
"""The two palettes, by theme."""
