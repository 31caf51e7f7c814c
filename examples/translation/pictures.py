"""Figures: learning curves, cross-attention, and the comparison of runs."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import Tensor

from common.plots import AttentionMap, plot_attention_grid, save, style
from transformer_blocks.explorer import plot_heads
from transformer_blocks.explorer.fonts import font_for
from transformer_blocks.explorer.plots import new_figure
from translation.comparison import Result
from translation.decoding import AttentionRecord


def plot_loss(metrics: Path, path: Path) -> None:
    """Draw the losses and the validation BLEU of a run over its epochs.

    Args:
        metrics: The file ``metrics.jsonl``, with a line for each epoch.
        path: The PNG file to write.
    """
    lines = metrics.read_text(encoding="utf-8").split("\n")
    rows: list[dict[str, Any]] = [json.loads(line) for line in lines if line]
    minutes = [row["minutes"] for row in rows]
    figure = new_figure(9.0, 3.6)
    losses, bleu = figure.subplots(1, 2)
    losses.plot(minutes, [row["train_loss"] for row in rows], "o-", ms=3, label="training")
    losses.plot(minutes, [row["validation_loss"] for row in rows], "o-", ms=3, label="validation")
    losses.legend(frameon=False)
    bleu.plot(
        minutes, [row["validation_bleu"] for row in rows], "o-", ms=3, color="C2", clip_on=False
    )
    bleu.set_ylim(bottom=0.0)
    style(losses, "minutes of training", "loss per token (nats, label-smoothed)")
    style(bleu, "minutes of training", "BLEU of a validation sample")
    save(figure, path)


def plot_cross_attention(
    weights: Tensor, *, source: Sequence[str], target: Sequence[str], path: Path, title: str = ""
) -> None:
    """Draw cross-attention weights: a row for each target token, a column for each source token.

    Args:
        weights: The attention weights of one sentence, of shape (H, L, S).
        source: The S source tokens.
        target: The L target tokens.
        path: The PNG file to write.
        title: The title above the figure.

    Raises:
        ValueError: If labels and weights do not fit.
    """
    save(plot_heads(weights, target, source, title=title), path)


def plot_side_by_side(
    records: Sequence[tuple[str, AttentionRecord, Sequence[str]]], path: Path, *, title: str
) -> None:
    """Draw the attention of several models over one sentence: a row for each layer.

    Models with a single layer of one head share the first rows, side by side.

    Args:
        records: For each model, its name, its recorded attention, and the layers to draw.
        path: The PNG file to write.
        title: The title above the figure.
    """
    single: list[AttentionMap] = []
    rows: list[list[AttentionMap]] = []
    for name, record, attentions in records:
        for number, attention in enumerate(attentions, start=1):
            layer = f"{name}, layer {number}" if len(attentions) > 1 else name
            heads = record.weights[attention]
            if len(heads) == 1 and len(attentions) == 1:
                single.append(AttentionMap(layer, heads[0], record.target, record.source))
            else:
                rows.append(
                    [
                        AttentionMap(f"{layer}, head {head}", weights, record.target, record.source)
                        for head, weights in enumerate(heads, start=1)
                    ]
                )
    columns = max(map(len, rows), default=min(4, len(single)))
    shared = [single[i : i + columns] for i in range(0, len(single), columns)]
    plot_attention_grid(shared + rows, path, title=title)


def plot_comparison(groups: Sequence[str], results: Sequence[Result], path: Path) -> None:
    """Draw learning curves, BLEU and decoding speed of several runs.

    Args:
        groups: The titles of the length groups.
        results: The results of each run.
        path: The PNG file to write.
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
        (loss, "minutes of training", "validation loss (label-smoothed, nats per token)"),
        (bleu, "minutes of training", "BLEU of a validation sample, greedy"),
        (lengths, "characters of the source (number of sentences)", "BLEU of the test sentences"),
        (speed, "test sentences translated per second", ""),
    ):
        style(axes, x, y)
    for axes in (bleu, lengths):
        axes.set_ylim(bottom=0.0)
    save(figure, path)
