"""The explorer: refused arguments, the saved page, figures, and the page in a browser."""

import base64
import io
import itertools
import logging
import math
import pickle
import re
import secrets
import sys
import zlib
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.image import imread
from tests.page import HOSTILE, SOURCE, TARGET, data_of, make_explorer, weights

from transformer_blocks import causal_mask
from transformer_blocks.explorer import (
    AttentionMaps,
    DecodingSteps,
    Explorer,
    plot_attention,
    plot_heads,
    save_explorer,
)
from transformer_blocks.explorer.fonts import embedded_fonts, font_for
from transformer_blocks.explorer.tokens import token_labels

# --- The saved page ------------------------------------------------------------------------------


def test_the_page_holds_every_weight_with_12_bits() -> None:
    explorer = make_explorer()
    content = data_of(explorer.html)
    for maps, saved in zip(explorer.maps, content["maps"], strict=True):
        planes = np.frombuffer(zlib.decompress(base64.b64decode(saved["weights"])), np.uint8)
        low, high = planes.reshape(2, -1).astype(int)
        found = (low + 256 * high).reshape(maps.weights.shape) / content["levels"]
        np.testing.assert_allclose(found, maps.weights.numpy(), rtol=0, atol=0.5001 / 4095)
        assert saved["keys"] == [label.text for label in token_labels(maps.key_tokens)]


def test_the_representation_has_names_and_not_every_weight() -> None:
    assert repr(make_explorer()) == (
        "Explorer(maps=["
        "AttentionMaps('Encoder self-attention', weights of shape (2, 3, 5, 5)), "
        "AttentionMaps('Decoder self-attention', weights of shape (2, 3, 4, 4)), "
        "AttentionMaps('Cross-attention', weights of shape (2, 3, 4, 5))], "
        "title='猫が眠る。 → the cat sleeps', "
        "decoding=DecodingSteps(tokens=['▁the', '▁cat', '▁sleeps', '</s>']), model='')"
    )


def test_tokens_cannot_end_the_data_or_fill_placeholders_of_the_template() -> None:
    html = Explorer(
        [AttentionMaps(HOSTILE[0], weights(1, 1, 4, 4), HOSTILE)], title="{{data}}<b>"
    ).html
    assert data_of(html)["maps"][0]["queries"] == HOSTILE
    assert html.count("<script") == html.count("</script>") == 3
    assert "<title>{{data}}&lt;b&gt;</title>" in html


def test_six_layers_of_eight_heads_over_64_tokens_stay_below_a_megabyte() -> None:
    words = [f"token{number}" for number in range(64)]
    maps = [AttentionMaps(name, weights(6, 8, 64, 64), words) for name in "abc"]
    assert len(Explorer(maps).html.encode()) < 1_000_000


def test_a_saved_page_leaves_no_partial_file(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    explorer = make_explorer()
    save_explorer(path, explorer.maps, title=explorer.title, decoding=explorer.decoding)
    assert path.read_text(encoding="utf-8") == explorer.html
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_symbolic_links_are_not_followed_and_errors_name_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, path = tmp_path / "other", tmp_path / "page.html"
    other.write_text("unchanged")
    monkeypatch.setattr(secrets, "token_hex", lambda count: "guessed")
    (tmp_path / ".page.html.part").symlink_to(other)  # a name that can be guessed
    save_explorer(path, make_explorer().maps[:1])
    (tmp_path / ".guessed.part").symlink_to(other)
    with pytest.raises(FileExistsError) as caught:
        save_explorer(path, make_explorer().maps[:1])
    assert caught.value.filename == str(path)
    assert other.read_text() == "unchanged"
    assert (tmp_path / ".guessed.part").is_symlink()  # it is not removed either


def test_japanese_glyphs_are_embedded_and_latin_ones_are_not() -> None:
    rules = embedded_fonts("▁the 猫", "family")
    assert 'font-family: "family"' in rules
    assert "U+732B" in rules
    assert not re.search(r"U\+74\b", rules)
    assert embedded_fonts("the cat", "family") == ""


def test_korean_glyphs_are_embedded_beside_japanese_ones(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        rules = embedded_fonts("고양이 猫", "family")
    assert rules.count("@font-face") == 2
    for letter in "고양이猫":
        assert f"U+{ord(letter):X}" in rules
    assert caplog.messages == []


def test_the_word_mark_of_sentencepiece_is_embedded_without_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        assert "U+2581" in embedded_fonts("▁the 猫", "family")
    assert caplog.messages == []


def test_a_glyph_that_no_font_has_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        embedded_fonts("\U000e0fff", "family")
    assert "U+E0FFF" in caplog.text


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (
            {"weights": torch.ones(2, 3, 4)},
            ValueError,
            r"^weights of 'a' must have shape \(layers,",
        ),
        ({"weights": weights(1, 1, 4, 3)}, ValueError, r"with \(L, S\) = \(4, 4\) tokens, got"),
        ({"weights": weights(1, 1, 4, 4) * torch.nan}, ValueError, "must be numbers from 0 to 1"),
        ({"weights": weights(1, 1, 4, 4) * 9}, ValueError, "must be numbers from 0 to 1"),
        ({"weights": weights(0, 1, 4, 4)}, ValueError, "must not be empty"),
        ({"mask": torch.zeros(4, 4)}, TypeError, "^mask must be bool"),
        ({"mask": causal_mask(3)}, ValueError, r"^mask must have shape \(L, S\) = \(4, 4\)"),
    ],
)
def test_weights_and_masks_that_do_not_fit_are_refused(
    change: dict[str, Any], error: type[Exception], message: str
) -> None:
    parts: dict[str, Any] = {"weights": weights(1, 1, 4, 4)}
    with pytest.raises(error, match=message):
        AttentionMaps("a", queries=TARGET, **(parts | change))


def test_empty_pages_and_missing_steps_are_refused() -> None:
    with pytest.raises(ValueError, match=r"^maps must not be empty, got none$"):
        Explorer([])
    with pytest.raises(ValueError, match=r"got 1 tokens and 0 lists$"):
        DecodingSteps(["a"], [])
    with pytest.raises(ValueError, match=r"^probability of 'b' must be in \[0, 1\], got nan$"):
        DecodingSteps(["a"], [[("b", math.nan)]])
    maps = AttentionMaps("a", weights(1, 1, 4, 4), TARGET, is_decoding=True)
    for decoding, steps in ((None, 0), (DecodingSteps(["a"], [[]]), 1)):
        with pytest.raises(ValueError, match=f"got 4 queries and {steps} steps$"):
            Explorer([maps], decoding=decoding)


def test_a_page_that_cannot_be_saved_leaves_no_partial_file(tmp_path: Path) -> None:
    (tmp_path / "page.html").mkdir()
    with pytest.raises(OSError, match=r"page\.html"):
        make_explorer().save(tmp_path / "page.html")
    assert [file.name for file in tmp_path.iterdir()] == ["page.html"]


def test_characters_that_cannot_be_encoded_and_weights_with_gradients_are_shown(
    tmp_path: Path,
) -> None:
    tokens = ["\ud800", "\x1b", "\ufffe", "a"]
    maps = AttentionMaps("\udfff", weights(1, 1, 4, 4).requires_grad_(), tokens)
    page = Explorer([maps], "\ud800")
    page.save(tmp_path / "page.html")
    assert (
        data_of((tmp_path / "page.html").read_text(encoding="utf-8"))["maps"][0]["keys"] == tokens
    )


# --- Figures -------------------------------------------------------------------------------------


def test_figures_show_each_head_with_its_tokens_and_change_no_global_setting() -> None:
    before = dict(mpl.rcParams)
    table = weights(3, 4, 5)
    figure = plot_heads(table, TARGET, SOURCE, title="猫 $x$")
    panels = [axes for axes in figure.axes if axes.images]
    assert [axes.get_title() for axes in panels] == [
        *("mean of the heads", "head 1", "head 2", "head 3"),
    ]
    for axes, expected in zip(panels, [table.mean(0), *table], strict=True):
        np.testing.assert_allclose(axes.images[0].get_array(), expected.numpy(), rtol=1e-6)
        assert [label.get_text() for label in axes.get_xticklabels()] == SOURCE
        assert [label.get_text() for label in axes.get_yticklabels()] == TARGET
    assert dict(mpl.rcParams) == before


def test_masked_cells_are_hatched() -> None:
    mask = causal_mask(4)
    figure = plot_attention(weights(4, 4, mask=mask), TARGET, TARGET, mask=mask)
    (axes,) = figure.axes
    cells = {(round(p.get_y() + 0.5), round(p.get_x() + 0.5)) for p in axes.patches}
    assert cells == {(row, column) for row in range(4) for column in range(row + 1, 4)}


@pytest.mark.parametrize("plot", [plot_attention, plot_heads])
def test_figures_refuse_tokens_that_do_not_fit(plot: Any) -> None:
    table = weights(4, 4) if plot is plot_attention else weights(2, 4, 4)
    with pytest.raises(ValueError, match="with L=4 and S=5 tokens, got"):
        plot(table, TARGET, SOURCE)


def test_figures_refuse_nan_and_masks_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match=r"^weights must be finite, got NaN or infinity$"):
        plot_attention(weights(4, 5) * math.nan, TARGET, SOURCE)
    with pytest.raises(ValueError, match=r"^mask must have shape \(L, S\) = \(4, 5\), got"):
        plot_attention(weights(4, 5), TARGET, SOURCE, mask=causal_mask(4))
    with pytest.raises(ValueError, match=r"^columns must be positive"):
        plot_heads(weights(2, 4, 5), TARGET, SOURCE, columns=0)

    with pytest.raises(
        TypeError, match=r"^mask must be bool, where True hides a key, got dtype=torch\.float32$"
    ):
        plot_attention(weights(4, 5), TARGET, SOURCE, mask=torch.zeros(4, 5))


@pytest.mark.parametrize("plot", [plot_attention, plot_heads])
def test_a_notebook_shows_a_figure_as_an_image(plot: Any) -> None:
    table = weights(4, 5) if plot is plot_attention else weights(2, 4, 5)
    figure = plot(table, TARGET, SOURCE)
    height, width, _ = imread(io.BytesIO(figure._repr_png_()), format="png").shape
    assert (width, height) == tuple(figure.get_size_inches() * figure.dpi // 1)
    again = pickle.loads(pickle.dumps(figure))
    assert again._repr_png_().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("heads", "length", "key_length"), [(0, 2000, 2000), (3, 300, 500), (12, 6, 30), (2, 1, 9000)]
)
def test_a_figure_stays_small_enough_to_be_rendered(
    heads: int, length: int, key_length: int
) -> None:
    shape = (heads, length, key_length)[not heads :]
    table = torch.zeros(shape)
    table[..., 0, -3] = 1.0
    queries, keys = ([f"w{place}" for place in range(size)] for size in shape[-2:])
    mask = torch.ones(length, key_length, dtype=torch.bool).triu(1)
    plot: Any = plot_heads if heads else plot_attention
    figure = plot(table, queries, keys, mask=mask)
    width, height = figure.get_size_inches()
    assert width * height < 2001
    assert max(width, height) <= 300
    panels = [axes for axes in figure.axes if axes.images]
    assert len(panels) == (heads + 1 if heads else 1)
    numbers = sum(image.get_array().size for axes in panels for image in axes.images)
    assert numbers <= 5 * width * height * figure.dpi**2  # weights, and the colours of the mask
    for axes in panels:
        assert float(axes.images[0].get_array().max()) == 1.0  # a single large weight stays visible
        for labels, tokens in ((axes.get_xticklabels(), keys), (axes.get_yticklabels(), queries)):
            assert 1 <= len(labels) <= 160
            shown = {
                round(place): label.get_text()
                for place, label in zip(
                    axes.get_xticks() if tokens is keys else axes.get_yticks(), labels, strict=True
                )
            }
            assert all(tokens[place] == text for place, text in shown.items())
        assert len(axes.patches) <= 160**2


@pytest.mark.parametrize("size", [30, 250])
def test_labels_never_overlap(size: int) -> None:
    words = [f"word{place}" for place in range(size - 1)] + ["long" * 99]
    figure = plot_attention(weights(size, size), words, words)
    figure.draw_without_rendering()
    (axes,) = figure.axes
    for labels, side in ((axes.get_xticklabels(), "x"), (axes.get_yticklabels(), "y")):
        assert len(labels) == size or size == 250
        boxes = sorted(
            sorted((getattr(box, f"{side}0"), getattr(box, f"{side}1")))
            for box in (label.get_window_extent() for label in labels)
        )
        assert all(low[1] <= high[0] for low, high in itertools.pairwise(boxes))


def test_masked_cells_too_small_for_a_hatch_are_grey() -> None:
    words, mask = ["x"] * 400, causal_mask(400)
    (axes,) = plot_attention(weights(400, 400), words, words, mask=mask).axes
    assert not axes.patches
    cover = axes.images[1].get_array()
    np.testing.assert_array_equal(cover[..., 3] > 0, mask.numpy())


@pytest.mark.parametrize(
    "draw",
    [
        lambda: plot_attention(weights(4, 5), TARGET, SOURCE),
        lambda: plot_heads(weights(2, 4, 5), TARGET, SOURCE),
        lambda: font_for("a"),
    ],
)
def test_without_matplotlib_the_error_names_the_extra(
    draw: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = (
        'a figure needs matplotlib, which is not installed: pip install "transformer-blocks[plot]"'
    )
    with pytest.raises(ModuleNotFoundError, match=f"^{re.escape(message)}$"):
        draw()


def test_without_fonttools_a_page_is_saved_and_a_warning_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "fontTools", None)
    with caplog.at_level(logging.WARNING):
        assert "@font-face" not in make_explorer().html
    assert 'pip install "transformer-blocks[plot]"' in caplog.text
