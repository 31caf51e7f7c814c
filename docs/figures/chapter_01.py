"""Figures of chapter 1: one query reads a memory."""

import torch
from matplotlib.figure import Figure

from style import BLUE, figure, new_figure

WORDS = ["猫", "魚", "食べます"]
KEYS = torch.tensor([[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]])
QUERY = torch.tensor([2.0, 0.0, 0.0])


@figure
def temperature() -> Figure:
    """Draw the softmax of the chapter's scores at three temperatures."""
    made = new_figure(6.4, 2.2)
    panels = made.subplots(1, 3, sharey=True)
    for axes, degree in zip(panels, (0.2, 1.0, 5.0), strict=True):
        weights = (KEYS @ QUERY / degree).softmax(0).tolist()
        axes.bar(WORDS, weights, color=BLUE, width=0.6)
        for position, weight in enumerate(weights):
            axes.text(position, weight + 0.03, f"{weight:.2f}", ha="center", size=9)
        axes.set_title(f"temperature {degree:g}")
        axes.set_ylim(0, 1.15)
        axes.set_yticks([0, 0.5, 1])
    panels[0].set_ylabel("weight")
    return made
