"""Figures of chapter 21: since 2017."""

import json

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cells import LEARN
from style import (
    BLUE,
    INK,
    MUTED,
    RED,
    SKY,
    curves,
    figure,
    new_figure,
    note,
)
from transformer_blocks import RotaryPositionalEncoding


@figure
def rotary_scores() -> Figure:
    """Draw the score of one query and one key against their offset."""
    torch.manual_seed(0)
    torch.randn(6, 16)  # as in the chapter, which draws its query and key after these
    query, key = torch.randn(2, 1, 16)
    rotary = RotaryPositionalEncoding(d_k=16)

    def score(query_position: int, key_position: int) -> float:
        q = rotary.transform_queries(query[None, None], start=query_position)
        k = rotary.transform_keys(key[None, None], start=key_position)
        return (q * k).sum().item()

    offsets = list(range(-30, 31))
    made = new_figure(6.4, 2.9)
    axes: Axes = made.subplots()
    lines = ((40, SKY, 5.0, "-", "o"), (100, RED, 1.4, "--", "D"))
    for position, color, width, style, marker in lines:
        scores = [score(position, position - offset) for offset in offsets]
        axes.plot(
            offsets,
            scores,
            color=color,
            lw=width,
            ls=style,
            marker=marker,
            markevery=10,
            label=f"query at position {position}",
        )
    axes.axvline(0, color=MUTED, lw=0.8, marker="")
    axes.set_ylim(-11, 12)
    note(axes, 0.8, 7.2, "same position", ha="left")
    for offset in (2, -2):
        axes.plot(offset, score(40, 40 - offset), color=BLUE, marker="o", ms=6)
    curves(axes, x="offset: position of the query minus that of the key", y="score")
    axes.legend(loc="upper center", ncols=2)
    return made


@figure
def extrapolation() -> Figure:
    """Draw the recorded perplexity at each length, for each kind of positions."""
    file = LEARN.parent / "experiments" / "results" / "extrapolation.json"
    record = json.loads(file.read_text(encoding="utf-8"))
    lengths, results = record["settings"]["lengths"], record["results"]
    made = new_figure(6.4, 3.6)
    whole, near = made.subplots(1, 2)
    for axes in (whole, near):
        for name, result in results.items():
            if name == "ideal":
                axes.plot(lengths, result, color=INK, marker="", ls="--", lw=1.2, label=name)
                continue
            style = ":" if name == "learned" else "-"  # its later rows are not trained
            (line,) = axes.plot(lengths, result["mean"], lw=1.6, ls=style, label=name)
            found = [run["perplexity"] for run in result["runs"]]
            low, high = ([each(row) for row in zip(*found, strict=True)] for each in (min, max))
            axes.fill_between(lengths, low, high, color=line.get_color(), alpha=0.2, lw=0)
        axes.set_xscale("log", base=2)
        axes.minorticks_off()
        axes.set_xticks(lengths, [f"{each}\n{each // lengths[0]}x" for each in lengths])
    curves(whole, x="tokens of the sequence", y="perplexity", title="all kinds")
    curves(near, x="tokens of the sequence", y="", title="the lower end")
    whole.set_yscale("log")
    ticks = [3, 4, 6, 10, 20]
    whole.set_yticks(ticks, [str(each) for each in ticks])
    near.set_ylim(3, 4.5)
    names = [*whole.get_legend_handles_labels()]
    made.legend(*names, loc="outside lower center", ncols=4, fontsize=9)
    return made
