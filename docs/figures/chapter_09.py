"""Figures of chapter 9: a layer that trains."""

from typing import Any

from matplotlib.figure import Figure

from cells import definitions
from style import INK, ORANGE, curves, figure, figure_of, new_figure
from transformer_blocks import PostNorm, PreNorm, noam_rate


def gradients_of_stacks() -> dict[str, Any]:
    """Compute log10 of the norm of each layer's gradient; that of the first depends on rounding."""
    chapter = definitions("09_layer", until="def gradient_norms")
    stacks = {
        "residual only": (chapter["without_norm"], True),
        "post-norm": (PostNorm, True),
        "pre-norm": (PreNorm, True),
        "neither": (chapter["without_norm"], False),
    }
    norms = {name: chapter["gradient_norms"](*stack) for name, stack in stacks.items()}
    return {"norms": {name: [each.log10().item() for each in x] for name, x in norms.items()}}


@figure_of(gradients_of_stacks)
def layer_gradients(norms: dict[str, list[float]]) -> Figure:
    """Draw the gradient norm of each layer at initialisation, for four stacks."""
    made = new_figure(6.4, 3.0)
    axes = made.subplots()
    for name, logarithms in norms.items():
        axes.plot(range(1, 13), [10**each for each in logarithms], label=name)
    axes.set_yscale("log")
    axes.set_xticks(range(1, 13))
    curves(axes, x="layer", y="norm of the gradient")
    made.legend(loc="outside right center")
    return made


@figure
def learning_rate() -> Figure:
    """Draw the learning rate of the base model."""
    made = new_figure(6.4, 2.2)
    axes = made.subplots()
    steps = [1, *range(500, 100_001, 500)]
    rates = [1e4 * noam_rate(step, d_model=512) for step in steps]
    axes.plot(steps, rates, marker="")
    axes.plot(4000, 1e4 * noam_rate(4000, d_model=512), color=ORANGE, marker="o", markersize=6)
    axes.annotate(
        "step 4,000: 0.0007",
        (4000, 1e4 * noam_rate(4000, d_model=512)),
        (9000, 6.6),
        color=INK,
        va="center",
    )
    axes.set_ylim(0)
    axes.set_xticks(range(0, 100_001, 20_000), [f"{step:,}" for step in range(0, 100_001, 20_000)])
    curves(axes, x="step", y="rate in 1/10,000")
    return made
