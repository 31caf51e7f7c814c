"""Figures of chapter 6: heads."""

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cells import definitions
from style import INK, MUTED, ORANGE, figure_of, new_figure, weight_table
from transformer_blocks import MultiHeadAttention


def weights_of_heads() -> dict[str, Any]:
    """Compute the weights of one head and of two heads for the same six items."""
    chapter = definitions("06_heads", until="def train")
    layers = []
    for heads in (1, 2):
        torch.manual_seed(0)
        layers.append(chapter["train"](MultiHeadAttention(chapter["D_MODEL"], heads)))
    torch.manual_seed(3)
    x, _, places = chapter["make_batch"](1)
    with torch.no_grad():
        tables = [table for layer in layers for table in layer.attention_weights(x, x)[0]]
    return {
        "names": x[0, :, :6].argmax(-1).tolist(),
        "places": places[0].tolist(),
        "tables": [table.tolist() for table in tables],
    }


@figure_of(weights_of_heads)
def heads_weights(
    names: list[int], places: list[tuple[int, int]], tables: Sequence[Sequence[Sequence[float]]]
) -> Figure:
    """Draw the weights of one head and of two heads for the same six items."""
    letters = ["ABCDEF"[name] for name in names]
    made = new_figure(6.4, 2.75)
    panels = made.subplots(1, 3)
    titles = ("one head", "two heads: head 0", "two heads: head 1")
    for axes, table, title in zip(panels, tables, titles, strict=True):
        weight_table(axes, table, queries=letters, keys=letters, title=title, show_numbers=False)
        for row, (first, second) in enumerate(places):
            for place, number in ((first, "1"), (second, "2")):
                axes.add_patch(
                    Rectangle(
                        (place - 0.42, row - 0.42), 0.84, 0.84,
                        facecolor="none", edgecolor=ORANGE, lw=1.6,
                    )
                )  # fmt: skip
                color = "white" if table[row][place] > 0.6 else INK
                axes.text(place, row, number, ha="center", va="center", size=9, color=color)
        axes.set_aspect("equal")
    panels[0].set_ylabel("item")
    made.supxlabel("orange: the item's friends 1 and 2", size=9.5, color=MUTED)
    return made
