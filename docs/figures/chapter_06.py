"""Figures of chapter 6: heads."""

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from style import (
    BLUE,
    GREEN,
    INK,
    MUTED,
    ORANGE,
    PURPLE,
    arrow,
    box,
    canvas,
    figure,
    figure_of,
    new_figure,
    note,
    weight_table,
)
from transformer_blocks import MultiHeadAttention

HEAD_COLORS = (BLUE, ORANGE, GREEN)
POSITION_COLORS = (BLUE, ORANGE, GREEN, PURPLE)
COLOURS, D_MODEL = 4, 24


def cell(axes: Axes, x: float, y: float, size: tuple[float, float], color: str, text: str) -> None:
    """Draw one cell of a table, with its upper left corner at (x, y)."""
    axes.add_patch(Rectangle((x, y), *size, facecolor=color, alpha=0.35, lw=0))
    axes.add_patch(Rectangle((x, y), *size, facecolor="none", edgecolor=MUTED, lw=0.6))
    axes.text(x + size[0] / 2, y + size[1] / 2, text, ha="center", va="center", size=9)


@figure
def split_heads() -> Figure:
    """Draw how a sequence is split into heads, and how their outputs are concatenated."""
    length, heads, d_k = 4, 3, 2
    numbers = torch.arange(length * heads * d_k).reshape(1, length, heads * d_k)
    parts = numbers.unflatten(-1, (heads, d_k)).transpose(1, 2)[0]  # (H, L, d_k)
    made, axes = canvas(10, 6.0)
    size = (0.36, 0.34)

    def table(x: float, y: float, *, primed: bool) -> None:
        for position, row in enumerate(numbers[0].tolist()):
            for feature, number in enumerate(row):
                corner = (x + feature * size[0], y + position * size[1])
                text = "" if primed else f"{number}"
                cell(axes, *corner, size, HEAD_COLORS[feature // d_k], text)

    table(0.9, 2.2, primed=False)
    note(axes, 0.9 + 3 * size[0], 1.9, "d = 6", color=INK, size=10)
    note(axes, 0.62, 2.2 + 2 * size[1], "L = 4", color=INK, size=10, rotation=90)
    note(axes, 0.9 + 3 * size[0], 3.95, "(B, L, d)", color=INK, size=10)
    for head in range(heads):
        y = 0.35 + 1.75 * head
        middle = y + 2 * size[1]
        for position, row in enumerate(parts[head].tolist()):
            for feature, number in enumerate(row):
                corner = (4.0 + feature * size[0], y + position * size[1])
                cell(axes, *corner, size, HEAD_COLORS[head], f"{number}")
        arrow(axes, (3.2, 2.88), (3.9, middle))
        arrow(axes, (4.85, middle), (5.15, middle))
        box(
            axes, 5.2, middle - 0.35, 1.35, 0.7, f"attention,\nhead {head}",
            color=HEAD_COLORS[head], alpha=0.35, size=9,
        )  # fmt: skip
        arrow(axes, (6.65, middle), (7.1, 2.88))
    note(axes, 4.0 + size[0], 0.12, "d_k = 2", color=INK, size=10)
    note(axes, 4.0 + size[0], 5.55, "(B, H, L, d_k)", color=INK, size=10)
    table(7.2, 2.2, primed=True)
    note(axes, 7.2 + 3 * size[0], 1.9, "concatenated", color=INK, size=10)
    note(axes, 7.2 + 3 * size[0], 3.95, "(B, L, d)", color=INK, size=10)
    note(axes, 9.68, 2.6, "$W^O$", color=INK, size=11)
    arrow(axes, (9.43, 2.88), (9.92, 2.88))
    return made


@figure
def wrong_split() -> Figure:
    """Draw what each of two heads holds, after a right and after a wrong split."""
    length, heads, d_k = 4, 2, 2
    names = torch.arange(length).repeat_interleave(heads * d_k).reshape(1, length, heads * d_k)
    features = torch.arange(heads * d_k).repeat(length).reshape(1, length, heads * d_k)

    def right(x: Tensor) -> Tensor:
        return x.unflatten(-1, (heads, d_k)).transpose(1, 2)[0]

    def wrong(x: Tensor) -> Tensor:
        return x.reshape(1, heads, length, d_k)[0]

    made, axes = canvas(10, 3.3)
    size = (0.72, 0.42)
    for start, title, split in (
        (0.4, "cut, then exchange L and H", right),
        (5.6, "reshape only", wrong),
    ):
        note(axes, start + 2.0, 0.3, title, color=INK, size=11)
        for head in range(heads):
            x = start + 2.3 * head
            note(axes, x + size[0], 0.8, f"head {head}", color=INK, size=10)
            held = zip(split(names)[head].tolist(), split(features)[head].tolist(), strict=True)
            for row, (positions, columns) in enumerate(held):
                for column, (position, feature) in enumerate(zip(positions, columns, strict=True)):
                    corner = (x + column * size[0], 1.05 + row * size[1])
                    text = f"$x_{{{position}}}[{feature}]$"
                    cell(axes, *corner, size, POSITION_COLORS[position], text)
    note(axes, 5.0, 3.05, "a colour for each position; x₁[2] is feature 2 of position 1", size=9.5)
    return made


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
