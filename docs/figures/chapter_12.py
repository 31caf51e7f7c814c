"""Figures of chapter 12: encoder and decoder."""

from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cells import definitions
from style import figure_of, new_figure, weight_table
from transformer_blocks import record_attention


def weights_of_reverser() -> dict[str, Any]:
    """Compute the cross-attention of chapter 12's model before and after its training."""
    chapter = definitions("12_encoder_decoder")
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
    """Draw the cross-attention of chapter 12's model before and after its training."""
    made = new_figure(6.4, 3.2)
    drawn = made.subplots(1, 2)
    for axes, (title, weights) in zip(drawn, tables.items(), strict=True):
        weight_table(axes, weights, queries=names[::-1], keys=names, title=title)
        axes.set_xlabel("source")
    first: Axes = drawn[0]
    first.set_ylabel("symbol to be written")
    return made
