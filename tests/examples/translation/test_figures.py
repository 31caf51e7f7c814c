import logging
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import font_manager
from matplotlib.colors import to_rgb
from matplotlib.image import imread

from common.plots import save
from transformer_blocks.explorer import plot_heads
from transformer_blocks.explorer.fonts import font_for
from transformer_blocks.explorer.style import PALETTES
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


def test_drawing_changes_no_global_setting(tmp_path: Path) -> None:
    before = dict(mpl.rcParams)
    weights = torch.rand(2, 3, 4).softmax(-1)
    save(plot_heads(weights, ["a", "b", "c"], list("猫は▁x"), title="猫"), tmp_path / "a.png")
    assert dict(mpl.rcParams) == before
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]


def test_half_of_the_cells_have_the_colour_of_the_largest_weight(tmp_path: Path) -> None:
    weights = torch.tensor([[[0.7, 0.0], [0.0, 0.7]]])
    save(plot_heads(weights, ["c", "d"], ["a", "b"]), tmp_path / "a.png")
    picture = imread(tmp_path / "a.png")[..., :3]
    first, last = (
        np.isclose(picture, to_rgb(PALETTES["light"].weights[end]), atol=0.01).all(-1)
        for end in (0, -1)
    )
    height, width = picture.shape[:2]
    across, down = np.nonzero(last.any(0))[0], np.nonzero(last.any(1))[0]
    cells = last[down[0] : down[-1], across[0] : across[-1]]
    assert last.sum() > 0.05 * height * width
    assert first.sum() > last.sum()
    assert 0.2 < cells.mean() < 0.5  # of two panels with a space between them


def test_the_loss_picture_needs_one_epoch_only(tmp_path: Path) -> None:
    row = {"minutes": 1.0, "train_loss": 2.0, "validation_loss": 3.0, "validation_bleu": 4.0}
    save(loss_figure([row]), tmp_path / "loss.png")
    assert imread(tmp_path / "loss.png").ndim == 3


def test_a_dollar_is_a_letter_not_a_formula(tmp_path: Path) -> None:
    weights = torch.ones(1, 1, 2) / 2
    figure = plot_heads(weights, ["$x^$"], ["$\\foo$", "$5"], title="$\\foo$ と $5^$")
    save(figure, tmp_path / "a.png")
    assert imread(tmp_path / "a.png").ndim == 3
