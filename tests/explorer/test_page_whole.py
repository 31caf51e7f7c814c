"""The explorer's page as a whole: what its views, addresses and files must agree on."""

from typing import Any

import pytest
import torch
from tests.browser import in_browser
from tests.explorer.page import SOURCE, make_explorer, weights

from transformer_blocks.explorer import AttentionMaps, DecodingSteps, Explorer

RIGHT_TO_LEFT, OVERRIDE, LONG = "שלום", "\u202eabc", "W" * 3000
SYLLABLE = "\u1112\u1161\u11ab"  # one letter of three parts
SENTENCE = "#story-sentence"


@pytest.mark.slow
@in_browser
def test_tokens_change_neither_the_order_nor_the_width_of_a_sentence(open_page: Any) -> None:
    torch.manual_seed(0)
    tokens = [RIGHT_TO_LEFT, OVERRIDE, LONG, SYLLABLE]
    steps = [[(token, 0.5), ("▁" + token, 0.2)] for token in tokens]
    maps = [
        AttentionMaps("Cross", weights(1, 1, 4, 5), tokens, SOURCE, is_decoding=True),
        AttentionMaps("Self", weights(1, 1, 4, 4), tokens),
    ]
    explorer = Explorer(maps, decoding=DecodingSteps(tokens, steps, [steps]))
    page = open_page(explorer, viewport={"width": 390, "height": 700})
    width = "document.documentElement.scrollWidth"
    for view, sentence in (("story", SENTENCE), ("map", "#summary")):
        for number in range(4):
            page.show(f"#v={view}&a={number % 2}&q={number}&lock=1")
            text = page.text(sentence)
            assert len(text) < 500
            assert page.page.evaluate(width) <= 390
            for letter in (RIGHT_TO_LEFT, "\u202e"):
                assert text.count(letter) == text.count(f"\u2068{letter}")
            assert "\u202e" not in text
    page.show("#v=story&q=3&lock=1&n=1")
    assert page.page.eval_on_selector_all("#lens .chosen", "all => all.length") == 1


@pytest.mark.slow
@in_browser
def test_a_hidden_frame_is_drawn_when_it_is_shown(browser: Any) -> None:
    page, errors = browser.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))
    frame = Explorer([make_explorer().maps[0]])._repr_html_()
    page.set_content(f"<div hidden>{frame}</div>")
    inner = page.frames[-1]
    inner.wait_for_selector("html[data-ready]", state="attached")
    page.evaluate("document.querySelector('div').hidden = false")
    inner.wait_for_function("() => window.explorerStory().layout?.width > 100")
    assert inner.evaluate("document.getElementById('story-all').width") > 160
    assert errors == []
    page.close()
