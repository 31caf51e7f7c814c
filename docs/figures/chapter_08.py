"""Figures of chapter 8: positions."""

import torch
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure

from style import BLUE, COLORS, ORANGE, curves, figure, new_figure
from transformer_blocks import sinusoidal_table
from transformer_blocks.explorer.style import MARKERS


@figure
def sinusoids() -> Figure:
    """Draw the sines of d_model = 8 as curves, and the encodings of d_model = 32 as colours."""
    made = new_figure(6.4, 2.9)
    lines, colors = made.subplots(1, 2, width_ratios=[3, 2])
    table = sinusoidal_table(61, 8)
    fine = torch.linspace(0, 60, 601)
    for pair, (color, marker) in enumerate(zip(COLORS[:4], MARKERS, strict=False)):
        lines.plot(fine, (fine * 0.1**pair).sin(), color=color, marker="", lw=1.2)
        lines.plot(
            range(0, 61, 3),
            table[::3, 2 * pair],
            color=color,
            marker=marker,
            lw=0,
            label=f"feature {2 * pair}",
        )
    curves(lines, x="position", y="sine", title="d_model = 8")
    lines.set_ylim(-1.1, 1.1)
    lines.legend(loc="upper center", bbox_to_anchor=(0.5, -0.22), ncols=2, fontsize=9)
    shades = LinearSegmentedColormap.from_list(
        "shades", [to_rgba(ORANGE), to_rgba(ORANGE, 0), to_rgba(BLUE, 0), to_rgba(BLUE)]
    )
    image = colors.imshow(
        sinusoidal_table(60, 32).numpy(), cmap=shades, aspect="auto", vmin=-1, vmax=1
    )
    colors.set_xlabel("feature")
    colors.set_ylabel("position")
    colors.set_title("d_model = 32")
    made.colorbar(image, ax=colors, ticks=[-1, 0, 1])
    return made


@figure
def similarity() -> Figure:
    """Draw the dot products of two encodings with all others."""
    table = sinusoidal_table(64, 32)
    made = new_figure(6.4, 2.4)
    axes = made.subplots()
    for position in (8, 32):
        axes.plot(table @ table[position], markevery=8, label=f"with position {position}")
    curves(axes, x="position", y="dot product")
    axes.legend()
    return made
