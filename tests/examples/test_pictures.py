import json
import logging
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib import font_manager
from matplotlib.image import imread

from transformer_blocks.explorer.fonts import font_for
from translation.pictures import plot_cross_attention, plot_loss


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
    plot_cross_attention(
        weights, source=list("猫は▁x"), target=["a", "b", "c"], path=tmp_path / "a.png", title="猫"
    )
    assert dict(mpl.rcParams) == before
    assert [file.name for file in tmp_path.iterdir()] == ["a.png"]


def test_where_a_weight_is_one_the_picture_is_bright(tmp_path: Path) -> None:
    weights = torch.zeros(1, 2, 2)
    weights[0, 0, 0] = weights[0, 1, 1] = 1.0
    for name, table in (("one", weights), ("none", torch.zeros(1, 2, 2))):
        plot_cross_attention(table, source=["a", "b"], target=["c", "d"], path=tmp_path / name)
    difference = imread(tmp_path / "one", format="png") - imread(tmp_path / "none", format="png")
    assert np.abs(difference).max() > 0.5


def test_labels_must_fit_the_weights(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"L=1 and S=2 tokens, got \(1, 3, 2\)"):
        plot_cross_attention(
            torch.zeros(1, 3, 2), source=["a", "b"], target=["c"], path=tmp_path / "a.png"
        )


def test_the_loss_picture_needs_one_epoch_only(tmp_path: Path) -> None:
    row = {"minutes": 1.0, "train_loss": 2.0, "validation_loss": 3.0, "validation_bleu": 4.0}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    plot_loss(tmp_path / "metrics.jsonl", tmp_path / "loss.png")
    assert imread(tmp_path / "loss.png").ndim == 3


def test_a_dollar_is_a_letter_not_a_formula(tmp_path: Path) -> None:
    plot_cross_attention(
        torch.ones(1, 1, 2) / 2,
        source=["$\\foo$", "$5"],
        target=["$x^$"],
        path=tmp_path / "a.png",
        title="$\\foo$ と $5^$",
    )
    assert imread(tmp_path / "a.png").ndim == 3
