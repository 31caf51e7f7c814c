"""Figures: learning curves, and the encoder's attention weights."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from classification.models import EncoderClassifier
from common.plots import MUTED, plot_line, save, style
from common.tokenizer import Tokenizer
from transformer_blocks import record_attention
from transformer_blocks.explorer.panels import Panel, draw_panels
from transformer_blocks.explorer.plots import new_figure


def plot_accuracy(
    metrics: Mapping[str, Sequence[Mapping[str, Any]]], path: Path, *, limit: float
) -> None:
    """Draw the losses and accuracies of models over their training.

    Args:
        metrics: The metrics of each model, by its name.
        path: The PNG file to write.
        limit: The highest accuracy of any model of word counts.
    """
    figure = new_figure(7.8, 3.4)
    loss, accuracy = figure.subplots(1, 2)
    style(loss, "updates", "loss (nats; dotted: training, line: validation)")
    style(accuracy, "updates", "validation accuracy (%)")
    for number, (name, rows) in enumerate(metrics.items()):
        steps = [row["step"] for row in rows]
        plot_line(loss, steps, [row["train_loss"] for row in rows], number, linestyle=":")
        values = [row["validation_loss"] for row in rows]
        plot_line(loss, steps, values, number, label=name)
        percents = [100.0 * row["validation_accuracy"] for row in rows]
        plot_line(accuracy, steps, percents, number, label=name, clip_on=False, zorder=3)
    accuracy.axhline(100.0 * limit, color=MUTED, linestyle="--", linewidth=1)
    accuracy.text(0.98, 100.0 * limit + 1.5, "best of word counts", color=MUTED, ha="right",
                  transform=accuracy.get_yaxis_transform())  # fmt: skip
    accuracy.set_ylim(0.0, 100.0)
    loss.set_ylim(bottom=0.0)
    loss.legend(frameon=False)
    save(figure, path)


def plot_encoder_attention(
    model: EncoderClassifier, tokenizer: Tokenizer, text: Sequence[int], path: Path, *, title: str
) -> None:
    """Draw the attention weights of each head of each layer.

    Args:
        model: The model, in evaluation mode.
        tokenizer: The tokenizer, for the labels of the axes.
        text: Token ids, begin token first.
        path: The PNG file to write.
        title: The title above the figure.
    """
    device = next(model.parameters()).device
    with torch.inference_mode(), record_attention(model, device="cpu") as maps:
        model(torch.tensor([text], device=device))
    tokens = tokenizer.subwords(text)
    rows = [
        [
            Panel(f"encoder, layer {layer}, head {head}", weights, tokens, tokens)
            for head, weights in enumerate(maps[name][0][0])
        ]
        for layer, name in enumerate(maps)
    ]
    save(draw_panels(rows, title=title, axis_names=("query", "key"), theme="light"), path)
