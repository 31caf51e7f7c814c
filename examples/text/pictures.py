"""Pictures: the loss as it fell."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from common.plots import save, style
from transformer_blocks.explorer.plots import new_figure


def plot_text_loss(
    rows: Sequence[Mapping[str, Any]], path: Path, *, ngrams: float, title: str
) -> None:
    """Draw the losses of a language model over its training.

    The training loss lies above the other: pieces to learn from begin anywhere, so that nothing is
    known of what stands before them.

    Args:
        rows: A row a report.
        path: The PNG to write.
        ngrams: The validation loss of the n-grams.
        title: Their name.
    """
    figure = new_figure(6.4, 3.8)
    axes = figure.subplots()
    steps = [row["step"] for row in rows]
    axes.plot(steps, [row["train_loss"] for row in rows], "o-", ms=3, label="training")
    axes.plot(steps, [row["validation_loss"] for row in rows], "o-", ms=3, label="validation")
    axes.axhline(ngrams, color="0.5", ls="--", lw=1, label=title)
    lowest = min(row["validation_loss"] for row in rows)
    axes.set_ylim(0.0, max(3.0 * ngrams, 1.5 * lowest))  # the first guesses are far above
    axes.legend(frameon=False)
    style(axes, "updates", "loss per token (nats)")
    save(figure, path)
