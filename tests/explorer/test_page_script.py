"""The explorer's page without a browser: its numbers, its selection, the overview and the map."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from tests.explorer.page import colour
from tests.explorer.page_script import (
    QUANTUM,
    Script,
    labels,
    plain,
    table,
    uneven,
    with_arithmetic,
)

from transformer_blocks.explorer import AttentionMaps, Explorer

WALK = [  # attention, layer and head, of which one changes at a time
    *((0, 0, 0), (1, 0, 0), (1, 1, 0), (1, 1, 2), (2, 1, 2), (2, 0, 2)),
    *((2, 0, 1), (0, 0, 1), (0, 1, 1), (1, 1, 1), (2, 1, 1), (2, 1, 0)),
]


# --- Numbers --------------------------------------------------------------------------------------


def test_heads_means_and_rollout_are_those_of_the_weights() -> None:
    page = plain()
    for attention, layer in itertools.product(range(3), range(2)):
        for column in range(5 if page.explorer.maps[attention].keys is None else 4):
            found = page(f"weightsOf({attention}, {layer}, {column})")
            expected = table(page.explorer, attention, layer, column).ravel()
            np.testing.assert_allclose(found, expected, rtol=0, atol=2 * QUANTUM)


def test_the_arithmetic_is_that_of_the_library_for_one_cell_after_another() -> None:
    page = with_arithmetic("#v=map&a=0&h=0&lock=1")
    page("attentions.slice(0, 3).map(decodeArithmetic).length")
    for attention, layer, head in WALK:
        maps = page.explorer.maps[attention]
        assert maps.arithmetic is not None
        query, key, value = (
            getattr(maps.arithmetic, name)[layer, head].double().numpy()
            for name in ("query", "key", "value")
        )
        row, column = (layer + 2 * head) % len(query), (attention + head) % len(key)
        place = {"attention": attention, "layer": layer, "head": head, "row": row, "column": column}
        found = page(f"computeArithmetic({place})")
        expected = maps.weights[layer, head, row].double().numpy()
        dots = key @ query[row]
        masked = np.zeros(len(key), bool) if maps.mask is None else maps.mask[row].numpy()
        assert found["masked"] == masked.tolist()
        assert found["isFullyMasked"] == bool(masked.all())
        unscaled = np.where(masked, 0, np.exp(dots - dots.max()))
        lengths = expected * np.linalg.norm(value, axis=-1)
        pairs = {
            "weights": expected,
            "weight": expected[column],
            "stored": expected[column],
            "dots": dots,
            "scores": dots * maps.arithmetic.factor,
            "products": query[row] * key[column],
            "output": expected @ value,
            "contribution": expected[column] * value[column],
            "unscaled": unscaled / (unscaled.sum() or 1),
            "lengths": lengths,
            "share": lengths[column] / (lengths.sum() or 1),
        }
        for name, values in pairs.items():
            np.testing.assert_allclose(found[name], values, rtol=0, atol=4e-3, err_msg=name)
        if not masked.all():
            assert found["sum"] == pytest.approx(1 / found["weights"][np.argmax(found["weights"])])


def test_causal_attention_without_a_mask_is_computed_with_the_causal_mask() -> None:
    decoder = with_arithmetic().explorer.maps[0]
    assert decoder.arithmetic is not None
    scores = decoder.arithmetic.query @ decoder.arithmetic.key.mT * 0.2
    future = torch.ones(4, 4, dtype=torch.bool).triu(1)
    causal = scores.masked_fill(future, -torch.inf).softmax(dim=-1)
    maps = AttentionMaps("Causal", causal, decoder.queries, arithmetic=decoder.arithmetic)
    page = Script(Explorer([maps]).html, "#v=map&h=0&lock=1")
    found = page("computeArithmetic({attention: 0, layer: 1, head: 2, row: 1, column: 0})")
    assert found["masked"] == [False, False, True, True]
    np.testing.assert_allclose(found["weights"], causal[1, 2, 1], atol=1e-3)


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("decimal(-0.001)", "0.00"),
        ("decimal(-1.234)", "\u22121.23"),
        ("decimal(1234.5678)", "1235"),
        ("decimal(-Infinity)", "\u2212\u221e"),
        ("small(0) + small(.5) + small(.00012)", "00.5001e\u22124"),
        ("exactPercent(.12345)", "12.35\u00a0%"),
        ("percent(.125)", "12.5 %"),
        ("percent(.125, true)", "+12.5 %"),
        ("percent(-.00001, true)", "0.0 %"),
        ("percent(-.2, true)", "-20.0 %"),
        ("wholePercent(.004)", "<1\u00a0%"),
        ("wholePercent(.126)", "13\u00a0%"),
        ("inSentence('x'.repeat(99))", "x" * 59 + "…"),
        ("inSentence('x'.repeat(60))", "x" * 60),
        ("inSentence('שלום')", "\u2068שלום\u2069"),
        ("nameToken('')", "the empty token"),
        ("nameOf({attention: 2, layer: 0, head: 1})", "Cross-attention, layer 0, head 1"),
    ],
)
def test_numbers_and_names_as_text(expression: str, text: str) -> None:
    assert plain()(expression) == text


def test_the_largest_value_of_each_part_of_a_map_is_kept() -> None:
    page, values = plain(), torch.rand(7, 11)
    found = page(f"reduceByMaximum({values.flatten().tolist()}, 7, 11, 3, 4)")
    expected = torch.zeros(3, 4)
    for y, x in itertools.product(range(7), range(11)):
        place = y * 3 // 7, x * 4 // 11
        expected[place] = max(expected[place], values[y, x])
    np.testing.assert_allclose(found, expected.flatten(), rtol=1e-6)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_are_those_of_the_figures(theme: Any) -> None:
    page = plain("#v=map")
    page(f"setTheme('{theme}')")
    for part in (0, 0.1, 0.5, 0.77, 1):
        found = page(f"colour(palette().weights, {part})")
        np.testing.assert_allclose(found, colour(theme, part), atol=0.51)
        packed = page(f"coloursOf([{part}], palette().weights, x => x)")[0]
        channels = [packed >> shift & 255 for shift in (0, 8, 16, 24)]
        np.testing.assert_allclose(channels, [*colour(theme, part), 255], atol=1)


# --- What is selected -----------------------------------------------------------------------------


def test_the_laboratory_begins_with_the_last_mean_of_the_cross_attention() -> None:
    selected = "[state.view, state.attention, state.layer, state.head]"
    assert plain("#v=story")(selected) == ["story", 2, 1, 3]
    assert uneven("#v=map")(selected) == ["map", 0, 2, 4]


@pytest.mark.parametrize(
    "address",
    [
        "#v=map&a=1&l=0&h=2&q=3&k=1",
        "#v=map&a=0&l=1&h=4&q=0&k=4&lock=1",
        "#v=story&a=2&l=0&h=1&q=2&k=3&lock=1&side=keys",
    ],
)
def test_an_address_restores_the_whole_selection(address: str) -> None:
    page = plain(address)
    assert page("addressOf(state)") == address
    other = plain("#v=map&a=1&l=0&h=0&q=1&k=0&lock=1&side=keys")
    other.go(address)
    assert other("addressOf(state)") == address
    assert other("$('head').hidden") == (other("state.view") == "story")


def test_an_address_that_does_not_fit_is_brought_into_range() -> None:
    page = uneven("#v=map&a=1&l=9&h=9&q=9&k=9&side=keys")
    expected = "#v=map&a=1&l=0&h=2&q=1&k=2"
    assert page("addressOf(state)") == expected


def test_another_attention_keeps_nothing_that_it_does_not_have() -> None:
    page = uneven("#v=map&a=0&l=2&h=3&q=4&k=4&lock=1")
    page("select({attention: 1})")
    assert page("addressOf(state)") == "#v=map&a=1&l=0&h=2&q=1&k=2&lock=1"
    page("select({attention: 0, head: 1})")
    assert page("[state.head, state.layer]") == [1, 0]


def test_quick_changes_are_one_entry_of_the_history_and_passing_over_is_none() -> None:
    page = plain("#v=map&a=0")
    page("select({row: 1}, {record: false}), pass(300)")
    assert (page("history.pushed"), "q=1" in page("location.hash")) == ([], True)
    page("select({row: 2}), select({column: 3}), select({row: 0}, {record: false})")
    assert page("pass(100), history.pushed") == []
    assert (
        page("pass(200), history.pushed") == [page("location.hash")] == [page("addressOf(state)")]
    )
    page("select({row: 1}, {record: false}), pass(300)")
    assert page("history.pushed.length") == 1
    page("select({row: 3})")
    page.go("#v=map&a=0&q=1")  # before the change was recorded
    assert page("pass(300), [history.pushed.length, state.row]") == [1, 1]
    assert page("location.hash") == "#v=map&a=0&q=1"


# --- The overview and the map ---------------------------------------------------------------------


def test_the_map_shows_the_selected_head() -> None:
    page = plain("#v=map&a=0&l=0&h=0")
    for layer, column in ((0, 0), (1, 0), (1, 3), (0, 4)):
        page(f"select({{layer: {layer}, head: {column}}})")
        values = table(page.explorer, 0, layer, column)
        most = values.max()
        found = page("shown()")
        np.testing.assert_allclose(found["values"], values.ravel(), rtol=0, atol=4 * QUANTUM)
        assert found["most"] == pytest.approx(most, abs=1e-3)
        image = next(image for kind, image, *_ in page.drawn("map") if kind == "cells")
        pixels = np.array(image["data"]).reshape(5, 5, 4)[..., :3]
        for (row, cell), value in np.ndenumerate(values):
            expected = page(f"colour(palette().weights, {value / most})")
            np.testing.assert_allclose(pixels[row, cell], expected, atol=2)
        marks = [float(page.text(name).strip(" %")) for name in ("low", "middle", "high")]
        np.testing.assert_allclose(marks, [0, 50 * most, 100 * most], atol=0.11)
        assert page.text("name") == page("nameOf(state)")


def test_a_cell_is_found_where_it_is_drawn() -> None:
    page = uneven("#v=map&a=2&l=0&h=0&q=30&k=7")
    window = page("layout")
    (box,) = (each[2] for each in page.drawn("map") if each[0] == "cells")
    cell = window["cell"]
    assert box == pytest.approx([window["left"], window["top"], 40 * cell, 40 * cell])
    for row, column in ((30, 7), (0, 0), (39, 39), (28, 9)):
        x = window["left"] + (column + 0.4) * cell
        y = window["top"] + (row + 0.6) * cell
        place = {"clientX": x, "clientY": y}
        assert page(f"placeAt({place})") == {"row": row, "column": column}
        beside = page(f"[placeAt({place | {'clientX': 3}}), placeAt({place | {'clientY': 3}})]")
        assert beside == [{"row": row, "column": 7}, {"row": 30, "column": column}]
    assert page("placeAt({clientX: 3, clientY: 3})") is None


def test_labels_stand_beside_their_row_or_column_and_apart_from_each_other() -> None:
    page = uneven("#v=map&a=2&l=0&h=0&q=17&k=25")
    window, names = page("layout"), labels(page.explorer.maps[2].queries)
    found = page("explorerLayout().labels")
    for axis, start, chosen in (("row", "top", 17), ("column", "left", 25)):
        own = [label for label in found if label["axis"] == axis]
        assert [label["index"] for label in own if label["isSelected"]] == [chosen]
        assert len({label["index"] for label in own}) == len(own) > 5
        for label in own:
            middle = window[start] + (label["index"] + 0.5) * window["cell"]
            assert label["middle"] == pytest.approx(middle)
            assert names[label["index"]].startswith(label["text"].rstrip("…"))
        middles = sorted(label["middle"] for label in own)
        assert np.diff(middles).min() >= 11


def test_a_finger_selects_the_largest_weight_below_it() -> None:
    page = uneven("#v=map&a=2&l=0&h=0")
    page("layout.cell = 4")
    reach = 3
    values = table(page.explorer, 2, 0, 0)
    for row, column in ((20, 20), (0, 39)):
        found = page(f"underFinger({{row: {row}, column: {column}}})")
        top, left = max(0, row - reach), max(0, column - reach)
        part = values[top : row + reach + 1, left : column + reach + 1]
        y, x = np.unravel_index(part.argmax(), part.shape)
        assert (found["row"], found["column"]) == (top + y, left + x)


def test_a_pointer_selects_cells_until_a_click_locks_one() -> None:
    page = plain("#v=map&a=2&l=0&h=1")

    def point(kind: str, column: float, row: float) -> list[Any]:
        x, y = (
            f"layout.{side} + {at} * layout.cell" for side, at in (("left", column), ("top", row))
        )
        page(f"$('map').fire('{kind}', {{clientX: {x}, clientY: {y}, pointerType: 'mouse'}}).type")
        found: list[Any] = page("[state.row, state.column, state.isLocked]")
        return found

    assert point("pointermove", 3.5, 1.5) == [1, 3, False]
    assert point("click", 2.5, 2.5) == [2, 2, True]
    assert point("pointermove", 0.5, 0.5) == [2, 2, True]
    page("$('unlock').click()")
    assert point("pointermove", 0.5, 0.5) == [0, 0, False]
