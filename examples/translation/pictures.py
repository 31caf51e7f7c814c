"""Figures: learning curves, cross-attention, and the comparison of runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from common.plots import MUTED, plot_line, save, style
from common.searches import Search
from transformer_blocks.explorer import plot_heads
from transformer_blocks.explorer.fonts import font_for
from transformer_blocks.explorer.panels import Panel, draw_panels
from transformer_blocks.explorer.plots import new_figure
from transformer_blocks.explorer.style import LINES
from translation.decoding import TrainedTranslator
from translation.recording import AttentionRecord, translate_with_attention


def draw_attention(
    trained: TrainedTranslator, sentence: str, path: Path, *, search: Search
) -> None:
    """Translate a sentence and draw the attention weights of the last cross-attention layer.

    The figure has a row for each target token, and a column for each source token.
    """
    record = translate_with_attention(trained, sentence, search=search)
    figure = plot_heads(
        record.weights[trained.model.cross_attentions[-1]],
        record.target,
        record.source,
        title=f"{sentence} → {record.translation}",
        axis_names=("target", "source"),
    )
    save(figure, path)


def side_by_side_figure(
    records: Sequence[tuple[str, AttentionRecord, Sequence[str]]], *, title: str
) -> Figure:
    """Draw the attention of several models over one sentence: a row for each layer.

    Models with a single layer of one head share the first rows, side by side.

    Args:
        records: For each model, its name, its recorded attention, and the layers to draw.
        title: The title above the figure.
    """
    single: list[Panel] = []
    rows: list[list[Panel]] = []
    for name, record, attentions in records:
        for number, attention in enumerate(attentions):
            layer = f"{name}, layer {number}" if len(attentions) > 1 else name
            heads = record.weights[attention]
            if len(heads) == 1 and len(attentions) == 1:
                single.append(Panel(layer, heads[0], record.target, record.source))
            else:
                rows.append(
                    [
                        Panel(f"{layer}, head {head}", weights, record.target, record.source)
                        for head, weights in enumerate(heads)
                    ]
                )
    columns = max(map(len, rows), default=min(4, len(single)))
    shared = [single[i : i + columns] for i in range(0, len(single), columns)]
    return draw_panels(shared + rows, title=title, axis_names=("target", "source"), theme="light")


def comparison_figure(groups: Sequence[str], results: Sequence[Mapping[str, Any]]) -> Figure:
    """Draw learning curves, BLEU and decoding speed of several runs.

    Args:
        groups: The titles of the length groups.
        results: The results of each run (:func:`~translation.comparison.compare`).
    """
    names = [result["name"] for result in results]
    font = font_for("".join(names))
    figure = new_figure(8.8, 6.6)
    loss, bleu, lengths, speed = figure.subplots(2, 2).flat
    for axes, x, y in (
        (loss, "minutes of training", "validation loss (nats per token)"),
        (bleu, "minutes of training", "BLEU of a validation sample, greedy"),
        (lengths, "characters of the source (number of sentences)", "BLEU of the test sentences"),
        (speed, "test sentences per second", ""),
    ):
        style(axes, x, y)
    for number, result in enumerate(results):
        minutes = [row["minutes"] for row in result["metrics"]]
        for axes, key in ((loss, "validation_loss"), (bleu, "validation_bleu")):
            plot_line(axes, minutes, [row[key] for row in result["metrics"]], number)
        plot_line(lengths, range(len(groups)), result["bleu_by_length"], number)
        plot_speed(speed, number, result["decoding_speed"], result["decoding_speeds"])
    speed.set_yticks(range(len(results)), names, fontproperties=font, parse_math=False)
    speed.invert_yaxis()
    speed.grid(visible=False, axis="y")
    speed.margins(x=0.12)
    if any(len(result["decoding_speeds"]) > 1 for result in results):
        speed.set_xlabel("test sentences per second\n(line: slowest and fastest round)")
    legend = loss.legend(loss.lines, names, prop=font, frameon=False)
    for name in legend.get_texts():
        name.set_parse_math(False)
    lengths.set_xticks(range(len(groups)), groups, fontsize=8.5)
    lengths.margins(x=0.12)
    for axes in (bleu, lengths):
        axes.set_ylim(bottom=0.0)
    for axes in (loss, bleu):
        axes.set_xlim(left=0.0)
    return figure


def plot_speed(axes: Axes, row: int, median: float, rounds: Sequence[float]) -> None:
    """Draw the median speed as a bar, and the range of the rounds as a line."""
    axes.barh(row, median, height=0.7, color=LINES[row % len(LINES)])
    highest = max((median, *rounds))
    if len(rounds) > 1:
        axes.plot([min(rounds), highest], [row, row], color=MUTED, linewidth=1.6, marker="|",
                  markersize=9)  # fmt: skip
    axes.annotate(f"{median:.0f}", (highest, row), (5, 0), textcoords="offset points", va="center")
