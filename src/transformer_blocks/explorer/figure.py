"""The figure that is drawn on; imported only where matplotlib is needed."""

import io

from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


class PlainFigure(Figure):
    """A figure without a window or any global state, which a notebook shows as a picture.

    Notebooks know how to show the figures of ``pyplot``; any other is to them an object without a
    picture.

    Args:
        width: In inches.
        height: In inches.
    """

    def __init__(self, width: float, height: float) -> None:
        super().__init__(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(self)

    def _repr_png_(self) -> bytes:
        """Draw the picture for a notebook."""
        picture = io.BytesIO()
        self.savefig(picture, format="png")
        return picture.getvalue()
