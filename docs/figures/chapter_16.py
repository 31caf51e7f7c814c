"""Figures of chapter 16: choosing words."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from torch import Tensor

from cells import definitions
from style import (
    BLUE,
    MUTED,
    curves,
    figure,
    new_figure,
)


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
    chapter = definitions("16_choose_words", until="bigrams = ")
    return chapter["table"], chapter["words"]
