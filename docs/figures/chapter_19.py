"""Figures of chapter 19: a scaling law."""

from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cells import definitions
from style import BLUE, GREEN, INK, MUTED, curves, figure_of, new_figure, note


def sizes() -> dict[str, Any]:
    """Train the four sizes of the chapter with three seeds each."""
    train = definitions("19_costs", until="def train_size")["train_size"]
    runs = {d: [train(d, seed) for seed in range(3)] for d in (16, 32, 64, 128)}
    return {
        "weights": [found[0][0] for found in runs.values()],
        "losses": [[loss for _, loss in found] for found in runs.values()],
    }


@figure_of(sizes)
def scaling(weights: list[int], losses: list[list[float]]) -> Figure:
    """Draw the losses of three sizes, the law through them, and the size that it predicts."""
    means = [sum(each) / len(each) for each in losses]
    factor = (means[1] - means[2]) / (means[0] - means[1])
    floor = means[2] - (means[1] - means[2]) * factor / (1 - factor)
    places = [0.05 * step for step in range(81)]  # in factors of the ratio between two sizes
    law = [floor + (means[0] - floor) * factor**place for place in places]
    ratio = weights[1] / weights[0]
    made = new_figure(6.4, 3.2)
    axes: Axes = made.subplots()
    x = [weights[0] * ratio**place for place in places]
    axes.plot(x, law, color=BLUE, marker="", lw=1.6, label="law through the first three")
    axes.axhline(floor, color=MUTED, ls=":", marker="", label="its floor")
    for number, (size, each) in enumerate(zip(weights, losses, strict=True)):
        color, marker = (GREEN, "s") if number == 3 else (INK, "o")
        label = {0: "trained, three seeds", 3: "trained after the prediction"}.get(number)
        axes.plot([size] * len(each), each, ls="", color=color, marker=marker, label=label)
    predicted = means[2] - factor * (means[1] - means[2])
    note(axes, weights[3], predicted - 0.22, f"predicted {predicted:.2f}", color=BLUE)
    note(axes, weights[3], means[3] + 0.2, f"trained {means[3]:.2f}", color=GREEN)
    axes.set_xscale("log")
    axes.set_ylim(0.8)
    curves(axes, x="weights of the layers", y="validation loss")
    axes.legend()
    return made
