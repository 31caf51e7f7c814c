"""Figures of chapter 13: choosing words."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from cells import definitions
from style import (
    BLUE,
    INK,
    MUTED,
    ORANGE,
    PANEL,
    arrow,
    box,
    canvas,
    curves,
    figure,
    new_figure,
    note,
)

TREE = {"a": (0.6, {"cat": 0.4, "dog": 0.3, "bird": 0.3}), "the": (0.4, {"cat": 0.9, "dog": 0.1})}


@figure
def beam_tree() -> Figure:
    """Draw the hypotheses of the chapter's model, and which of them two beams keep."""
    made, axes = canvas(10, 5.6)
    box(axes, 0.3, 2.45, 1.2, 0.7, "start")
    y = 0.35
    for word, (first, following) in TREE.items():
        height = len(following)
        middle = y + height * 0.5 - 0.5 + 0.35
        box(axes, 3.0, middle - 0.35, 1.9, 0.7, f"{word}   {first:g}", color=BLUE, alpha=0.35)
        arrow(axes, (1.55, 2.8), (2.95, middle))
        for noun, probability in following.items():
            score = first * probability
            kept = noun == "cat"
            color = BLUE if kept else PANEL
            text = f"{word} {noun}   {score:.2f}"
            box(axes, 6.4, y, 2.4, 0.7, text, color=color, alpha=0.35 if kept else 1)
            arrow(axes, (4.95, middle), (6.35, y + 0.35))
            y += 1.0
        y += 0.25
    note(axes, 9.35, 0.7, "greedy", color=ORANGE, size=10)
    note(axes, 9.35, 3.95, "best", color=INK, size=10)
    note(axes, 5.0, 5.42, "blue: kept by two beams")
    return made


@figure
def nucleus() -> Figure:
    """Draw which words after "to" top-p sampling draws from."""
    table, words = bigrams()
    row = table[words.index("to")]
    order = row.argsort(descending=True)[:12].tolist()
    made = new_figure(6.4, 2.8)
    axes: Axes = made.subplots()
    total = 0.0
    for place, token in enumerate(order):
        probability = row[token].item()
        inside = total < 0.5
        axes.add_patch(
            Rectangle(
                (place - 0.4, 0),
                0.8,
                probability,
                facecolor=BLUE if inside else "none",
                edgecolor=MUTED,
                hatch=None if inside else "////",
                lw=0.6,
            )
        )
        total += probability
    axes.set_xlim(-0.6, 11.6)
    axes.set_ylim(0, 1.15 * row[order[0]].item())
    axes.set_xticks(range(12), [words[token] for token in order], rotation=40, ha="right")
    curves(axes, x="", y="probability after “to”")
    return made


def bigrams() -> tuple[Tensor, list[str]]:
    """Return the chapter's table of following words, and its words."""
    chapter = definitions("13_choose_words", until="bigrams = ")
    return chapter["table"], chapter["words"]


@figure
def cache() -> Figure:
    """Draw which tokens are computed at each step, without and with a cache."""
    tokens = ["the", "cat", "eats", "fish", "."]
    made, axes = canvas(10, 4.6)
    for left, name, with_cache in (
        (1.1, "without a cache: 15", False),
        (5.9, "with a cache: 5", True),
    ):
        for column, token in enumerate(tokens):
            note(axes, left + 0.75 * column + 0.33, 0.35, token, color=INK, size=9)
        for row in range(5):
            y = 0.65 + 0.66 * row
            if not with_cache:
                note(axes, 0.5, y + 0.29, f"step {row + 1}", size=9)
            for column in range(row + 1):
                computed = column == row or not with_cache
                color = BLUE if computed else PANEL
                box(
                    axes,
                    left + 0.75 * column,
                    y,
                    0.66,
                    0.56,
                    color=color,
                    alpha=0.5 if computed else 1,
                )
        note(axes, left + 1.8, 4.3, name, color=INK, size=10)
    note(axes, 8.7, 0.93, "blue: computed")
    note(axes, 8.9, 1.5, "grey: from the cache")
    return made
