"""Pictures: the loss as it fell, what the decoder looked at while it wrote, and runs compared."""

import importlib.util
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import font_manager
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.image import AxesImage
from torch import Tensor

from translation.comparison import Result
from translation.decoding import Look

log = logging.getLogger(__name__)

PLOTTED = {"minutes", "train_loss", "validation_loss", "validation_bleu"}
"""What a row of the metrics must have."""
LARGEST = 2**16 - 1  # pixels on a side that matplotlib can draw
PARAMETERS_A_POINT = 50_000  # how many a square point of the comparison's discs stands for
FALLBACK = "DejaVu Sans"  # comes with matplotlib; has the mark of sentencepiece, U+2581


def font_for(text: str) -> FontProperties:
    """Find fonts that together have a glyph for every letter of ``text``.

    Matplotlib's own font has no kanji. IPAexGothic, which the package matplotlib-fontja carries,
    has; any Japanese, Chinese or Korean font of the system serves as well. Where letters remain
    without a glyph, one line in the log says what to install.
    """
    carried = importlib.util.find_spec("matplotlib_fontja")
    if carried is not None and carried.submodule_search_locations:
        for file in Path(carried.submodule_search_locations[0]).rglob("*.ttf"):
            if not any(font.fname == str(file) for font in font_manager.fontManager.ttflist):
                font_manager.fontManager.addfont(str(file))
    missing = {ord(letter) for letter in text if not letter.isspace()}
    families = [FALLBACK]
    by_preference = sorted(
        (font for font in font_manager.fontManager.ttflist if "Last Resort" not in font.name),
        key=lambda font: (
            font.name != FALLBACK,
            font.name != "IPAexGothic",
            "CJK" not in font.name,
        ),
    )
    for font in by_preference:
        if not missing:
            break
        glyphs = font_manager.get_font(font.fname).get_charmap()
        if missing.intersection(glyphs):
            missing.difference_update(glyphs)
            families.append(font.name)
    if missing:
        lost = "".join(map(chr, sorted(missing)[:10]))
        log.warning(
            "no font has %s: `pip install matplotlib-fontja`, or a font such as Noto Sans CJK", lost
        )
    return FontProperties(family=list(dict.fromkeys(families)))


def new_figure(width: float, height: float) -> Figure:
    """Make a figure of its own, in inches: no window, no global state."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: Path) -> None:
    """Write a PNG, whole or not at all."""
    partial = path.with_name(f".{path.name}.part")
    dpi = min(150.0, LARGEST / max(figure.get_size_inches()))
    figure.savefig(partial, format="png", dpi=dpi)
    partial.replace(path)


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
    heads, length, key_length = weights.shape
    if (len(target), len(source)) != (length, key_length):
        raise ValueError(
            f"weights must have shape (H, L, S) with L={len(target)} and S={len(source)} tokens, "
            f"got {tuple(weights.shape)}"
        )
    font = font_for("".join((*source, *target, title)))
    panels = [("mean of the heads", weights.mean(0))]
    panels += [(f"head {head}", weights[head]) for head in range(heads)]
    columns = min(3, len(panels))
    rows = -(-len(panels) // columns)
    width, height = panel_size(target, source)
    figure = new_figure(width * columns, height * rows + 0.5)
    for number, (name, table) in enumerate(panels, start=1):
        axes = figure.add_subplot(rows, columns, number)
        image = draw_weights(axes, table, source=source, target=target, font=font, title=name)
    figure.colorbar(image, ax=figure.axes, label="weight", shrink=0.6)
    if title:
        figure.suptitle(title, fontproperties=font, fontsize=12, parse_math=False)
    save(figure, path)


def panel_size(target: Sequence[str], source: Sequence[str]) -> tuple[float, float]:
    """Find the size in inches that shows so many tokens."""
    return max(2.6, 0.34 * len(source) + 1.2), max(2.2, 0.30 * len(target) + 1.2)


def draw_weights(
    axes: Axes,
    table: Tensor,
    *,
    source: Sequence[str],
    target: Sequence[str],
    font: FontProperties,
    title: str,
) -> AxesImage:
    """Draw one head: weights of shape (L, S), black for 0 and bright for 1."""
    image = axes.imshow(table.float().numpy(), cmap="magma", vmin=0.0, vmax=1.0)
    axes.set_title(title, fontproperties=font, fontsize=10, parse_math=False)
    axes.set_xticks(range(len(source)), source, fontproperties=font, rotation=90, parse_math=False)
    axes.set_yticks(range(len(target)), target, fontproperties=font, parse_math=False)
    axes.tick_params(length=0)
    return image


def plot_side_by_side(looks: Sequence[tuple[str, Look]], path: Path, *, title: str) -> None:
    """Draw where several models looked in one sentence: a row for each layer, a panel a head.

    Models with a single panel share the first rows, so that they stand beside each other.

    Args:
        looks: Of each model, its name and where it looked.
        path: The PNG to write.
        title: Above the picture.
    """
    text = "".join(word for name, look in looks for word in (name, *look.source, *look.target))
    font = font_for(text + title)
    single: list[tuple[str, Look, Tensor]] = []
    rows: list[list[tuple[str, Look, Tensor]]] = []
    for name, look in looks:
        for number, weights in enumerate(look.weights.values(), start=1):
            layer = f"{name}, layer {number}" if len(look.weights) > 1 else name
            if len(weights) == 1 and len(look.weights) == 1:
                single.append((layer, look, weights[0]))
            else:
                heads = enumerate(weights, start=1)
                rows.append([(f"{layer}, head {head}", look, table) for head, table in heads])
    columns = max([len(row) for row in rows], default=min(4, len(single)))
    rows = [single[i : i + columns] for i in range(0, len(single), columns)] + rows
    sizes = [panel_size(look.target, look.source) for _, look in looks]
    width, height = (max(size) for size in zip(*sizes, strict=True))
    figure = new_figure(width * columns, height * len(rows) + 0.5)
    for row, panels in enumerate(rows):
        for column, (name, look, table) in enumerate(panels):
            axes = figure.add_subplot(len(rows), columns, row * columns + column + 1)
            image = draw_weights(
                axes, table, source=look.source, target=look.target, font=font, title=name
            )
    figure.colorbar(image, ax=figure.axes, label="weight", shrink=0.4)
    figure.suptitle(title, fontproperties=font, fontsize=12, parse_math=False)
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
        speed.scatter(
            result.decoding_speed,
            result.bleu,
            s=result.parameters / PARAMETERS_A_POINT,
            color=color,
        )
        speed.annotate(
            result.name,
            (result.decoding_speed, result.bleu),
            textcoords="offset points",
            xytext=(0, 12),
            ha="center",
            color=color,
            fontproperties=font,
            parse_math=False,
        )
    legend = loss.legend(loss.lines, [result.name for result in results], prop=font, frameon=False)
    for name in legend.get_texts():
        name.set_parse_math(False)
    lengths.set_xticks(range(len(groups)), groups)
    for axes, x, y in (
        (loss, "minutes of training", "validation loss per token (nats, label-smoothed)"),
        (bleu, "minutes of training", "BLEU of a validation sample, greedy"),
        (lengths, "characters of the source (number of sentences)", "BLEU of the test sentences"),
        (speed, "test sentences a second (area: parameters)", "BLEU of the test sentences"),
    ):
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        axes.grid(alpha=0.25)
        axes.spines[["top", "right"]].set_visible(False)
    speed.margins(0.2)
    for axes in (bleu, lengths, speed):
        axes.set_ylim(bottom=0.0)
    speed.set_xlim(left=0.0)
    save(figure, path)
