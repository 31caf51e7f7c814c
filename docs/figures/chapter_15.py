"""Figures of chapter 15: an outlier's effect on Adam."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cells import definitions
from style import BLUE, ORANGE, curves, figure, new_figure


@figure
def spike() -> Figure:
    """Draw the sizes of Adam's steps after one large gradient, for two memories of the squares."""
    made = new_figure(6.4, 2.8)
    axes: Axes = made.subplots()
    chapter = definitions("15_optimiser", until="def steps_after")
    steps = chapter["steps_after"]
    for name, found, color in (
        ("after a gradient of 100", steps(100.0), ORANGE),
        ("clipped to 1", steps(1.0), BLUE),
    ):
        axes.plot(range(len(found)), found, color=color, marker="", lw=2, label=name)
    curves(axes, x="updates after the outlier", y="step / usual step")
    axes.set_ylim(0)
    axes.legend(loc="lower right")
    return made
