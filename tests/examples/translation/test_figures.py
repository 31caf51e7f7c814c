import logging
from pathlib import Path

import pytest
import torch
from matplotlib import font_manager
from matplotlib.image import imread

from common.plots import save
from transformer_blocks.explorer import plot_heads
from transformer_blocks.explorer.fonts import font_for
from translation.pictures import loss_figure

pytestmark = pytest.mark.usefixtures("pictures")


def has_glyphs(text: str) -> bool:
    glyphs: set[int] = set()
    for family in font_for(text).get_family():
        glyphs.update(font_manager.get_font(font_manager.findfont(family)).get_charmap())
    return glyphs.issuperset(map(ord, text))


def test_there_is_a_glyph_for_kanji_kana_and_the_mark_of_sentencepiece() -> None:
    assert has_glyphs("猫はかわいいねカタカナ▁A</s>")


def test_a_letter_without_a_glyph_is_named_with_what_to_install(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        font_for("猫\U000e0fff")
    assert len(caplog.records) == 1
    assert "U+E0FFF" in caplog.text
    assert "pip install matplotlib-fontja" in caplog.text


def test_the_loss_picture_needs_one_epoch_only(tmp_path: Path) -> None:
    row = {"minutes": 1.0, "train_loss": 2.0, "validation_loss": 3.0, "validation_bleu": 4.0}
    save(loss_figure([row]), tmp_path / "loss.png")
    assert imread(tmp_path / "loss.png").ndim == 3


def test_a_dollar_is_a_letter_not_a_formula(tmp_path: Path) -> None:
    weights = torch.ones(1, 1, 2) / 2
    figure = plot_heads(weights, ["$x^$"], ["$\\foo$", "$5"], title="$\\foo$ と $5^$")
    save(figure, tmp_path / "a.png")
    assert imread(tmp_path / "a.png").ndim == 3
