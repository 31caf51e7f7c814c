"""Figures of chapter 0: the map of the book, and the first attention weights."""

from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cells import definitions
from style import (
    figure_of,
    new_figure,
    weight_table,
)
from transformer_blocks import record_attention


def first_weights() -> dict[str, Any]:
    """Train chapter 0's model, and compute its cross-attention for the sentence of the book."""
    chapter = definitions("00_map")
    model, ours = chapter["model"], chapter["ours"]
    translation = ["the", "cat", "eats", "fish", "."]
    source, target = chapter["to_ids"]([(ours, translation)])
    with record_attention(model) as recorded, torch.no_grad():
        model(source, target[:, :-1])
    weights = recorded["blocks.decoder.layers.0.cross_attention"][0][0].mean(0)
    return {"weights": weights.tolist(), "queries": [*translation, "<eos>"], "keys": ours}


@figure_of(first_weights)
def first_attention(**table: Any) -> Figure:
    """Draw the cross-attention of chapter 0's model for the sentence of the book."""
    made = new_figure(5.2, 3.6)
    axes: Axes = made.subplots()
    weight_table(axes, **table)
    axes.set_xlabel("source")
    axes.set_ylabel("next target token")
    return made
