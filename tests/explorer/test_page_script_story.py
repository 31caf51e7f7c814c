"""The explorer's page without a browser: the story and the decoding steps."""

import itertools
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from tests.explorer.page import FULLY_MASKED, SOURCE, TARGET, make_explorer_with_arithmetic, weights
from tests.explorer.page_script import (
    QUANTUM,
    Script,
    labels,
    numbers,
    plain,
    table,
    uneven,
    with_arithmetic,
)

from transformer_blocks.explorer import AttentionMaps, Explorer
from transformer_blocks.explorer.style import LINES


def test_the_weights_of_a_token_are_those_of_the_shown_head() -> None:
    page = plain("#v=story&a=2")
    for layer, head in ((1, 3), (0, 2), (0, 1)):
        page(f"select({{layer: {layer}, head: {head}}})")
        expected = table(page.explorer, 2, layer, head)
        np.testing.assert_allclose(page("storyWeights()"), expected.ravel(), atol=2 * QUANTUM)
        for row in range(4):
            found = page(f"weightsAt({{side: 'queries', index: {row}}})")
            np.testing.assert_allclose(found, expected[row], atol=2 * QUANTUM)
        for column in range(5):
            found = page(f"weightsAt({{side: 'keys', index: {column}}})")
            np.testing.assert_allclose(found, expected[:, column], atol=2 * QUANTUM)


def test_the_sentence_names_the_largest_weights() -> None:
    page = plain("#v=story&a=2&l=0&h=1")
    keys, queries = labels(SOURCE), labels(TARGET)
    values = table(page.explorer, 2, 0, 1)
    row, column = np.unravel_index(values.argmax(), values.shape)
    assert page.text("story-sentence") == (
        f"The largest weight: “{queries[row]}” attends to “{keys[column]}” "
        f"({100 * values.max():.0f} %)."
    )
    page(f"pointAt({{side: 'queries', index: {3 - row}}})")
    best = values[3 - row].argmax()
    start = (
        f"“{queries[3 - row]}” attends most to “{keys[best]}” ({100 * values[3 - row].max():.0f} %)"
    )
    assert page.text("story-sentence").startswith(start)
    page("pointAt({side: 'keys', index: 2})")
    start = f"“{keys[2]}” receives most attention from “{queries[values[:, 2].argmax()]}” ("
    assert page.text("story-sentence").startswith(start)
    row = values[:, 1].argmin()
    page(f"pointAt(null), select({{isLocked: true, side: 'keys', row: {row}, column: 1}})")
    end = f"The weight of “{queries[row]}” to “{keys[1]}” is {100 * values[row, 1]:.0f} %."
    assert page.text("story-sentence").endswith(end)


def test_a_fully_masked_query_attends_to_no_token() -> None:
    page = with_arithmetic("#v=story&a=1&l=0&h=0")
    page(f"pointAt({{side: 'queries', index: {FULLY_MASKED}}})")
    assert page.text("story-sentence").endswith("is fully masked: it attends to no token.")
    page("pointAt({side: 'queries', index: 2})")
    masked = "[...$('story-keys').children].map(each => each.classList.contains('masked'))"
    assert page(masked) == [False, False, False, True]
    page("pointAt({side: 'keys', index: 2})")
    masked = masked.replace("keys", "queries")
    assert page(masked) == [True, True, False, False]


def test_a_click_locks_a_token_and_another_on_the_other_side_selects_a_cell() -> None:
    page = plain("#v=story&a=2&l=1&h=0")
    values = table(page.explorer, 2, 1, 0)

    def click(side: str, index: int) -> list[Any]:
        page(f"$('story-{side}').children[{index}].click()")
        found: list[Any] = page("[state.isLocked, state.side, state.row, state.column]")
        return found

    assert click("queries", 2) == [True, "queries", 2, values[2].argmax()]
    assert click("keys", 1) == [True, "queries", 2, 1]
    assert click("queries", 2)[0] is False
    assert click("keys", 4) == [True, "keys", values[:, 4].argmax(), 4]
    assert page("shownToken()") == {"side": "keys", "index": 4}
    page("$('story-figure').click()")
    assert page("[state.isLocked, state.side, shownToken()]") == [False, "queries", None]


def test_on_a_narrow_screen_each_side_is_a_column_and_ribbons_go_from_one_to_the_other() -> None:
    page = uneven("#v=story&a=2&l=0&h=0")
    page("$('story-figure').clientWidth = 360")
    layout = page("measureStory(), story.layout")
    assert layout["isColumns"]
    for side in ("keys", "queries"):
        items = layout[side]
        assert [item["index"] for item in items] == list(range(40))
        for before, item in itertools.pairwise(items):
            assert item["y"] >= before["y"] + before["height"]
        for item in items:
            assert 0 <= item["x"] <= item["x"] + item["width"] <= layout["width"]
            assert item["y"] + item["height"] <= layout["height"]
    assert {item["x"] + item["width"] for item in layout["keys"]} == {layout["keyEnd"]}
    assert {item["x"] for item in layout["queries"]} == {layout["queryStart"]}
    for ribbon in page("ribbonsOf(story.layout, null)"):
        for side, place in (("keys", "column"), ("queries", "row")):
            item = layout[side][ribbon[place]]
            assert item["y"] <= ribbon[side] <= item["y"] + item["height"]


@pytest.mark.parametrize("width", [560, 700, 1200])
def test_tokens_are_placed_in_lines_without_overlaps_and_words_are_not_divided(width: int) -> None:
    page = uneven("#v=story&a=2")
    words = page("attentions[2].keyWords")
    layout = page(f"layOutStory({width})")
    for side in ("keys", "queries"):
        items = layout[side]
        assert [item["index"] for item in items] == list(range(40))
        for before, item in itertools.pairwise(items):
            assert 0 <= item["x"] <= item["x"] + item["width"] <= width + 0.5
            if item["line"] == before["line"]:
                assert item["y"] == before["y"]
                assert item["x"] >= before["x"] + before["width"]
            else:
                assert item["line"] == before["line"] + 1
                assert item["y"] >= before["y"] + before["height"]
                assert words[item["index"]] == "1"
        assert items[-1]["line"] > 0
        above = items[-1]["y"] + items[-1]["height"]
        assert above <= layout["keyEnd" if side == "keys" else "height"]
    assert layout["queries"][0]["y"] == layout["queryStart"] > layout["keyEnd"] + 100


def test_each_ribbon_is_a_weight_between_its_tokens_in_the_colour_of_its_head() -> None:
    page = plain("#v=story&a=2&l=0&h=0")
    for head, token in (
        *((3, "null"), (1, "null")),
        *((0, "{side: 'queries', index: 2}"), (2, "{side: 'keys', index: 4}")),
    ):
        page(f"select({{head: {head}}})")
        ribbons = page(f"ribbonsOf(story.layout, {token})")
        least, layout = 0.01 if token == "null" else 0.002, page("story.layout")
        expected = {}
        for (row, column), weight in np.ndenumerate(table(page.explorer, 2, 0, head)):
            own = ("queries" in token and row != 2) or ("keys" in token and column != 4)
            if weight >= least and not own:
                expected[row, column] = weight
        assert {(each["row"], each["column"]) for each in ribbons} == set(expected)
        sizes = [each["weight"] for each in ribbons]
        assert sizes == sorted(sizes)
        for each in ribbons:
            place = each["row"], each["column"]
            assert each["weight"] == pytest.approx(expected[place], abs=2 * QUANTUM)
            assert each["colour"] == LINES[place[0] if head == 3 else head]
            assert each["width"] == pytest.approx(max(0.6, 24 * each["weight"]))
        check_ends(ribbons, layout)


def check_ends(ribbons: list[Any], layout: Any) -> None:
    """Check that ribbons end side by side within their tokens, in the order of their other ends."""
    for side, own, other, others in (
        ("queries", "row", "column", "keys"),
        ("keys", "column", "row", "queries"),
    ):
        for index, item in enumerate(layout[side]):
            group = [each for each in ribbons if each[own] == index]
            group.sort(key=lambda each: each[side])
            ends = [layout[others][each[other]]["x"] for each in group]
            assert ends == sorted(ends)
            for each in group:
                assert item["x"] <= each[side] <= item["x"] + item["width"]
            if group:
                scale = min(1, (item["width"] - 4) / sum(each["width"] for each in group))
                for left, right in itertools.pairwise(group):
                    gap = (left["width"] + right["width"]) / 2 * scale
                    assert right[side] - left[side] == pytest.approx(gap)


def test_a_drawn_ribbon_leads_from_its_key_to_its_query() -> None:
    page = plain("#v=story&a=2&l=0&h=1")
    ribbons, layout = page("ribbonsOf(story.layout, null)"), page("story.layout")
    drawn = [each for each in page.drawn("story-all") if each[0] == "stroke"]
    assert len(drawn) == len(ribbons) > 5
    for (_, ink, path, line), ribbon in zip(drawn, ribbons, strict=True):
        x, y, *_, to_x, to_y = numbers(path)
        key, query = layout["keys"][ribbon["column"]], layout["queries"][ribbon["row"]]
        assert (x, to_x) == pytest.approx((ribbon["keys"], ribbon["queries"]), abs=0.06)
        assert key["y"] + key["height"] <= y < to_y <= query["y"]
        assert (ink, line) == (LINES[1], ribbon["width"])
    page("pointAt({side: 'keys', index: 0})")
    assert page("story.drawn.one") == page("ribbonsOf(story.layout, story.pointed).length")
    texts = [each[3] for each in page.drawn("story-one") if each[0] == "text"]
    values = page("weightsAt(story.pointed)")
    assert sorted(texts) == sorted(page(f"wholePercent({x})") for x in values if x >= 0.03)


def test_the_sides_are_named_with_their_roles() -> None:
    maps = AttentionMaps("a", weights(1, 1, 1, 1), ["x"], query_axis="target", key_axis="source")
    page = Script(Explorer([maps]).html)
    sides = "['keys', 'queries'].map(side => axisLabel(attentions[{}], side))"
    assert page(sides.format(0)) == ["Source (keys)", "Target (queries)"]
    page = plain()
    assert page(sides.format(2)) == ["Keys", "Output (queries)"]


def test_only_the_strongest_of_too_many_weights_are_drawn() -> None:
    page = uneven("#v=story&a=2")
    layout = "{...story.layout, least: 0}"
    for layer in (1, 0):
        page(f"select({{layer: {layer}}})")
        values = np.sort(page("storyWeights()"))
        assert page(f"leastDrawn({layout})") == values[-1500]
    assert page(f"ribbonsOf({layout}, null).length") >= 1500
    assert page("leastDrawn(story.layout)") == 0.05
    weak = torch.tensor([[[[0.005, 0.995], [0.001, 0.999]]]])
    other = Script(Explorer([AttentionMaps("Weak", weak, ["x", "y"])]).html, "#v=story")
    for token, count in (
        ("null", 2),
        ("{side: 'queries', index: 0}", 2),
        ("{side: 'keys', index: 0}", 1),
    ):
        assert other(f"ribbonsOf(story.layout, {token}).length") == count


def test_of_many_tokens_the_largest_weights_of_each_query_are_drawn() -> None:
    count = 41
    stack = weights(1, 2, count, count)
    page = Script(Explorer([AttentionMaps("Long", stack, ["x"] * count)]).html, "#v=story&h=1")
    found = page("ribbonsOf(story.layout, null).map(each => [each.row, each.column])")
    expected = [
        [row, column]
        for row, columns in enumerate(stack[0, 1].topk(3).indices.tolist())
        for column in columns
    ]
    assert sorted(found) == sorted(expected)
    assert "the 3 largest weights of each query" in page.text("story-note")
    token = "{side: 'queries', index: 7}"
    assert page(f"ribbonsOf(story.layout, {token}).length") == int((stack[0, 1, 7] >= 0.002).sum())


def test_the_headline_is_no_row_with_one_key_that_is_not_masked() -> None:
    mask = torch.tensor([[False, True], [False, False]])
    table = torch.tensor([[[[1.0, 0.0], [0.3, 0.7]]]])
    for shown, row in ((mask, "y"), (None, "x")):
        maps = AttentionMaps("Self", table, ["x", "y"], mask=shown)
        page = Script(Explorer([maps]).html, "#v=story&h=0")
        assert page.text("story-sentence").startswith(f"The largest weight: “{row}” attends")


def test_a_slider_shows_earlier_times_of_the_training_and_play_goes_through_them() -> None:
    page, times = make_explorer_with_arithmetic(), ["0 updates", "10 updates", "20 updates"]
    earlier = [
        replace(page, maps=[shifted(each, number) for each in page.maps], model=name, title=name)
        for number, name in enumerate(times[:2])
    ]
    script = Script(replace(page, model=times[2], earlier=earlier).html, "#v=story&a=2&h=1")
    shown = "[$('times-name').textContent, $('title').textContent, Number($('time').value)]"
    whole = script("[...weightsOf(2, 1, 1)]")

    def weights_of(number: int) -> Any:
        return earlier[number].maps[2].weights[1, 1].flatten()

    script("$('time').value = '1', $('time').fire('input'), 0")
    assert script(shown) == ["10 updates", "10 updates", 1]
    assert script("[...weightsOf(2, 1, 1)]") == pytest.approx(weights_of(1), abs=QUANTUM)
    script("$('times-play').click()")
    for number in (1, 2):
        assert script("Number($('time').value)") == number
        script("pass(1500), 0")
    assert script(shown) == ["20 updates", page.title, 2]
    assert script("[...weightsOf(2, 1, 1)]") == whole
    script("$('times-play').click()")  # from the beginning
    assert script(shown)[0] == "0 updates"
    script("$('times-play').click(), pass(300)")
    assert script("location.hash").endswith("&t=0")
    script.go("#v=story&a=2&t=1")
    assert script(shown) == ["10 updates", "10 updates", 1]
    for time in ("", "&t=", "&t=2", "&t=x"):  # there are times 0 and 1, and the last one
        script.go("#v=story&a=2&t=1")
        script.go(f"#v=story&a=2{time}")
        assert script(shown) == ["20 updates", page.title, 2]


def test_a_sequence_is_chosen_and_is_part_of_the_address() -> None:
    page = make_explorer_with_arithmetic()
    maps = [shifted(each, 0) for each in page.maps]
    before = replace(page, maps=maps, title="before", model="10 updates")
    other = replace(page, text="b", title="other", maps=maps, model="20 updates", earlier=[before])
    html = replace(page, text="a", model="20 updates", others=[other]).html
    script, shown = Script(html, "#v=story"), "[data.title, $('times').hidden, $('time').hidden]"
    assert script(shown) == [page.title, False, True]
    pressed = (
        "sequenceRow.querySelectorAll('button').map(each => each.getAttribute('aria-pressed'))"
    )
    assert script(pressed) == ["true", "false"]
    script("sequenceRow.querySelectorAll('button')[1].click(), pass(300)")
    assert script(shown) == ["other", False, False]
    assert script(pressed) == ["false", "true"]
    found = script("[...weightsOf(2, 1, 1)]")
    assert found == pytest.approx(other.maps[2].weights[1, 1].flatten(), abs=QUANTUM)
    assert script("location.hash").endswith("&n=1")
    opened = Script(html, "#v=story&a=2&n=1&t=0")
    assert opened("[data.title, $('times-name').textContent]") == ["before", "10 updates"]
    opened.go("#v=story&a=2")
    assert opened.text("title") == page.title


def shifted(maps: AttentionMaps, number: int) -> AttentionMaps:
    """Give a token's attention weights to the next key, and take away their arithmetic."""
    return replace(maps, weights=maps.weights.roll(1 + number, dims=-1), mask=None, arithmetic=None)
