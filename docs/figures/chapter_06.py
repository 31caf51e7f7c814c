"""Figures of chapter 6: heads."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from style import (
    INK,
    MUTED,
    ORANGE,
    figure_of,
    new_figure,
    weight_table,
)
from transformer_blocks import MultiHeadAttention

COLOURS, D_MODEL = 4, 24


def make_batch(count: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Make items as in the chapter; return vectors, answers, places of the friends, and names."""
    names = torch.rand(count, 6).argsort(dim=-1)
    order = torch.rand(count, 6, 6) + 2 * F.one_hot(names, 6)
    friends = order.argsort(dim=-1)[..., :2]
    colours = torch.randint(COLOURS, (count, 6))
    x = torch.zeros(count, 6, D_MODEL)
    x[..., :6] = F.one_hot(names, 6)
    x[..., 6:18] = F.one_hot(friends, 6).flatten(2)
    x[..., 18:22] = F.one_hot(colours, COLOURS)
    place_of = names.argsort(dim=-1)[:, None].expand(-1, 6, -1)
    places = place_of.gather(2, friends)
    answers = colours[:, None].expand(-1, 6, -1).gather(2, places)
    return x, answers, places, names


def train(heads: int) -> MultiHeadAttention:
    """Train a layer as in the chapter."""
    torch.manual_seed(0)
    layer = MultiHeadAttention(D_MODEL, heads)
    optimizer = torch.optim.Adam(layer.parameters(), lr=1e-2)
    for _ in range(400):
        x, answers, _, _ = make_batch(64)
        logits = layer(x, x, x)[..., : 2 * COLOURS].unflatten(-1, (2, -1))
        loss = F.cross_entropy(logits.flatten(0, 2), answers.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return layer


def weights_of_heads() -> dict[str, Any]:
    """Compute the weights of one head and of two heads for the same six items."""
    one, two = train(1), train(2)
    torch.manual_seed(3)
    x, _, places, names = make_batch(1)
    with torch.no_grad():
        tables = [*one.attention_weights(x, x)[0], *two.attention_weights(x, x)[0]]
    return {
        "names": names[0].tolist(),
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
