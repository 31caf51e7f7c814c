"""Pictures: how both models learnt, what they mistook for what, and where the encoder looked."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from classification.models import EncoderClassifier
from common.plots import AttentionMap, plot_attention_grid, save, style
from common.tokenizer import Tokenizer
from transformer_blocks import record_attention
from transformer_blocks.explorer.fonts import font_for
from transformer_blocks.explorer.plots import new_figure


def plot_accuracy(
    metrics: Mapping[str, Sequence[Mapping[str, Any]]], path: Path, *, limit: float
) -> None:
    """Draw the losses and accuracies of models over their training.

    Args:
        metrics: Of each model by its name, a row a report.
        path: The PNG to write.
        limit: The best accuracy that counts of words allow.
    """
    figure = new_figure(9.0, 3.6)
    loss, accuracy = figure.subplots(1, 2)
    for number, (name, rows) in enumerate(metrics.items()):
        steps, color = [row["step"] for row in rows], f"C{number}"
        loss.plot(steps, [row["train_loss"] for row in rows], ":", color=color)
        loss.plot(steps, [row["validation_loss"] for row in rows], color=color, label=name)
        percents = [100.0 * row["validation_accuracy"] for row in rows]
        accuracy.plot(steps, percents, "o-", ms=3, color=color, label=name, clip_on=False)
    accuracy.axhline(100.0 * limit, color="0.5", ls="--", lw=1)
    accuracy.text(0.98, 100.0 * limit + 1.5, "best of counts", color="0.4", ha="right",
                  transform=accuracy.get_yaxis_transform())  # fmt: skip
    accuracy.set_ylim(0.0, 100.0)
    loss.set_ylim(bottom=0.0)
    loss.legend(frameon=False)
    style(loss, "updates", "loss (dotted: training; line: validation)")
    style(accuracy, "updates", "validation accuracy (%)")
    save(figure, path)


def plot_confusion(tables: Mapping[str, Tensor], labels: Sequence[str], path: Path) -> None:
    """Draw what models took for what: a row for each right label, a column for each guess.

    Args:
        tables: Counts by the name of the model. Shape (classes, classes).
        labels: Of rows and columns.
        path: The PNG to write.
    """
    font = font_for("".join(labels))
    size = 1.4 + 0.75 * len(labels)
    figure = new_figure((size + 0.9) * len(tables), size + 0.6)
    for axes, (name, table) in zip(figure.subplots(1, len(tables)), tables.items(), strict=True):
        shares = table / table.sum(1, keepdim=True).clamp(min=1)
        axes.imshow(shares.numpy(), cmap="Blues", vmin=0.0, vmax=1.0)
        for row, counts in enumerate(table.tolist()):
            for column, count in enumerate(counts):
                color = "white" if shares[row, column] > 0.6 else "black"
                axes.text(column, row, count, ha="center", va="center", color=color)
        axes.set_xticks(range(len(labels)), labels, fontproperties=font, parse_math=False)
        axes.set_yticks(range(len(labels)), labels, fontproperties=font, parse_math=False)
        axes.tick_params(length=0)
        axes.set_xlabel("guessed")
        axes.set_ylabel("right")
        axes.set_title(f"{name}: {table.diagonal().sum() / table.sum():.1%}", fontsize=11)
    save(figure, path)


def plot_looks(
    model: EncoderClassifier, tokenizer: Tokenizer, text: Sequence[int], path: Path, *, title: str
) -> None:
    """Draw where each head of each layer looked in a text.

    Args:
        model: In eval mode.
        tokenizer: Names the tokens.
        text: Ids, the mark first.
        path: The PNG to write.
        title: Above the picture.
    """
    device = next(model.parameters()).device
    with torch.inference_mode(), record_attention(model, device="cpu") as maps:
        model(torch.tensor([text], device=device))
    tokens = [piece.replace("▁", "") or piece for piece in tokenizer.pieces(text)]
    rows = [
        [
            AttentionMap(f"encoder, layer {layer}, head {head}", weights, tokens, tokens)
            for head, weights in enumerate(maps[name][0][0], start=1)
        ]
        for layer, name in enumerate(maps, start=1)
    ]
    plot_attention_grid(rows, path, title=title)
