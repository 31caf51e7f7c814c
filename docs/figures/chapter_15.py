"""Figures of chapter 15: the paths of two optimisers, and an outlier's effect on Adam."""

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cells import definitions
from style import BLUE, INK, MUTED, ORANGE, curves, figure, new_figure


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


@figure
def adam() -> Figure:
    """Draw the paths of gradient descent and of Adam, for a loss in two units of a weight."""
    made = new_figure(6.4, 3.2)
    optimiser = definitions("15_optimiser", until="by_hand = ")["Adam"]
    start, grid = torch.tensor([-1.6, 0.9]), torch.linspace(-2, 2, 81)
    for axes, curvature in zip(made.subplots(1, 2), (1.0, 20.0), strict=True):
        curvatures = torch.tensor([1.0, curvature])
        loss = (grid[:, None] ** 2 * curvature + grid**2) / 2
        axes.contour(grid, grid, loss, 8, colors=MUTED, linewidths=0.5)
        for name, make, color in (
            ("gradient descent, rate 0.095", lambda w: torch.optim.SGD([w], lr=0.095), ORANGE),
            ("Adam, rate 0.15", lambda w: optimiser([w], rate=0.15), BLUE),
        ):
            weights = start.clone().requires_grad_()
            step, path = make(weights), [start.tolist()]
            for _ in range(40):
                weights.grad = curvatures * weights.detach()
                step.step()
                path.append(weights.tolist())
            axes.plot(*zip(*path, strict=True), color=color, marker="o", ms=2.5, lw=1.2, label=name)
        axes.plot(0, 0, color=INK, marker="+", ms=9)
        title = "two weights alike" if curvature == 1 else "weight 2 counts 20 times"
        curves(axes, x="weight 1", y="weight 2" if curvature == 1 else "", title=title)
    made.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=2)
    return made
