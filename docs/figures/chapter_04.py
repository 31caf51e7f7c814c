"""Figures of chapter 4: why the scores are divided by sqrt(d_k)."""

from collections.abc import Callable
from functools import cache
from math import log, sqrt
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from cells import definitions
from style import BLUE, GREEN, INK, MUTED, ORANGE, curves, figure, new_figure
from transformer_blocks import attention_weights

SIZES = [4, 16, 64, 256, 1024]
DIVISORS: dict[str, tuple[Callable[[float], float], str, str]] = {
    "not divided": (lambda d: 1.0, ORANGE, "o--"),
    "by √d": (sqrt, BLUE, "s-"),
    "by d": (float, GREEN, "^:"),
}


@cache
def chapter() -> dict[str, Any]:
    """Return what the chapter defines, with ``entropy`` and ``jacobian``."""
    return definitions("04_scale", until="def jacobian")


def median_norm(scores: Tensor) -> float:
    """Compute the median norm of the softmax's Jacobian over the rows of scores."""
    return float(chapter()["jacobian"](scores.softmax(dim=-1)).flatten(1).norm(dim=1).median())


@figure
def softmax_against_d() -> Figure:
    """Draw the weights of eight keys for heads of several sizes, without and with the factor."""
    generator = torch.Generator().manual_seed(4)
    made = new_figure(6.4, 3.1)
    panels = made.subplots(2, 4, sharex=True, sharey=True)
    for d, column in zip(SIZES, panels.T, strict=False):
        query = torch.randn(1, 1, 1, d, generator=generator)
        key = torch.randn(1, 1, 8, d, generator=generator)
        for axes, scale, color in zip(column, (1.0, None), (ORANGE, BLUE), strict=True):
            weights = attention_weights(query, key, scale=scale).flatten().tolist()
            axes.bar(range(8), weights, color=color, width=0.7)
            axes.text(-0.5, 1.0, f"max. {max(weights):.2f}", va="top", size=9, color=INK)
            axes.set_xticks([])
            axes.set_yticks([0, 0.5, 1])
            axes.set_ylim(0, 1.08)
        column[0].set_title(f"d = {d}")
        column[1].set_xlabel("8 keys")
    panels[0, 0].set_ylabel("not divided")
    panels[1, 0].set_ylabel("divided by √d")
    return made


@figure
def entropy_and_gradient() -> Figure:
    """Draw entropy and gradient of the weights against the size of a head."""
    generator = torch.Generator().manual_seed(0)
    made = new_figure(6.4, 2.9)
    left, right = made.subplots(1, 2)
    scores = {
        d: torch.randn(1000, d, generator=generator) @ torch.randn(d, 32, generator=generator)
        for d in SIZES
    }
    for name, (divisor, color, style) in DIVISORS.items():
        scaled = [scores[d] / divisor(d) for d in SIZES]
        entropy = [chapter()["entropy"](each).mean().item() for each in scaled]
        norm = [median_norm(each) for each in scaled]
        left.plot(SIZES, entropy, style, color=color, label=name)
        right.plot(SIZES, norm, style, color=color)
    left.axhline(log(32), color=MUTED, lw=1, ls=(0, (1, 3)), marker="")
    left.set_ylim(0, 3.9)
    left.text(4, log(32) + 0.1, "ln 32: equal weights", size=8.5, color=MUTED)
    right.set_ylim(0, 0.39)
    for axes, label in ((left, "mean entropy"), (right, "median norm of the Jacobian")):
        axes.set_xscale("log", base=4)
        axes.set_xticks(SIZES, [str(size) for size in SIZES])
        axes.minorticks_off()
        curves(axes, x="head size d", y="", title=label)
    right.legend(*left.get_legend_handles_labels(), loc="upper right", fontsize=9)
    return made
