"""Figures of attention maps: what they show, that nothing overlaps, and what they refuse."""

import io
import itertools
import math
import pickle
import re
import sys
from typing import Any

import matplotlib as mpl
import numpy as np
import pytest
import torch
from matplotlib.colors import to_rgb
from matplotlib.image import imread
from tests.explorer.page import SOURCE, TARGET, weights

from transformer_blocks import causal_mask
from transformer_blocks.explorer import plot_attention, plot_heads
from transformer_blocks.explorer.style import PALETTES, Theme

ROWS = ["the", "cat", "sleeps", "</s>"]  # TARGET without markers
COLUMNS = ["猫", "が", "眠\nる", "。", "</s>"]  # SOURCE, upright


def panels_of(figure: Any) -> list[Any]:
    return [axes for axes in figure.axes if axes.images]


def texts(labels: Any) -> list[str]:
    return [label.get_text() for label in labels]


def test_figures_show_each_head_with_its_tokens_and_change_no_global_setting() -> None:
    before = dict(mpl.rcParams)
    table = weights(3, 4, 5)
    names = "target", "source"
    figure = plot_heads(table, TARGET, SOURCE, title="猫 $x$", axis_names=names, columns=2)
    panels = panels_of(figure)
    borders = [[[x + 0.5, -0.5], [x + 0.5, 3.5]] for x in range(4)]
    borders += [[[-0.5, y + 0.5], [4.5, y + 0.5]] for y in range(3)]
    assert [axes.get_title(loc="left") for axes in panels] == [
        *("mean of the heads", "head 0", "head 1", "head 2"),
    ]
    for axes, expected in zip(panels, [table.mean(0), *table], strict=True):
        np.testing.assert_allclose(axes.images[0].get_array(), expected.numpy(), rtol=1e-6)
        assert texts(axes.get_xticklabels()) == COLUMNS
        assert texts(axes.get_yticklabels()) == ROWS
        paths = [path for lines in axes.collections for path in lines.get_paths()]
        assert [path.vertices.tolist() for path in paths] == borders
    assert [axes.get_ylabel() for axes in panels] == ["target", "", "target", ""]
    assert [axes.get_xlabel() for axes in panels] == ["", "", "source", "source"]
    assert figure.texts[0].get_position()[0] == pytest.approx(panels[0].get_position().x0)
    assert dict(mpl.rcParams) == before


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_range_from_the_background_at_zero_to_the_largest_weight(theme: Theme) -> None:
    table = torch.tensor([[[0.0, 0.3]], [[0.44, 0.1]]])
    figure = plot_heads(table, ["a"], ["b", "c"], theme=theme)
    palette, images = PALETTES[theme], [axes.images[0] for axes in panels_of(figure)]
    for image in images:
        assert image.get_clim() == (0.0, pytest.approx(0.44))
        assert image.cmap(0.0)[:3] == pytest.approx(to_rgb(palette.weights[0]))
        assert image.cmap(1.0)[:3] == pytest.approx(to_rgb(palette.weights[-1]))
    (bar,) = (axes for axes in figure.axes if not axes.images)
    figure.draw_without_rendering()
    assert texts(bar.get_yticklabels()) == ["0.0", "0.1", "0.2", "0.3", "0.44 (largest)"]
    assert bar.get_yticks()[-1] == pytest.approx(0.44)
    assert bar.get_ylabel() == "attention weight"
    assert {label.get_color() for label in bar.get_yticklabels()} == {palette.muted}
    picture = imread(io.BytesIO(figure._repr_png_()), format="png")
    assert picture[0, 0] == pytest.approx((*to_rgb(palette.background), 1.0), abs=0.01)


@pytest.mark.parametrize(("largest", "end"), [(1.0, "1.00"), (0.0123, "0.012"), (4e-5, "0.00004")])
def test_the_colour_bar_names_the_largest_weight(largest: float, end: str) -> None:
    figure = plot_attention(torch.tensor([[0.0, largest]]), ["a"], ["b", "c"])
    labels = texts(figure.axes[-1].get_yticklabels())
    assert labels[-1].startswith(end)
    assert labels[-1].endswith("(largest)")
    assert 3 <= len(set(labels)) == len(labels) <= 7
    figure = plot_attention(torch.zeros(1, 2), ["a"], ["b", "c"])
    assert figure.axes[0].images[0].get_clim() == (0.0, 1.0)


@pytest.mark.parametrize("size", [4, 400])
def test_masked_cells_are_hatched_and_grey(size: int) -> None:
    words, mask = ["x"] * size, causal_mask(size)
    axes = plot_attention(weights(size, size), words, words, mask=mask).axes[0]
    (area,) = axes.patches
    assert area.get_hatch()
    places = [(0, 399), (0, 5), (200, 206), (390, 398)] if size > 4 else mask.nonzero().tolist()
    for row, column in places:
        assert area.get_path().contains_point((column, row))
        assert not area.get_path().contains_point((row, column))
    _, cover = axes.images
    np.testing.assert_array_equal(cover.get_array(), mask.numpy())


def test_single_characters_and_japanese_are_upright_and_others_are_rotated() -> None:
    figure = plot_attention(weights(4, 5), TARGET, SOURCE)
    for copy in (figure, pickle.loads(pickle.dumps(figure))):
        labels = copy.axes[0].get_xticklabels()
        assert [label.get_rotation() for label in labels] == [0, 0, 0, 0, 90]
    keys = ["コーヒー", "「りますか」", "漢字x", "고양이", "猫" * 30]
    labels = plot_attention(weights(4, 5), TARGET, keys).axes[0].get_xticklabels()
    assert texts(labels) == [
        "コ\n｜\nヒ\n｜",
        "﹁\nり\nま\nす\nか\n﹂",
        "漢字x",
        "고\n양\n이",
        "猫\n" * 19 + "︙",
    ]


def boxes_of(figure: Any) -> tuple[list[Any], list[Any]]:
    """Measure the panels and the texts of a figure, in pixels."""
    figure.draw_without_rendering()
    shown = list(figure.texts)
    for axes in figure.axes:
        shown += [*axes.get_xticklabels(), *axes.get_yticklabels(), axes.xaxis.label]
        shown += [axes.yaxis.label, axes.title, axes._left_title]
    panels = [axes.get_window_extent() for axes in figure.axes]
    return panels, [text.get_window_extent() for text in shown if text.get_text()]


@pytest.mark.parametrize(
    ("heads", "keys", "title"),
    [
        (4, [*SOURCE, "りますか", "ありがとうございます"], "a title " * 30),
        (1, ["b"], "猫" * 90),
        (2, ["long" * 99, "w" * 40, "猫"], ""),
        (3, ["b", "c"], "self-attention"),
        (1, ["猫"] * 249 + ["long" * 99], "self-attention"),  # some labels are left out
    ],
)
def test_nothing_is_cut_off_and_no_texts_overlap(heads: int, keys: list[str], title: str) -> None:
    queries = keys if title == "self-attention" else [*TARGET, "a-long-token-of-the-target"]
    table = weights(heads, len(queries), len(keys))
    figure = plot_heads(table, queries, keys, title=title)
    panels, labels = boxes_of(figure)
    width, height = figure.get_size_inches() * figure.dpi
    for box in labels:
        assert box.x0 >= 0
        assert box.y0 >= 0
        assert box.x1 <= width
        assert box.y1 <= height
    slack = 1.0  # pixels, by which the boxes of glyphs exceed their ink
    for one, other in itertools.combinations([*panels, *labels], 2):
        across = min(one.x1, other.x1) - max(one.x0, other.x0)
        down = min(one.y1, other.y1) - max(one.y0, other.y0)
        assert min(across, down) <= slack


def test_lone_surrogates_are_drawn_as_replacement_characters() -> None:
    names = "\ud800", "\udfff"
    figure = plot_attention(weights(2, 2), names, names, title="a\ud900", axis_names=names)
    assert figure._repr_png_()
    (axes,) = panels_of(figure)
    texts = [axes.get_xlabel(), axes.get_ylabel(), *(each.get_text() for each in figure.texts)]
    texts += [label.get_text() for label in [*axes.get_xticklabels(), *axes.get_yticklabels()]]
    assert texts == ["\ufffd", "\ufffd", "a\ufffd", *"\ufffd\ufffd\ufffd\ufffd"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"weights": weights(4, 4)}, ValueError, r"^weights must have shape \(L, S\) = \(4, 5\)"),
        ({"weights": weights(4, 5) * math.nan}, ValueError, "^weights must be finite, got NaN or"),
        ({"mask": causal_mask(4)}, ValueError, r"^mask must have shape \(L, S\) = \(4, 5\)"),
        ({"mask": torch.zeros(4, 5)}, TypeError, "^mask must be bool, where True hides a key, got"),
        ({"theme": "blue"}, ValueError, "^theme must be 'light' or 'dark', got theme='blue'$"),
    ],
)
def test_figures_refuse_arguments_that_do_not_fit(
    options: dict[str, Any], error: type[Exception], message: str
) -> None:
    given: dict[str, Any] = {"weights": weights(4, 5), "queries": TARGET, "keys": SOURCE}
    with pytest.raises(error, match=message):
        plot_attention(**(given | options))
    with pytest.raises(ValueError, match=r"^columns must be positive"):
        plot_heads(weights(2, 4, 5), TARGET, SOURCE, columns=0)


def test_a_notebook_shows_a_figure_as_an_image() -> None:
    figure = plot_heads(weights(2, 4, 5), TARGET, SOURCE)
    height, width, _ = imread(io.BytesIO(figure._repr_png_()), format="png").shape
    assert (width, height) == tuple(figure.get_size_inches() * figure.dpi // 1)
    assert pickle.loads(pickle.dumps(figure))._repr_png_().startswith(b"\x89PNG")


def test_a_map_is_drawn_into_axes_of_another_figure() -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    assert plot_attention(weights(4, 5), TARGET, SOURCE, title="a", axes=left) is figure
    plot_attention(weights(4, 5), TARGET, SOURCE, title="b", axes=right)
    figure.draw_without_rendering()
    assert [axes.get_title(loc="left") for axes in panels_of(figure)] == ["a", "b"]
    assert [axes.get_ylabel() for axes in figure.axes] == [
        *("query", "query", "attention weight", "attention weight"),
    ]


@pytest.mark.parametrize(
    ("heads", "length", "key_length", "least"),
    [
        pytest.param(0, 2000, 2000, 300, marks=pytest.mark.slow),
        (3, 300, 500, 1800),  # which is shrunk, but not by more than is necessary
        pytest.param(12, 6, 30, 200, marks=pytest.mark.slow),
        pytest.param(2, 1, 9000, 80, marks=pytest.mark.slow),
    ],
)
def test_a_figure_stays_small_enough_to_be_rendered(
    heads: int, length: int, key_length: int, least: int
) -> None:
    shape = (heads, length, key_length)[not heads :]
    table = torch.zeros(shape)
    table[..., 0, -3] = 1.0
    queries, keys = ([f"w{place}" for place in range(size)] for size in shape[-2:])
    mask = torch.ones(length, key_length, dtype=torch.bool).triu(1)
    plot: Any = plot_heads if heads else plot_attention
    figure = plot(table, queries, keys, mask=mask)
    width, height = figure.get_size_inches()
    assert least < width * height < 2001  # square inches
    assert max(width, height) <= 300
    panels = panels_of(figure)
    assert len(panels) == (heads + 1 if heads else 1)
    numbers = sum(image.get_array().size for axes in panels for image in axes.images)
    assert numbers <= 5 * width * height * figure.dpi**2  # weights, and the colours of the mask
    for axes in panels:
        assert float(axes.images[0].get_array().max()) == 1.0  # a single large weight stays visible
        for labels, tokens in ((axes.get_xticklabels(), keys), (axes.get_yticklabels(), queries)):
            assert 1 <= len(labels) <= 160
            places = axes.get_xticks() if tokens is keys else axes.get_yticks()
            assert [tokens[round(place)] for place in places] == texts(labels)
        assert len(axes.patches) <= 160**2


def test_without_matplotlib_the_error_names_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    message = (
        'a figure needs matplotlib, which is not installed: pip install "transformer-blocks[plot]"'
    )
    with pytest.raises(ModuleNotFoundError, match=f"^{re.escape(message)}$"):
        plot_attention(weights(4, 5), TARGET, SOURCE)
