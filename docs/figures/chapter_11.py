"""Figures of chapter 11: before Transformers."""

import re

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cells import LEARN, read_cells
from style import (
    BLUE,
    ORANGE,
    curves,
    figure,
    new_figure,
)


@figure
def copying() -> Figure:
    """Draw the recorded accuracies of the copying task."""
    [output] = [
        each.output for each in read_cells(LEARN / "11_before_transformers.py") if each.recorded
    ]
    rows = [[float(number) for number in line.split()] for line in output.splitlines()[1:]]
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
