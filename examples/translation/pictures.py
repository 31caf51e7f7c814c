"""Pictures: the loss as it fell, what the decoder looked at while it wrote, and runs compared."""

import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from torch import Tensor

from common.files import write_atomically
from transformer_blocks.explorer import plot_attention, plot_heads
from transformer_blocks.explorer.fonts import font_for
from transformer_blocks.explorer.plots import add_colour_bar, new_figure, panel_size
from translation.comparison import Result
from translation.decoding import Look

LARGEST = 2**16 - 1  # pixels on a side that matplotlib can draw


def save(figure: Figure, path: Path) -> None:
    """Write a PNG, whole or not at all."""
    content = io.BytesIO()
    dpi = min(150.0, LARGEST / max(figure.get_size_inches()))
    figure.savefig(content, format="png", dpi=dpi)
    write_atomically(path, content.getvalue())


def plot_loss(metrics: Path, path: Path) -> None:
    """Draw the losses and the validation BLEU of a run over its epochs.

    Args:
        metrics: ``metrics.jsonl``, a line an epoch.
        path: The PNG to write.
    """
    lines = metrics.read_text(encoding="utf-8").split("\n")
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines if line]
    minutes = [row["minutes"] for row in rows]
    figure = new_figure(9.0, 3.6)
    losses, bleu = figure.subplots(1, 2)
    losses.plot(minutes, [row["train_loss"] for row in rows], "o-", ms=3, label="training")
    losses.plot(minutes, [row["validation_loss"] for row in rows], "o-", ms=3, label="validation")
    losses.set_ylabel("loss per token (nats, label-smoothed)")
    losses.legend(frameon=False)
    bleu.plot(
        minutes, [row["validation_bleu"] for row in rows], "o-", ms=3, color="C2", clip_on=False
    )
    bleu.set_ylabel("BLEU of a validation sample")
    bleu.set_ylim(bottom=0.0)
    for axes in (losses, bleu):
        axes.set_xlabel("minutes of training")
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    save(figure, path)


def plot_cross_attention(
    weights: Tensor, *, source: Sequence[str], target: Sequence[str], path: Path, title: str = ""
) -> None:
    """Draw what the decoder looked at: a row for each token it wrote, a column for each it read.

    Args:
        weights: Of one sentence, the mean over heads and each head. Shape (H, L, S).
        source: S tokens read.
        target: L tokens written.
        path: The PNG to write.
        title: Above the picture.

    Raises:
        ValueError: If labels and weights do not fit.
    """
    save(plot_heads(weights, target, source, title=title), path)


def plot_side_by_side(
    looks: Sequence[tuple[str, Look, Sequence[str]]], path: Path, *, title: str
) -> None:
    """Draw where several models looked in one sentence: a row for each layer, a panel a head.

    Models with a single panel share the first rows, so that they stand beside each other.

    Args:
        looks: Of each model, its name, where it looked, and the layers to draw.
        path: The PNG to write.
        title: Above the picture.
    """
    single: list[tuple[str, Look, Tensor]] = []
    rows: list[list[tuple[str, Look, Tensor]]] = []
    for name, look, attentions in looks:
        for number, attention in enumerate(attentions, start=1):
            weights = look.weights[attention]
            layer = f"{name}, layer {number}" if len(attentions) > 1 else name
            if len(weights) == 1 and len(attentions) == 1:
                single.append((layer, look, weights[0]))
            else:
                heads = enumerate(weights, start=1)
                rows.append([(f"{layer}, head {head}", look, table) for head, table in heads])
    columns = max([len(row) for row in rows], default=min(4, len(single)))
    rows = [single[i : i + columns] for i in range(0, len(single), columns)] + rows
    sizes = [panel_size(look.target, look.source) for _, look, _ in looks]
    width, height = (max(size) for size in zip(*sizes, strict=True))
    figure = new_figure(width * columns, height * len(rows) + 0.5)
    for row, panels in enumerate(rows):
        for column, (name, look, table) in enumerate(panels):
            axes = figure.add_subplot(len(rows), columns, row * columns + column + 1)
            plot_attention(table, look.target, look.source, title=name, axes=axes)
    add_colour_bar(figure)
    figure.suptitle(title, fontproperties=font_for(title), fontsize=12, parse_math=False)
    save(figure, path)


def plot_comparison(groups: Sequence[str], results: Sequence[Result], path: Path) -> None:
    """Draw runs side by side: how they learnt, how well they translate, and how fast.

    Args:
        groups: Titles of the groups of lengths.
        results: Of each run.
        path: The PNG to write.
    """
    font = font_for("".join(result.name for result in results))
    figure = new_figure(11.0, 7.0)
    loss, bleu, lengths, speed = figure.subplots(2, 2).flat
    for number, result in enumerate(results):
        color = f"C{number}"
        minutes = [row["minutes"] for row in result.metrics]
        for axes, key in ((loss, "validation_loss"), (bleu, "validation_bleu")):
            values = [row[key] for row in result.metrics]
            axes.plot(minutes, values, "o-", ms=3, color=color)
        lengths.plot(range(len(groups)), result.bleu_by_length, "o-", color=color)
        bar = speed.barh(number, result.decoding_speed, color=color)
        speed.bar_label(bar, [f"{result.decoding_speed:.0f}"], padding=3)
    speed.set_yticks(
        range(len(results)),
        [result.name for result in results],
        fontproperties=font,
        parse_math=False,
    )
    speed.invert_yaxis()
    legend = loss.legend(loss.lines, [result.name for result in results], prop=font, frameon=False)
    for name in legend.get_texts():
        name.set_parse_math(False)
    lengths.set_xticks(range(len(groups)), groups)
    for axes, x, y in (
        (loss, "minutes of training", "validation loss (smoothed, nats a token)"),
        (bleu, "minutes of training", "BLEU of a validation sample, greedy"),
        (lengths, "characters of the source (number of sentences)", "BLEU of the test sentences"),
        (speed, "test sentences translated in a second", ""),
    ):
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    for axes in (bleu, lengths):
        axes.set_ylim(bottom=0.0)
    save(figure, path)
