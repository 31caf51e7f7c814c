"""Pictures: the loss as it fell, and what the decoder looked at while it wrote."""

import importlib.util
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib import font_manager
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from torch import Tensor

log = logging.getLogger(__name__)

PLOTTED = {"minutes", "train_loss", "validation_loss", "validation_bleu"}
"""What a row of the metrics must have."""
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
    figure.savefig(partial, format="png", dpi=150)
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
    width = max(2.6, 0.34 * key_length + 1.2)
    height = max(2.2, 0.30 * length + 1.2)
    figure = new_figure(width * columns, height * rows + 0.5)
    image = None
    for number, (name, table) in enumerate(panels, start=1):
        axes = figure.add_subplot(rows, columns, number)
        image = axes.imshow(table.float().numpy(), cmap="magma", vmin=0.0, vmax=1.0)
        axes.set_title(name, fontsize=10)
        axes.set_xticks(
            range(key_length), source, fontproperties=font, rotation=90, parse_math=False
        )
        axes.set_yticks(range(length), target, fontproperties=font, parse_math=False)
        axes.tick_params(length=0)
    if image is not None:
        figure.colorbar(image, ax=figure.axes, label="weight", shrink=0.6)
    if title:
        figure.suptitle(title, fontproperties=font, fontsize=12, parse_math=False)
    save(figure, path)
