"""Figures: the learning curve."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.plots import LOSSES, MUTED, plot_line, save, style
from transformer_blocks.explorer.plots import new_figure


def plot_text_loss(
    rows: Sequence[Mapping[str, Any]], path: Path, *, ngrams: float, order: int
) -> None:
    """Draw the losses of a language model over its training.

    The training loss is higher than the validation loss: training sequences start anywhere, so that
    their first tokens have no context.

    Args:
        rows: The metrics of each validation.
        path: The PNG file to write.
        ngrams: The validation loss of the n-gram model.
        order: The order of the n-gram model.
    """
    figure = new_figure(6.4, 3.8)
    axes = figure.subplots()
    style(axes, "updates", "loss per token (nats)")
    steps = [row["step"] for row in rows]
    for number, (key, kind) in enumerate(LOSSES.items()):
        plot_line(axes, steps, [row[key] for row in rows], number, label=kind)
    label = f"{order}-grams, validation"
    axes.axhline(ngrams, color=MUTED, linestyle="--", linewidth=1, label=label)
    lowest = min(row["validation_loss"] for row in rows)
    # The loss of the initial weights is far higher.
    axes.set_ylim(0.0, max(3.0 * ngrams, 1.5 * lowest))
    axes.legend(frameon=False)
    save(figure, path)
