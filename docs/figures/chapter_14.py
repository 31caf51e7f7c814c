"""Figures of chapter 14: the smoothed loss, and overfitting with its cures."""

import json
from typing import Any

import torch
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cells import LEARN
from style import INK, MUTED, curves, figure, new_figure, note
from transformer_blocks.loss import cross_entropy


@figure
def smoothing() -> Figure:
    """Draw the loss against the probability of the correct token, with and without smoothing."""
    right = torch.linspace(0.05, 0.9995, 400)
    rest = (1 - right) / 4
    logits = torch.stack([right, rest, rest, rest, rest], dim=1).log()
    target = torch.zeros(len(right), dtype=torch.int64)
    made = new_figure(6.4, 2.8)
    axes: Axes = made.subplots()
    lines = ((0.0, "without smoothing", "o"), (0.1, "smoothing 0.1", "s"))
    for epsilon, name, marker in lines:
        loss = cross_entropy(logits, target, label_smoothing=epsilon, reduction="none")
        axes.plot(right, loss, marker=marker, markevery=40, lw=2, label=name)
    lowest = int(loss.argmin())
    axes.plot(right[lowest], loss[lowest], color=INK, marker="*", ls="", ms=9)
    note(axes, 0.9, 0.72, f"{loss[lowest]:.2f} at {right[lowest]:.2f}", color=INK, ha="right")
    axes.set_ylim(0, 3.2)
    axes.set_xlim(0, 1.01)
    curves(axes, x="probability of the correct token", y="loss")
    axes.legend()
    return made


def results() -> dict[str, Any]:
    """Read the recorded runs of the experiment on overfitting."""
    file = LEARN.parent / "experiments" / "results" / "overfitting.json"
    runs: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))["results"]
    return runs


@figure
def overfitting() -> Figure:
    """Draw training and validation loss of the run that overfits."""
    run = results()["overfitting"][0]["curves"]
    made = new_figure(6.4, 3.0)
    axes: Axes = made.subplots()
    for key, name in (("train_loss", "training"), ("validation_loss", "validation")):
        axes.plot(run["updates"], run[key], lw=2, label=name)
        place = run["updates"][-1] + 40, max(run[key][-1], 0.15)
        note(axes, *place, f"{run[key][-1]:.2f}", color=INK, ha="left")
    losses = run["validation_loss"]
    lowest = losses.index(min(losses))
    axes.axvline(run["updates"][lowest], color=MUTED, ls=":", marker="")
    note(
        axes,
        run["updates"][lowest] + 30,
        3.55,
        f"lowest validation loss, {losses[lowest]:.2f}",
        color=INK,
        ha="left",
    )
    axes.set_ylim(0, 6.4)
    axes.set_xlim(100, run["updates"][-1] + 260)
    curves(axes, x="updates", y="loss per token")
    axes.legend(loc=(0.6, 0.4))
    return made


@figure
def cures() -> Figure:
    """Draw the validation loss of the run that overfits, and of each cure."""
    names = (
        "overfitting",
        "smaller model",
        "dropout",
        "label smoothing",
        "weight decay",
        "more data",
    )
    runs = results()
    made = new_figure(6.4, 3.2)
    axes: Axes = made.subplots()
    for name in names:
        if name in runs:
            run = runs[name][0]["curves"]
            axes.plot(run["updates"], run["validation_loss"], lw=1.8, label=name)
    if "all" in runs:
        run = runs["all"][0]["curves"]
        axes.plot(
            run["updates"], run["validation_loss"], color=INK, ls="--", marker="", label="all"
        )
    curves(axes, x="updates", y="validation loss per token")
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
    return made
