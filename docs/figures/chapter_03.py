"""Figures of chapter 3: queries, keys, values."""

from collections.abc import Sequence
from typing import Any

import torch
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from cells import definitions
from style import ORANGE, figure_of, new_figure, weight_table
from transformer_blocks import SingleHeadAttention


def weights_of_friends() -> dict[str, Any]:
    """Compute the weights of an untrained layer, one with a shared matrix, and a trained one."""
    chapter = definitions("03_projections", until="def train")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        x, _ = chapter["make_batch"](1)
        layers = [SingleHeadAttention(16, scale=1.0, bias=False) for _ in range(3)]
        layers[1].key_projection = layers[1].query_projection
        for layer in layers[1:]:
            chapter["train"](layer)
    return {
        "names": x[0, :, :6].argmax(-1).tolist(),
        "friends": x[0, :, 6:12].argmax(-1).tolist(),
        "tables": [layer.attention_weights(x, x)[0, 0].tolist() for layer in layers],
    }


@figure_of(weights_of_friends)
def friends(
    names: list[int], friends: list[int], tables: Sequence[Sequence[Sequence[float]]]
) -> Figure:
    """Draw the weights of an untrained layer, of one with a shared matrix, and of a trained one."""
    keys = ["ABCDEF"[name] for name in names]
    queries = [f"{'ABCDEF'[n]} → {'ABCDEF'[f]}" for n, f in zip(names, friends, strict=True)]
    titles = ["before training", "trained, $W^Q = W^K$", "trained"]
    made = new_figure(6.4, 2.5)
    for axes, weights, title in zip(made.subplots(1, 3), tables, titles, strict=True):
        weight_table(axes, weights, queries=queries, keys=keys, title=title, show_numbers=False)
        for row, friend in enumerate(friends):
            corner = (names.index(friend) - 0.5, row - 0.5)
            axes.add_patch(
                Rectangle(corner, 1, 1, facecolor="none", edgecolor=ORANGE, lw=2, clip_on=False)
            )
    return made
