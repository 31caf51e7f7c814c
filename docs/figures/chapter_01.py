"""Figures of chapter 1: one query reads a memory."""

import torch
from matplotlib.figure import Figure

from style import BLUE, GREEN, INK, ORANGE, PANEL, arrow, box, canvas, figure, new_figure, note

WORDS = ["猫", "魚", "食べます"]
KEYS = torch.tensor([[1.0, 0.0, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 1.0]])
VALUES = torch.tensor([[4.0, 4.0], [0.0, 1.0], [0.0, 0.0]])
QUERY = torch.tensor([2.0, 0.0, 0.0])


def vector(numbers: torch.Tensor) -> str:
    """Write a vector, with as few decimals as possible."""
    return "(" + ", ".join(f"{number:g}" for number in numbers.tolist()) + ")"


@figure
def one_query() -> Figure:
    """Draw the way from scores over weights to the weighted sum."""
    scores = KEYS @ QUERY
    weights = scores.softmax(0)
    output = weights @ VALUES
    made, axes = canvas(10, 4.9)
    columns = {"key": 1.9, "score": 3.9, "weight": 5.85, "value": 7.55}
    for name, x in columns.items():
        note(axes, x, 0.95, name, color=INK, size=10.5)
    note(axes, 2.9, 0.3, f"query {vector(QUERY)}", color=INK, size=10.5)
    for row, (word, key, score, weight, value) in enumerate(
        zip(WORDS, KEYS, scores.tolist(), weights.tolist(), VALUES, strict=True)
    ):
        y = 1.75 + row
        note(axes, 0.55, y, word, color=INK, size=11)
        box(axes, columns["key"] - 0.75, y - 0.3, 1.5, 0.6, vector(key), color=ORANGE, alpha=0.35)
        arrow(axes, (2.7, y), (3.5, y))
        box(axes, columns["score"] - 0.35, y - 0.3, 0.7, 0.6, f"{score:g}")
        arrow(axes, (4.3, y), (5.0, y))
        box(axes, 5.05, y - 0.3, 1.6, 0.6, color=PANEL)
        if weight > 0.05:
            box(axes, 5.05, y - 0.3, 1.6 * weight, 0.6, color=BLUE, alpha=0.45)
        note(axes, columns["weight"], y, f"{weight:.3f}", color=INK, size=10)
        box(axes, columns["value"] - 0.5, y - 0.3, 1.0, 0.6, vector(value), color=GREEN, alpha=0.35)
        arrow(axes, (8.1, y), (8.6, 2.75 + 0.12 * (row - 1)))
    box(
        axes, 8.65, 2.35, 1.25, 0.8, f"({output[0]:.2f},\n {output[1]:.2f})", color=GREEN, alpha=0.5
    )
    note(axes, 9.27, 2.1, "output", color=INK, size=10.5)
    note(axes, 3.1, 4.5, "1. dot products")
    note(axes, 5.3, 4.5, "2. softmax")
    note(axes, 8.3, 4.5, "3. weighted sum")
    return made


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
