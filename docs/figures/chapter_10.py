"""Figures of chapter 10: scores of six translators with their confidence intervals."""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cells import definitions
from style import BLUE, INK, ORANGE, curves, figure, new_figure


@figure
def intervals() -> Figure:
    """Draw BLEU of each translator with the middle 95 % of the draws of a bootstrap."""
    chapter = definitions("10_measure", until="draws = ")
    made = new_figure(6.4, 3.0)
    axes: Axes = made.subplots()
    for place, (name, rows) in enumerate(chapter["tensors"].items()):
        score = chapter["bleu_of"](rows).item()
        scores = chapter["bleu_of"](rows[chapter["draws"]]).sort().values.tolist()
        color, marker = (BLUE, "o") if name.startswith("one") else (ORANGE, "s")
        axes.plot([scores[25], scores[974]], [place] * 2, color=color, marker="|", lw=2, ms=8)
        axes.plot(score, place, color=color, marker=marker, ms=7)
        axes.text(score, place - 0.22, f"{score:.1f}", ha="center", va="bottom", size=9, color=INK)
    axes.set_yticks(range(len(chapter["tensors"])), chapter["tensors"])
    axes.set_ylim(5.5, -0.8)
    curves(axes, x="BLEU (line: the middle 95 % of the draws)", y="")
    return made
