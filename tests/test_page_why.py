"""The explorer's page in a browser: the arithmetic of a weight, and the logit lens."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.browser import axe, in_browser
from tests.page import FULLY_MASKED, HEADS, HOSTILE, LAYERS, SIZE, Opened
from tests.page import make_explorer_with_arithmetic as make_explorer

QUANTUM = 1 / 4095 + 5e-5  # of the page, and of a percentage with two digits


CHOOSE_ALL = """() => {
    const text = id => document.getElementById(id).textContent, found = [];
    const keys = [...document.querySelectorAll("#why tbody button")].map(each => each.dataset.key);
    for (const key of keys) {
        const button = document.querySelector(`#why [data-key="${key}"]`);
        if (button === null) continue;  // listed only while it was selected
        button.click();
        found.push([key, text("why-weight"), text("why-stored")]);
    }
    return found;
}"""


@pytest.fixture(scope="module")
def shared(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    file = tmp_path_factory.mktemp("why") / "page.html"
    page = Opened(browser, file, make_explorer(), viewport={"width": 1180, "height": 700})
    yield page
    assert page.messages == []
    assert {url.partition("#")[0] for url in page.requests} <= {page.address, "about:blank"}
    page.context.close()


def go(page: Opened, number: int, layer: int, head: int, row: int, column: int) -> None:
    """Select a cell, and wait until the panel shows it."""
    address = f"#v=map&a={number}&l={layer}&h={head}&q={row}&k={column}&lock=1"
    page.page.evaluate("address => { location.hash = address; }", address)
    name = f"{page.explorer.maps[number].name}, layer {layer}, "
    token = page.explorer.maps[number].key_tokens[column].replace("▁", "")
    heads = {HEADS: "mean", HEADS + 1: "rollout"}
    name += heads.get(head, f"head {head}")
    page.page.wait_for_function(
        """([name, query, key]) => {
            const cell = document.getElementById("why-cell");
            const texts = cell && [...cell.querySelectorAll("b")].map(each => each.textContent);
            return cell && !document.getElementById("why").hidden && texts[1].includes(key)
                && texts[0].includes(query) && cell.textContent.includes(name);
        }""",
        arg=[name, page.explorer.maps[number].queries[row].replace("▁", ""), token],
    )


def number(text: str) -> float:
    return float(text.replace("\u2212", "-").replace("\u00a0", " ").removesuffix(" %"))


def result(page: Opened, step: str) -> str:
    return str(page.page.inner_text(f"#why-{step}-step .result strong"))


def weight(page: Opened, selector: str = "#why-weight") -> float:
    return number(page.text(selector)) / 100


@pytest.mark.slow
@in_browser
def test_nothing_is_decoded_before_the_first_click(browser: Any, tmp_path: Any) -> None:
    page = Opened(browser, tmp_path / "page.html", make_explorer())
    page.context.add_init_script(
        """window.decoded = 0;
        const Stream = DecompressionStream;
        window.DecompressionStream = class extends Stream {
            constructor(format) { super(format); window.decoded++; }
        };"""
    )
    page.go("#v=map&a=2&l=0&h=0&q=0&k=0")
    assert page.page.evaluate("decoded") == len(page.explorer.maps)  # the weights
    assert not page.page.is_visible("#why")
    box = page.page.evaluate("window.explorerLayout()")
    place = {"x": box["left"] + 2.5 * box["cell"], "y": box["top"] + 1.5 * box["cell"]}
    page.page.click("#map", position=place)
    page.page.wait_for_selector("#why-weight")
    assert page.page.evaluate("decoded") == len(page.explorer.maps) + 3
    assert weight(page) == pytest.approx(float(page.explorer.maps[2].weights[0, 0, 1, 2]), abs=1e-3)
    assert page.page.evaluate("document.activeElement.id") == "map"
    page.context.close()


@pytest.mark.slow
@in_browser
def test_the_panel_computes_the_weights_of_all_layers_and_heads(shared: Opened) -> None:
    for index, each in enumerate(shared.explorer.maps[:3]):
        for layer in range(LAYERS):
            for head in range(HEADS):
                row = (index + 2 * layer + head) % len(each.queries)
                go(shared, index, layer, head, row, column=head)
                for column, computed, stored in shared.page.evaluate(CHOOSE_ALL):
                    expected = float(each.weights[layer, head, row, int(column)])
                    assert number(computed) / 100 == pytest.approx(expected, abs=QUANTUM)
                    assert number(stored) / 100 == pytest.approx(expected, abs=QUANTUM)


@in_browser
def test_each_step_has_the_numbers_of_its_equation(shared: Opened) -> None:
    each = shared.explorer.maps[2]
    assert each.arithmetic is not None
    layer, head, row, column = 1, 2, 3, 4
    query = each.arithmetic.query[layer, head, row]
    keys, values = each.arithmetic.key[layer, head], each.arithmetic.value[layer, head]
    weights = each.weights[layer, head, row]
    go(shared, 2, layer, head, row, column)
    scores = keys @ query * SIZE**-0.5
    assert number(result(shared, "scores")) == pytest.approx(float(keys[column] @ query), abs=0.01)
    best = int((query * keys[column]).abs().argmax())
    assert f"Largest: feature {best}: " in shared.text("#why-scores-step")
    assert number(result(shared, "scale")) == pytest.approx(float(scores[column]), abs=0.01)
    unscaled = (keys @ query).softmax(dim=-1)
    assert f"this weight would be {100 * float(unscaled[column]):.1f}" in shared.text(
        "#why-scale-step"
    )
    assert result(shared, "mask") == result(shared, "scale")
    contributions = (weights[:, None] * values).norm(dim=-1)
    assert number(result(shared, "output")) == pytest.approx(float(contributions[column]), abs=2e-3)
    share = 100 * float(contributions[column] / contributions.sum())
    found = shared.text("#why-output-step .detail:last-of-type").split("\u00a0")[0]
    assert number(found.removeprefix("This key supplies ")) == pytest.approx(share, abs=0.1)
    exps = (scores - scores.max()).exp()
    assert "other keys" in shared.text("#why tbody")
    table = shared.page.eval_on_selector_all(
        "#why tbody tr", "rows => rows.map(row => [...row.cells].map(cell => cell.textContent))"
    )
    *parts, total = table
    assert sum(number(cells[2]) for cells in parts) == pytest.approx(float(exps.sum()), abs=4e-3)
    assert number(total[2]) == pytest.approx(float(exps.sum()), abs=1e-3)
    assert sum(number(cells[3]) for cells in parts) == pytest.approx(100, abs=0.4)
    go(shared, 0, 0, 0, 0, 0)  # another scale
    dot = number(result(shared, "scores"))
    assert number(result(shared, "scale")) == pytest.approx(0.2 * dot, abs=0.01)


@in_browser
def test_the_equation_has_the_numbers_of_the_weight(shared: Opened) -> None:
    go(shared, 2, 1, 2, 3, 4)
    symbols, numbers = shared.page.eval_on_selector_all(
        "#why .equation .formula", "lines => lines.map(line => line.textContent)"
    )
    assert symbols == "4softmax(1QKT2√dk3mask)5V"
    dot, score = result(shared, "scores"), result(shared, "scale")
    percent = shared.text("#why-weight")
    assert numbers == (
        f"{dot}√{SIZE}= {score}→exp({score})sum over all keys={percent}times the value of this key"
    )
    go(shared, 0, 0, 0, 0, 0)  # another scale
    assert "1 / scale" in shared.text("#why .equation .formula")
    go(shared, 1, 0, 0, 0, 3)
    numbers = shared.text("#why .equation .numbers")
    assert "masked: −∞" in numbers
    assert "exp(−∞)" in numbers


@in_browser
def test_the_table_lists_no_masked_keys_but_the_selected_one(shared: Opened) -> None:
    listed = "#why tbody button", "buttons => buttons.map(each => Number(each.dataset.key))"
    for row, column, expected in ((0, 0, [0]), (0, 3, [0, 3]), (2, 1, [0, 1, 2])):
        go(shared, 1, 0, 0, row, column)
        assert shared.page.eval_on_selector_all(*listed) == expected


@in_browser
def test_each_step_names_its_chapter_and_its_line_of_code(shared: Opened) -> None:
    go(shared, 2, 0, 0, 0, 0)
    for step in ("scores", "scale", "mask", "softmax", "output"):
        source = shared.text(f"#why-{step}-step .source")
        assert source.startswith("Chapter ")
        assert "attention.py, line " in source
    assert "masked_fill(mask" in shared.text("#why-mask-step code")


@in_browser
def test_masked_keys_have_no_weight(shared: Opened) -> None:
    go(shared, 1, 0, 0, 2, 3)
    assert result(shared, "mask") == "\u2212\u221e"
    assert weight(shared) == 0
    assert "1 of 4 keys of this row is masked" in shared.text("#why-mask-step")
    go(shared, 1, 0, 0, FULLY_MASKED, 0)
    assert "All keys of this row are masked" in shared.text("#why-mask-step")
    assert weight(shared) == 0
    assert number(result(shared, "output")) == 0
    assert "NaN" not in shared.text("#why")


@in_browser
def test_summaries_offer_their_heads(shared: Opened) -> None:
    for head, word in ((HEADS, "average"), (HEADS + 1, "product")):
        go(shared, 0, 1, head, 1, 2)
        assert word in shared.text("#why-body")
        assert shared.page.query_selector("#why-weight") is None
        assert len(shared.page.query_selector_all("#why .heads button")) == HEADS
    shared.page.click("#why .heads button:nth-child(2)")
    assert "layer 1, head 1" in shared.text("#why-cell")
    expected = float(shared.explorer.maps[0].weights[1, 1, 1, 2])
    assert weight(shared) == pytest.approx(expected, abs=QUANTUM)


@in_browser
def test_the_panel_closes_and_is_absent_without_data(shared: Opened) -> None:
    go(shared, 2, 0, 0, 0, 0)
    shared.page.click("#why-close")
    assert not shared.page.is_visible("#why")
    go(shared, 2, 0, 0, 0, 1)
    shared.page.focus("#why tbody button")
    shared.page.keyboard.press("Escape")
    assert not shared.page.is_visible("#why")
    go(shared, 2, 0, 0, 0, 2)
    shared.page.click("#attentions button:nth-child(4)")
    assert not shared.page.is_visible("#why")
    assert not shared.page.is_visible("#lens")


@in_browser
def test_the_logit_lens_marks_the_first_layer_that_predicts_the_token(shared: Opened) -> None:
    go(shared, 2, 0, 0, 1, 0)
    assert "after layer 1 (of 0 to 1)" in shared.text("#lens-result")
    rows = shared.page.eval_on_selector_all(
        "#lens tbody tr",
        "rows => rows.map(row => [row.className, row.querySelector('.chosen').cellIndex])",
    )
    assert rows == [["", 2], ["first", 1]]
    assert "a\n40.0" in shared.text("#lens tbody").replace("\t", "\n").replace("\u00a0%", "")
    go(shared, 2, 0, 0, 2, 0)
    assert HOSTILE[1] in shared.text("#lens-result")
    assert shared.page.evaluate("window.hacked") is None


@pytest.mark.slow
@in_browser
def test_the_panel_is_accessible_and_nothing_overflows(shared: Opened) -> None:
    shared.page.evaluate(axe())
    go(shared, 1, 0, 0, 2, 1)
    for theme in range(2):
        for width in (820, 1440, 390):
            shared.page.set_viewport_size({"width": width, "height": 900})
            fits = f"document.documentElement.scrollWidth <= {width}"
            shared.page.wait_for_function(fits, timeout=5000)  # the charts follow the width
        found = shared.page.evaluate("axe.run({include: [['#why'], ['#lens']]})")
        problems = [
            (each["id"], [node["html"] for node in each["nodes"]]) for each in found["violations"]
        ]
        assert problems == []
        if theme == 0:
            shared.page.click("#theme")


@in_browser
def test_opening_the_panel_shows_it_in_the_window(shared: Opened) -> None:
    shared.page.set_viewport_size({"width": 390, "height": 700})
    shared.page.emulate_media(reduced_motion="reduce")
    shared.go("#v=map&a=2&l=0&h=0&q=0&k=0")
    place = shared.page.evaluate("scrollY")
    shared.go("#v=map&a=2&l=0&h=0&q=0&k=0&lock=1")
    shared.page.wait_for_selector("#why-weight")
    scrolled = shared.page.evaluate("scrollY") - place
    assert abs(scrolled) < 50  # an address does not scroll to the panel
    shared.page.click("#why-close")
    shared.page.evaluate("scrollTo(0, 0)")
    go(shared, 2, 0, 0, 0, 1)
    top, height = shared.page.evaluate(
        "[document.getElementById('why').getBoundingClientRect().top, innerHeight]"
    )
    assert 0 <= top <= height - 300
