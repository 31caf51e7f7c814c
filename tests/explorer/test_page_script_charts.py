"""The explorer's page without a browser: the arithmetic of a weight, its charts, and pictures."""

import csv
import io

import numpy as np
import pytest
from tests.explorer.page import FULLY_MASKED, SENTENCE, SOURCE, TARGET, weights
from tests.explorer.page_script import (
    LIGHT,
    QUANTUM,
    Script,
    labels,
    numbers,
    plain,
    table,
    with_arithmetic,
)

from transformer_blocks.explorer import AttentionMaps, DecodingSteps, Explorer

# --- Why: a weight's arithmetic -------------------------------------------------------------------


def test_the_panel_shows_the_arithmetic_of_the_locked_cell_and_only_then() -> None:
    page = with_arithmetic("#v=map&a=2&l=0&h=1&q=2&k=7")
    assert page("$('why').hidden") is True
    page("select({isLocked: true}), 0")
    weakest = int(page.explorer.maps[2].weights[0, 0, 3].argmin())
    for layer, head, row, column in ((0, 1, 2, 7), (1, 1, 2, 7), (1, 2, 0, 0), (0, 0, 3, weakest)):
        page(f"select({{layer: {layer}, head: {head}, row: {row}, column: {column}}})")
        weight = float(page.explorer.maps[2].weights[layer, head, row, column])
        text = page("$('why').querySelectorAll('strong').map(each => each.textContent)")
        assert float(text[0][:-2]) == pytest.approx(100 * weight, abs=0.03)
        assert page.text("why-cell").endswith(f"Cross, layer {layer}, head {head}")
        check_words(page)
        rows = page.children("why", "tr")
        buttons = "$('why').querySelectorAll('button').filter(each => 'key' in each.dataset)"
        keys = page(f"{buttons}.map(each => each.dataset.key)")
        listed = {int(key): cells for key, cells in zip(keys, rows[1:-2], strict=True)}
        values = page.explorer.maps[2].weights[layer, head, row]
        assert set(listed) == {*values.topk(5).indices.tolist(), column}
        for key, cells in listed.items():
            assert cells[0] == labels(SENTENCE)[key]
            score = page(f"decimal(computeArithmetic(state).scores[{key}])")
            assert cells[1] == score
            assert float(cells[3][:-2]) == pytest.approx(100 * float(values[key]), abs=0.06)
        others = values.sum() - sum(values[key] for key in listed)
        assert rows[-2][0] == f"{9 - len(listed)} other keys"
        assert float(rows[-2][3][:-2]) == pytest.approx(100 * float(others), abs=0.06)
        assert float(rows[-1][3][:-2]) == pytest.approx(100, abs=0.06)
    widths = "$('why').querySelectorAll('.bar').map(each => parseFloat(each.style.width))"
    assert max(page(widths)) == pytest.approx(100)  # of the largest weight
    page(f"{buttons}[1].click()")
    assert page("[state.row, state.column, state.isLocked]") == [3, keys[1], True]


def check_words(page: Script) -> None:
    """Check the sentences of the steps against the numbers of the selected weight."""
    sums, text = page("computeArithmetic(state)"), page.text("why")
    query, key, products = (sums[name] for name in ("query", "key", "products"))
    for i in np.argsort(np.abs(products))[:-3:-1]:
        factors = page(f"decimal({query[i]}) + ' × ' + inBrackets({key[i]})")
        assert f"feature {i}: {factors} = {page(f'decimal({products[i]})')}" in text
    for sign, name in ((1, "positive"), (-1, "negative")):
        total = sum(x for x in products if sign * x > 0)
        assert f"{name} {page(f'decimal({total})')}" in text
    best = int(np.argmax(sums["lengths"]))
    most = f"“{labels(SENTENCE)[best]}” supplies most"
    assert (most in text) == (best != page("state.column"))


def test_the_mask_step_counts_the_masked_keys() -> None:
    page = with_arithmetic("#v=map&a=1&h=0&q=0&k=0&lock=1")
    for row, text in (
        (0, "3 of 4 keys of this row are masked"),
        (FULLY_MASKED, "All keys of this row are masked: its weights and its output are zero."),
        (2, "1 of 4 keys of this row is masked"),
        (3, "No key of this row is masked"),
    ):
        page(f"select({{row: {row}}})")
        assert text in page.text("why")


def test_summaries_offer_the_heads_whose_weights_they_combine() -> None:
    page = with_arithmetic("#v=map&a=2&l=1&h=3&q=2&k=7&lock=1")
    buttons = "$('why').querySelectorAll('.heads')[0].children"
    found = page(f"{buttons}.map(each => each.textContent)")
    values = page.explorer.maps[2].weights[1, :, 2, 7]
    for head, text in enumerate(found):
        assert text.startswith(f"head {head}")
        percent = float(text.removeprefix(f"head {head}")[:-2])
        assert percent == pytest.approx(100 * float(values[head]), abs=0.06)
    page(f"{buttons}[1].click(), 0")
    assert page("[state.head, state.isLocked]") == [1, True]


def test_the_lens_follows_the_step_and_names_the_first_layer_that_agrees() -> None:
    tokens = TARGET[:2]
    layers = [
        [[("▁a", 0.5)], [("▁cat", 0.5), ("▁a", 0.25)]],
        [[("▁the", 0.75), ("▁a", 0.1)], [("▁cat", 0.9)]],
        [[("▁the", 0.9)], [("▁dog", 0.9)]],
    ]
    steps = DecodingSteps(tokens, [[], []], layers)
    own = AttentionMaps("Cross", weights(3, 1, 2, 5), tokens, SOURCE, is_decoding=True)
    other = AttentionMaps("Self", weights(3, 1, 2, 2), tokens)
    page = Script(Explorer([own, other], decoding=steps).html, "#v=map&a=0&q=0")
    for row, layer, first in ((0, 1, "a"), (1, 0, "cat")):
        page(f"select({{row: {row}, isLocked: true}})")
        text = page.text("lens")
        assert f"becomes the most probable token after layer {layer} (of 0 to 2)." in text
        assert f"“{labels(tokens)[row]}”" in text
        rows = page.children("lens", "tr")
        assert [cells[0] for cells in rows] == ["after", "layer 0", "layer 1", "layer 2"]
        assert rows[1][1].startswith(first)
        marked = page(
            "$('lens').querySelectorAll('.first').map(each => each.firstChild.textContent)"
        )
        assert marked == [f"layer {layer}"]
    page("select({attention: 1})")
    assert page("$('lens').hidden") is True


# --- Charts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [600, 80])
def test_bars_of_features_have_the_sign_and_size_of_their_numbers(width: int) -> None:
    page = plain()
    values = [0.1, 0.0625, 1.0, 0.125, -0.25, 0.5, -0.2, 0.3, 3.0, -2.0]
    marks = [-x for x in values]
    strip = [float(i - 4) for i in range(10)]
    given = f"strips: [['query', {strip}]], bars: {values}, marks: {marks}, name: 'n', height: 60"
    page(f"drawFeatures($('c'), {width}, {{{given}}})")
    drawn = page.drawn("c")
    shown = list(range(10)) if width == 600 else sorted(np.argsort(np.abs(values))[::-1][:6])
    rest = [] if width == 600 else [sum(values) - sum(values[i] for i in shown)]
    expected = [values[i] for i in shown] + rest
    found = [each for each in drawn if each[0] == "fill" and len(each[2]) == 5]
    zero = numbers(next(each[2] for each in drawn if "H" in each[2]))[1]
    lines = np.array(numbers(next(each[2] for each in drawn if "h" in each[2]))).reshape(-1, 3)
    unit = 60 / 6
    for value, (_, ink, (_, top, _, height, _)), (_, y, _) in zip(
        expected, found, lines, strict=True
    ):
        assert zero - (top if value > 0 else top + height) == pytest.approx(value * unit)
        assert ink == (LIGHT.differences[-1] if value > 0 else LIGHT.differences[0])
        assert zero - y == pytest.approx(-value * unit)


# --- Pictures -------------------------------------------------------------------------------------


def test_the_saved_weights_are_the_shown_ones_with_their_tokens() -> None:
    explorer = plain().explorer
    for address, expected in (
        ("#v=map&a=0&l=1&h=4", table(explorer, 0, 1, 4)),
        ("#v=story&a=0&l=1&h=2", table(explorer, 0, 1, 2)),
    ):
        page = plain(address)
        page("$('save-csv').click()")
        mark, *content = page("saved[0].parts")
        assert mark == "\ufeff"  # without which spreadsheets take UTF-8 for another encoding
        head, *rows = csv.reader(io.StringIO("".join(content)))
        assert head == ["", *labels(SOURCE)]
        assert [row[0] for row in rows] == labels(SOURCE)
        found = [[float(cell) for cell in row[1:]] for row in rows]
        np.testing.assert_allclose(found, expected, atol=4 * QUANTUM)


def test_a_token_with_quotes_is_one_cell_of_the_saved_weights() -> None:
    tokens = ['a "b", c', ","]
    maps = AttentionMaps("a", weights(1, 1, 2, 3), tokens, ["x", "y", '"'])
    page = Script(Explorer([maps]).html, "#v=map")
    head, *rows = csv.reader(io.StringIO(page("csvOf()")))
    assert (head[1:], [row[0] for row in rows]) == (["x", "y", '"'], tokens)
    assert page("fileName('csv')") == "a-layer-0-mean.csv"  # of a page without a model's name


def test_a_text_is_broken_between_words_and_ends_with_an_ellipsis() -> None:
    page = plain()
    lines = page("wrapText('one two three four', 35, {size: 10, most: 9})")
    assert lines == ["one two", "three", "four"]
    assert page("wrapText('one two three four', 35, {size: 10, most: 3})") == lines
    assert page("wrapText('one two three four', 35, {size: 10, most: 2})") == ["one two", "three…"]
    assert page("wrapText('猫が眠る', 10, {size: 10, most: 9})") == ["猫が", "眠る"]
