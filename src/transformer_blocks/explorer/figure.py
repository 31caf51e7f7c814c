"""A matplotlib figure without pyplot; imported only where matplotlib is needed."""

import io

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


class PlainFigure(Figure):
    """A figure without a window or global state, which notebooks show as an image.

    Without this class, notebooks show the figures of ``pyplot`` only.

    Args:
        width: Width of the figure in inches.
        height: Height of the figure in inches.
    """

    def __init__(self, width: float, height: float) -> None:
        super().__init__(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(self)

    def _repr_png_(self) -> bytes:
        """Render the image that a notebook shows."""
        image = io.BytesIO()
        self.savefig(image, format="png")
        return image.getvalue()
