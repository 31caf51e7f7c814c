"""Figures of chapter 10: encoder and decoder."""

from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cells import definitions
from style import (
    BLUE,
    GREEN,
    ORANGE,
    figure,
    figure_of,
    new_figure,
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
