"""Figures of chapter 7: positions."""

from math import atan2, degrees

import torch
from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap, to_rgba
from matplotlib.figure import Figure
from matplotlib.patches import Arc, Circle

from style import (
    BLUE,
    COLORS,
    INK,
    MUTED,
    ORANGE,
    PANEL,
    canvas,
    curves,
    figure,
    new_figure,
    note,
)
from transformer_blocks import sinusoidal_table
from transformer_blocks.explorer.style import MARKERS

SPEEDS = ["1", "1/10", "1/100", "1/1000"]  # of the four dials of d_model = 8


def dial(
    axes: Axes,
    x: float,
    y: float,
    hands: list[tuple[float, float, str]],
    radius: float = 0.55,
    *,
    mark: bool = False,
) -> None:
    """Draw a dial with hands.

    Args:
        axes: Axes to draw into, whose y axis points down.
        x: Centre of the dial.
        y: Centre of the dial.
        hands: Sine, cosine and colour of each hand; angles grow clockwise from the top.
        radius: Radius of the dial.
        mark: Whether to mark the angle from the first hand to the second.
    """
    axes.add_patch(Circle((x, y), radius, facecolor=PANEL, edgecolor=MUTED, lw=0.8))
    for sine, cosine, color in hands:
        tip = (x + radius * sine, y - radius * cosine)
        axes.plot([x, tip[0]], [y, tip[1]], color=color, lw=2, marker="", solid_capstyle="round")
        axes.plot(*tip, color=color, marker="o", markersize=4)
    if mark:
        (sine, cosine, _), (end_sine, end_cosine, _) = hands
        start, end = degrees(atan2(-cosine, sine)), degrees(atan2(-end_cosine, end_sine))
        size = 1.1 * radius
        axes.add_patch(Arc((x, y), size, size, theta1=start, theta2=end, color=INK, lw=1))


@figure
def dials() -> Figure:
    """Draw the dials of d_model = 8 at six positions."""
    positions = [0, 1, 2, 3, 10, 100]
    table = sinusoidal_table(101, 8)
    made, axes = canvas(10, 6.6)
    note(axes, 5.5, 0.3, "position", color=INK, size=10)
    for column, position in enumerate(positions):
        x = 2.3 + 1.35 * column
        note(axes, x, 0.8, str(position), color=INK, size=11)
        for pair, color in enumerate(COLORS[:4]):
            sine, cosine = table[position, 2 * pair : 2 * pair + 2].tolist()
            dial(axes, x, 1.75 + 1.4 * pair, [(sine, cosine, color)])
    for pair, speed in enumerate(SPEEDS):
        y = 1.75 + 1.4 * pair
        note(axes, 0.9, y - 0.2, f"dial {pair}", color=INK, size=10)
        note(axes, 0.9, y + 0.2, f"turns by {speed}", size=9)
    return made


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
def rotation() -> Figure:
    """Draw the dials of two positions at a fixed distance, at two places."""
    table = sinusoidal_table(64, 8)
    made, axes = canvas(10, 4.6)
    for column, pair in enumerate(range(4)):
        x = 3.3 + 1.8 * column
        note(axes, x, 0.3, f"dial {pair}", color=INK, size=10)
        for row, position in enumerate((3, 40)):
            hands = []
            for place, color in ((position, BLUE), (position + 2, ORANGE)):
                sine, cosine = table[place, 2 * pair : 2 * pair + 2].tolist()
                hands.append((sine, cosine, color))
            dial(axes, x, 1.25 + 1.75 * row, hands, 0.65, mark=pair < 2)
        note(axes, x, 4.15, f"{degrees(2 * 0.1**pair):.1f}°", color=INK, size=10)
    for row, position in enumerate((3, 40)):
        y = 1.25 + 1.75 * row
        note(axes, 1.15, y - 0.2, f"position {position}", color=BLUE, size=10)
        note(axes, 1.15, y + 0.2, f"position {position + 2}", color=ORANGE, size=10)
    note(axes, 1.15, 4.15, "angle between", color=INK, size=10)
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
