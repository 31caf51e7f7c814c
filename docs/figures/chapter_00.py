"""Figures of chapter 0: the map of the book, and the first attention weights."""

from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cells import definitions
from style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    PANEL,
    PURPLE,
    SKY,
    arrow,
    box,
    canvas,
    figure,
    figure_of,
    new_figure,
    note,
    weight_table,
)
from transformer_blocks import record_attention


@figure
def map() -> Figure:
    """Draw the parts of a translator, each with its chapter."""
    made, axes = canvas(10, 8.6)

    def part(
        x: float, y: float, text: str, chapter: str, color: str = PANEL, width: float = 3.4
    ) -> None:
        box(axes, x, y, width, 0.66, color=color, alpha=1.0 if color == PANEL else 0.35)
        note(axes, x + 0.14, y + 0.33, text, color=INK, size=9.5, ha="left")
        if chapter:
            note(
                axes,
                x + width - 0.14,
                y + 0.33,
                chapter,
                color=INK,
                size=9.5,
                ha="right",
            )

    left, right = 0.4, 5.7
    for x, name in ((left, "encoder"), (right, "decoder")):
        bottom = 5.55
        top = 3.0 if x == left else 1.75
        box(axes, x - 0.25, top, 3.9, bottom - top, color=PANEL, alpha=0.4)
        note(axes, x, top + 0.25, name, size=9.5, ha="left")
    part(left, 7.6, "猫は魚を食べます。", "", GREEN)
    part(right, 7.6, "the cat", "", GREEN)
    for x in (left, right):
        part(x, 6.75, "tokens", "11")
        part(x, 5.9, "embeddings, positions", "16, 7", PURPLE)
        arrow(axes, (x + 1.7, 7.6), (x + 1.7, 7.43))
        arrow(axes, (x + 1.7, 6.75), (x + 1.7, 6.58))
        arrow(axes, (x + 1.7, 5.9), (x + 1.7, 5.37))
    part(left, 4.7, "self-attention", "1–4, 6", ORANGE)
    part(left, 3.5, "feed-forward network", "8", SKY)
    part(right, 4.7, "causal self-attention", "5", ORANGE)
    part(right, 3.5, "cross-attention", "10", ORANGE)
    part(right, 2.3, "feed-forward network", "8", SKY)
    for x, y in ((left, 4.7), (left, 3.5), (right, 4.7), (right, 3.5), (right, 2.3)):
        note(axes, x + 3.26, y - 0.27, "add, norm  8", ha="right")
        if (x, y) != (left, 3.5):
            arrow(axes, (x + 1.7, y), (x + 1.7, y - 0.52))
    # The memory: from the top of the encoder to the cross-attention.
    axes.plot(
        [left + 1.7, left + 1.7, 4.9, 4.9],
        [3.5, 2.75, 2.75, 3.83],
        color="#020202",
        lw=1.2,
        marker="",
    )
    arrow(axes, (4.9, 3.83), (right - 0.02, 3.83))
    note(axes, 4.4, 2.53, "memory")
    arrow(axes, (right + 1.7, 1.78), (right + 1.7, 1.48))
    part(right, 0.8, "choose the next token", "13", BLUE)
    arrow(axes, (right + 1.7, 0.8), (right + 1.7, 0.5))
    note(axes, right + 1.7, 0.28, "eats", color=INK, size=11)
    part(left, 0.35, "train all of it", "12, 18", BLUE)
    part(left, 1.1, "measure, look inside", "17, 14", BLUE)
    part(left, 1.85, "before, and since 2017", "9, 15", BLUE)
    return made


def first_weights() -> dict[str, Any]:
    """Train chapter 0's model, and compute its cross-attention for the sentence of the book."""
    chapter = definitions("00_map")
    model, ours = chapter["model"], chapter["ours"]
    translation = ["the", "cat", "eats", "fish", "."]
    source, target = chapter["to_ids"]([(ours, translation)])
    with record_attention(model) as recorded, torch.no_grad():
        model(source, target[:, :-1])
    weights = recorded["blocks.decoder.layers.0.cross_attention"][0][0].mean(0)
    return {"weights": weights.tolist(), "queries": [*translation, "<eos>"], "keys": ours}


@figure_of(first_weights)
def first_attention(**table: Any) -> Figure:
    """Draw the cross-attention of chapter 0's model for the sentence of the book."""
    made = new_figure(5.2, 3.6)
    axes: Axes = made.subplots()
    weight_table(axes, **table)
    axes.set_xlabel("source")
    axes.set_ylabel("next target token")
    return made


@figure
def prologue() -> Figure:
    """Draw a translation in three steps: vectors, attention, the next word."""
    tokens = ["猫", "は", "魚", "を", "食べ", "ます", "。"]
    made, axes = canvas(10, 8.4)
    centres = [2.6 + 1.05 * place for place in range(len(tokens))]
    for top, name in ((0.3, "1  words become numbers"), (3.0, "2  words read each other")):
        note(axes, 0.2, top, name, color=INK, size=11, ha="left")
    for place, (x, token) in enumerate(zip(centres, tokens, strict=True)):
        note(axes, x, 0.85, token, color=INK, size=12)
        for row in range(4):
            alpha = 0.15 + 0.85 * ((5 * place + 3 * row + place * row) % 7) / 6
            box(axes, x - 0.3, 1.15 + 0.36 * row, 0.6, 0.3, color=BLUE, alpha=alpha)
        note(axes, x, 5.15, token, color=INK, size=12)
        width = {"猫": 5.0, "魚": 5.0}.get(token, 1.0)
        if token != "食べ":
            arrow(axes, (x, 4.85), (centres[4], 3.65), color=ORANGE, width=width)
    note(axes, centres[4], 3.4, "食べ", color=INK, size=12)
    note(axes, 0.2, 5.85, "3  the next word is chosen", color=INK, size=11, ha="left")
    note(axes, 2.2, 6.85, "the  cat  ?", color=INK, size=13)
    bars = (("eats", 0.8), ("sees", 0.1), ("buys", 0.06), ("fish", 0.02))
    for row, (word, share) in enumerate(bars):
        y = 6.2 + 0.48 * row
        note(axes, 5.1, y + 0.18, word, color=INK, size=10, ha="right")
        box(axes, 5.3, y, 4.2 * share, 0.36, color=GREEN, alpha=0.7)
    return made
