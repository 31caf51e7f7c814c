"""Figures of chapter 9: before Transformers."""

import json
import re

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cells import LEARN
from style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    SKY,
    arrow,
    box,
    canvas,
    curves,
    figure,
    new_figure,
    note,
)

TOKENS = ["猫", "は", "魚", "を", "食べ", "ます"]


@figure
def paths() -> Figure:
    """Draw how the first token reaches the last position, with recurrence and with attention."""
    made, axes = canvas(10, 5.9)
    for top, name in ((0.2, "recurrent"), (3.2, "attention")):
        note(axes, 0.75, top + 0.85 if top < 1 else top + 1.95, name, color=INK, size=10.5)
        for column, token in enumerate(TOKENS):
            x = 1.7 + 1.37 * column
            box(axes, x, top + 1.6, 1.1, 0.65, token, color=GREEN, alpha=0.35, size=11)
            if top < 1:
                box(
                    axes,
                    x,
                    top + 0.5,
                    1.1,
                    0.65,
                    f"state {column + 1}",
                    color=ORANGE,
                    alpha=0.4,
                    size=9.5,
                )
                arrow(axes, (x + 0.55, top + 1.6), (x + 0.55, top + 1.17))
                if column:
                    arrow(
                        axes, (x - 0.26, top + 0.82), (x - 0.02, top + 0.82), color=ORANGE, width=2
                    )
            else:
                end = 1.7 + 1.37 * 5 + 0.55
                if not column:
                    box(axes, end - 0.55, top + 0.1, 1.1, 0.65, "output", color=SKY, alpha=0.5)
                arrow(
                    axes, (x + 0.55, top + 1.6), (end - 0.5 + 0.1 * column, top + 0.78), color=BLUE
                )
    return made


@figure
def copying() -> Figure:
    """Draw the recorded accuracies of the copying task."""
    recorded = json.loads((LEARN / "recorded" / "09_before_transformers.json").read_text("utf-8"))
    (entry,) = recorded.values()
    rows = [numbers_of(line) for line in entry["output"].splitlines()[1:]]
    lengths = [row[0] for row in rows]
    made = new_figure(6.4, 3.0)
    axes: Axes = made.subplots()
    for name, first in (("fixed vector", 1), ("attention", 3)):
        pairs = [row[first : first + 2] for row in rows]
        means = [sum(pair) / 2 for pair in pairs]
        (line,) = axes.plot(lengths, means, label=name)
        low, high = [min(pair) for pair in pairs], [max(pair) for pair in pairs]
        axes.fill_between(lengths, low, high, color=line.get_color(), alpha=0.25, lw=0)
    axes.axhline(1 / 12, color="#020202", ls=":", marker="", label="a guess")
    axes.set_ylim(0, 1.05)
    axes.set_xticks(lengths)
    curves(axes, x="length of the sequence", y="correct symbols")
    axes.legend(loc=(0.62, 0.5))
    return made


def numbers_of(line: str) -> list[float]:
    """Read the numbers of a line."""
    return [float(number) for number in line.split()]


@figure
def translators() -> Figure:
    """Draw the BLEU of the four translators after 20 and 40 minutes, from the table of results."""
    text = (LEARN.parent / "results.md").read_text(encoding="utf-8")
    row = re.compile(r"^\| `(rnn-fixed|rnn-additive|rnn|transformer)` (.*)\|$", re.M)
    names = {
        "rnn-fixed": "LSTM,\nfixed vector",
        "rnn-additive": "LSTM, additive\nattention",
        "rnn": "LSTM, dot-product\nattention",
        "transformer": "Transformer",
    }
    scores = {}  # mean, lowest and highest of three seeds, after 20 and 40 minutes
    for name, cells in row.findall(text):
        found = [re.findall(r"[\d.]+", cells.split("|")[column]) for column in (5, 8)]
        scores[name] = [[float(number) for number in cell] for cell in found]
    assert list(scores) == list(names)
    made = new_figure(6.4, 3.0)
    axes: Axes = made.subplots()
    for offset, (label, color) in enumerate((("20 minutes", BLUE), ("40 minutes", ORANGE))):
        places = [place + 0.38 * (offset - 0.5) for place in range(4)]
        means = [pair[offset][0] for pair in scores.values()]
        axes.bar(places, means, width=0.36, color=color, label=label)
        for place, (mean, low, high) in zip(
            places, (pair[offset] for pair in scores.values()), strict=True
        ):
            axes.plot([place, place], [low, high], color="#020202", lw=1.2, marker="")
            axes.text(place, high + 0.5, f"{mean:.1f}", ha="center", size=9)
    axes.set_xticks(range(4), names.values(), size=9)
    axes.set_ylabel("BLEU")
    axes.set_ylim(0, 48)
    axes.legend(ncols=2, loc="upper left")
    return made
