"""Matplotlib figures in the style of all pictures; imported only where matplotlib is needed."""

import io
import math
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from transformer_blocks.explorer.style import LINES, MARKERS, PALETTES, Palette, Theme
from transformer_blocks.files import write_atomically

PAD = 0.08  # inches between the edge of a figure and what it shows
LARGEST_SIDE, LARGEST_AREA = 300.0, 2000.0  # inches; square inches


class PlainFigure(Figure):
    """A figure without a window or global state, which notebooks show as an image.

    Without this class, notebooks show the figures of ``pyplot`` only. The background is opaque.

    Args:
        width: Width of the figure in inches. A figure that could not be rendered is made smaller.
        height: Height of the figure in inches.
        theme: Whether the background is light or dark.
    """

    def __init__(self, width: float, height: float, theme: Theme = "light") -> None:
        background = PALETTES[theme].background
        layout = ConstrainedLayoutEngine(w_pad=PAD, h_pad=PAD)
        super().__init__(figsize=(1.0, 1.0), layout=layout, facecolor=background)
        FigureCanvasAgg(self)
        self.set_size(width, height)

    def set_size(self, width: float, height: float) -> float:
        """Set the size in inches, or a smaller one; return the factor that it is smaller by."""
        factor = min(
            1.0,
            LARGEST_SIDE / max(width, height),
            math.sqrt(LARGEST_AREA / (width * height)),
        )
        self.set_size_inches(width * factor, height * factor)
        return factor

    def _repr_png_(self) -> bytes:
        """Render the image that a notebook shows."""
        image = io.BytesIO()
        self.savefig(image, format="png")
        return image.getvalue()


def save_png(figure: Figure, path: Path, *, dpi: float) -> None:
    """Save a figure as a PNG file, atomically.

    Args:
        figure: The figure.
        path: The file. A device or a pipe is written to, not replaced.
        dpi: Pixels per inch.

    Raises:
        OSError: If the disk fails, or ``path`` is a symbolic link or a folder.
    """
    image = io.BytesIO()
    figure.savefig(image, format="png", dpi=dpi)
    write_atomically(path, image.getvalue())


def colour_map(colours: tuple[str, ...]) -> LinearSegmentedColormap:
    """Make the map that blends the colours of a palette's ``weights`` or ``differences``."""
    return LinearSegmentedColormap.from_list("style", colours)


def style_axes(axes: Axes, palette: Palette = PALETTES["light"]) -> None:
    """Give axes the colours and markers of the style; call it before lines are drawn.

    Args:
        axes: The axes of a diagram or an image.
        palette: The colours of a light or a dark background.
    """
    axes.set_facecolor(palette.background)
    axes.set_prop_cycle(color=LINES, marker=list(MARKERS))
    axes.tick_params(color=palette.muted, labelcolor=palette.text)
    axes.spines[:].set_edgecolor(palette.muted)
    for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
        text.set_color(palette.text)
