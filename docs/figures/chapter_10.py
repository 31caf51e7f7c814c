"""Figures of chapter 10: encoder and decoder."""

from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cells import definitions
from style import (
    BLUE,
    GREEN,
    INK,
    ORANGE,
    SKY,
    arrow,
    box,
    canvas,
    figure,
    figure_of,
    new_figure,
    note,
    weight_table,
)
from transformer_blocks import causal_mask, padding_mask, record_attention


@figure
def three_attentions() -> Figure:
    """Draw the masks of the three attentions, for a padded source."""
    source = torch.tensor([[13, 4, 14, 6, 7, 0, 0]])
    words = ["鳥", "は", "見", "ます", "。", "–", "–"]
    target = ["<bos>", "the", "bird", "sees"]
    padding = padding_mask(source)[0, 0]  # (1, S)
    panels = (
        ("encoder's\nself-attention", padding.expand(7, 7), words, words, GREEN),
        ("decoder's\nself-attention", causal_mask(4), target, target, ORANGE),
        ("cross-attention", padding.expand(4, 7), target, words, BLUE),
    )
    made = new_figure(6.4, 3.0)
    drawn = made.subplots(1, 3, width_ratios=(7, 4, 7))
    for axes, (title, mask, queries, keys, color) in zip(drawn, panels, strict=True):
        weight_table(
            axes,
            (~mask * 0.35).tolist(),
            queries=queries,
            keys=keys,
            masked=mask.tolist(),
            color=color,
            show_numbers=False,
        )
        axes.set_aspect("equal")
        axes.set_anchor("N")
        axes.tick_params(labelsize=8.5)
        if keys is target:
            axes.set_xticks(range(4), target, rotation=60, ha="left", rotation_mode="anchor")
        axes.set_xlabel(title, size=9.5)
        axes.xaxis.set_label_position("bottom")
    return made


@figure
def teacher_forcing() -> Figure:
    """Draw one pass with teacher forcing above the three passes of decoding."""
    made, axes = canvas(10, 7.1)
    answers = ("c", "b", "a")

    def run(x: float, y: float, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> None:
        """Draw inputs below a decoder, and its predictions above it."""
        box(axes, x, y + 0.85, 0.95 * len(inputs), 0.5, "decoder", color=SKY, alpha=0.35, size=9)
        for column, token in enumerate(inputs):
            left = x + 0.95 * column + 0.075
            given = GREEN if column == 0 or y < 2 else ORANGE
            size = 8.5 if len(token) > 1 else 10
            box(axes, left, y + 1.75, 0.8, 0.5, token, color=given, alpha=0.35, size=size)
            arrow(axes, (left + 0.4, y + 1.75), (left + 0.4, y + 1.37))
            if outputs[column]:
                box(axes, left, y, 0.8, 0.5, outputs[column], color=ORANGE, alpha=0.35)
                arrow(axes, (left + 0.4, y + 0.85), (left + 0.4, y + 0.52))

    note(axes, 0.2, 1.1, "teacher forcing:\none pass", color=INK, size=10, ha="left")
    run(3.4, 0.2, ("<bos>", "c", "b"), answers)
    note(axes, 6.5, 2.2, "all inputs are given", ha="left")
    note(axes, 6.5, 0.45, "three predictions", ha="left")

    note(axes, 0.2, 3.85, "decoding:\nthree passes", color=INK, size=10, ha="left")
    starts = (2.3, 3.85, 6.35)
    top = 3.2
    for number, start in enumerate(starts):
        inputs = ("<bos>", *answers[:number])
        outputs = ("",) * number + (answers[number],)
        run(start, top, inputs, outputs)
        note(axes, start + 0.475, top + 2.55, f"pass {number + 1}")
        if number < 2:
            right = start + 0.95 * number + 0.875
            end = starts[number + 1] + 0.95 * (number + 1) + 0.475
            points = [right, right + 0.34]
            axes.plot(
                [points[0], points[1], points[1], end, end],
                [top + 0.25, top + 0.25, 6.35, 6.35, 6.0],
                color=ORANGE,
                lw=1.2,
                marker="",
            )
            arrow(axes, (end, 6.1), (end, top + 2.27), color=ORANGE)
    note(axes, 5.2, 6.75, "each prediction becomes an input of the next pass", color=INK)
    return made


def weights_of_reverser() -> dict[str, Any]:
    """Compute the cross-attention of chapter 10's model before and after its training."""
    chapter = definitions("10_encoder_decoder")
    source = torch.arange(6)[None]
    names = list(chapter["SYMBOLS"][:6])
    torch.manual_seed(0)
    models = {"before training": chapter["Reverser"](), "after training": chapter["model"]}
    tables = {}
    for title, model in models.items():
        with record_attention(model) as recorded, torch.no_grad():
            model(source, chapter["shift"](source.flip(1)))
        tables[title] = recorded["decoder.cross_attention"][0][0, 0].tolist()
    return {"names": names, "tables": tables}


@figure_of(weights_of_reverser)
def anti_diagonal(names: list[str], tables: dict[str, list[list[float]]]) -> Figure:
    """Draw the cross-attention of chapter 10's model before and after its training."""
    made = new_figure(6.4, 3.2)
    drawn = made.subplots(1, 2)
    for axes, (title, weights) in zip(drawn, tables.items(), strict=True):
        weight_table(axes, weights, queries=names[::-1], keys=names, title=title)
        axes.set_xlabel("source")
    first: Axes = drawn[0]
    first.set_ylabel("symbol to be written")
    return made
