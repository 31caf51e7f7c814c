"""Figures of chapter 17: bits per byte of a text that no model has seen."""

import re

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cells import LEARN, read_cells
from style import BLUE, INK, MUTED, ORANGE, curves, figure, new_figure


@figure
def bits_per_byte() -> Figure:
    """Draw the recorded bits per byte of n-grams and of the two trained models."""
    cells = read_cells(LEARN / "17_your_own_gpt.py")
    text = "\n\n".join(each.output for each in cells if each.recorded)
    scores = {"nothing known": 8.0}
    scores |= {name: float(bits) for name, bits in re.findall(r"^(\d-grams) +(\S+)", text, re.M)}
    last = re.findall(r"^(bytes|subwords)\n(?:update.*\n)*update +\d+ +(\S+)", text, re.M)
    scores |= {f"GPT of {name}, 1 minute": float(bits) for name, bits in last}
    scores["GPT of subwords, 3 minutes"] = float(re.findall(r"^update +1700 +(\S+)", text, re.M)[0])
    made = new_figure(6.4, 2.9)
    axes: Axes = made.subplots()
    for place, (name, bits) in enumerate(scores.items()):
        color = ORANGE if "GPT" in name else BLUE if "grams" in name else MUTED
        axes.barh(place, bits, color=color, height=0.62)
        axes.text(
            bits + 0.1, place, f"{bits:.2f}" if bits < 8 else "8", va="center", size=9, color=INK
        )
    axes.set_yticks(range(len(scores)), scores)
    axes.invert_yaxis()
    axes.set_xlim(0, 8.8)
    curves(axes, x="bits per byte", y="")
    return made
