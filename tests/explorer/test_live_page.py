"""The box for sentences in a browser: it shows what the model computes, also without some parts."""

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from sentencepiece import SentencePieceProcessor
from tests.browser import in_browser
from tests.explorer.live import round_weights, translator_of_texts
from tests.explorer.page import HOSTILE, Opened, weights

from transformer_blocks import beam_search
from transformer_blocks.explorer import AttentionMaps, DecodingSteps, Explorer, LiveModel
from transformer_blocks.inspection import ablate, record_attention

BEGIN, END = 1, 2
HEAD = "decoder.layers.0.cross_attention"


class Live(Opened):
    """An opened page with a model, and the same model in torch."""

    def __init__(self, browser: Any, file: Any, **options: Any) -> None:
        self.model, content = translator_of_texts()
        self.processor = SentencePieceProcessor(model_proto=content)
        sizes: dict[str, Any] = {"end_id": END, "max_length": 40, "language": "en"}
        live = LiveModel(self.model, [content] * 2, **sizes)
        cross = AttentionMaps("Cross", weights(2, 2, 2, 2), ["▁a", "b"], ["▁x", "y"], None, True)
        steps = DecodingSteps(["▁a", "b"], [[("▁a", 0.9)], [("b", 0.8)]])
        page = Explorer([cross], "x → a", steps, text="the cat", live=live)
        super().__init__(browser, file, page, "#v=story", **options)
        round_weights(self.model)

    def translate(self, text: str) -> tuple[list[int], list[int], str]:
        """Return the tokens of a source and of its translation, and the translation's text."""
        source = [*self.processor.encode(text), END]
        limit = min(2 * len(source) + 10, 40)
        options: dict[str, Any] = {"beam_size": 5, "end_id": END, "max_length": limit}
        best = self.model.generate([source], beam_search, **options)[0][0]
        target = [*best.tokens, END] if best.finished else best.tokens
        return source, target, str(self.processor.decode(best.tokens))

    def type(self, text: str) -> None:
        with self.another_run():
            self.page.fill("#live-text", text)
            self.page.press("#live-text", "Enter")

    def click(self, part: str) -> None:
        with self.another_run():
            self.page.click(f"#live {part}")

    @contextmanager
    def another_run(self) -> Iterator[None]:
        before = self.page.get_attribute("#live", "data-shown")
        yield
        self.page.wait_for_selector(f'#live[data-shown]:not([data-shown="{before}"])')


@pytest.fixture
def live(browser: Any, tmp_path: Path) -> Iterator[Live]:
    page = Live(browser, tmp_path / "page.html", viewport={"width": 1000, "height": 900})
    yield page
    page.close()


@in_browser
def test_a_typed_sentence_is_translated_and_its_weights_are_shown(live: Live) -> None:
    assert live.text("#live label") == "Your own sentence in English"
    live.type("the dog sleeps")
    source, target, text = live.translate("the dog sleeps")
    assert live.text("h1").partition("→")[2].split() == text.split()
    live.page.click("#views [role=radio] >> nth=1")
    inputs = torch.tensor([source]), torch.tensor([[BEGIN, *target[:-1]]])
    with record_attention(live.model) as recorded, torch.no_grad():
        live.model(*inputs)
    expected = recorded["decoder.layers.1.cross_attention"][0][0].mean(0)
    live.page.click("#attentions [role=radio] >> nth=2")
    _, *rows = csv.reader(live.download("#save-csv").decode().splitlines())
    found = torch.tensor([[float(cell) for cell in row[1:]] for row in rows])
    assert torch.allclose(found, expected, atol=1e-3)
    live.page.click("#views [role=radio] >> nth=0")


@in_browser
def test_both_translations_stand_side_by_side(live: Live) -> None:
    live.type("the cat sleeps")
    live.page.click("#live-parts summary")
    live.click(f'[data-part="{HEAD}.heads.1"]')
    live.click('[data-part="encoder.layers.0.self_attention_residual"]')
    whole = live.translate("the cat sleeps")[2]
    residuals = ["encoder.layers.0.self_attention_residual"]
    with ablate(live.model, heads={HEAD: [1]}, residuals=residuals):
        without = live.translate("the cat sleeps")[2]
    assert whole != without
    assert live.text("#live-whole span").split() == whole.split()
    assert live.text("#live-without span").split() == without.split()
    live.click("#live-reset")
    assert not live.page.is_visible("#live-without")


@in_browser
def test_a_text_that_the_model_does_not_know_is_refused_in_place(live: Live) -> None:
    live.type("the cat")
    live.page.wait_for_url("**s=the%20cat")
    title, address = live.text("h1"), live.page.url
    entries = live.page.evaluate("history.length")
    for text, reason in (
        *(
            (each, "is in none of them")
            for each in (*HOSTILE, "the 😀", "שלום", "\x00\u202e😀" * 50)
        ),
        *(("  ", "There is no text"), ("the cat " * 60, "and I read at most 40")),
    ):
        live.page.evaluate("document.getElementById('live-status').textContent = ''")
        live.page.fill("#live-text", text)
        live.page.press("#live-text", "Enter")
        live.page.wait_for_selector(f"#live-status >> text={reason}")
        assert live.text("h1") == title
        assert live.page.url == address
    live.type("the dog runs")
    live.page.wait_for_url("**s=the%20dog%20runs")
    assert live.page.evaluate("history.length") == entries + 1
    assert "ms a token" in live.text("#live-status")
    assert live.page.evaluate("window.hacked") is None


@in_browser
def test_back_undoes_a_typed_text_and_a_part_one_by_one_and_a_link_restores_both(
    live: Live,
) -> None:
    page = live.page
    seen = []
    changes: list[tuple[Callable[[], None], str]] = [
        (lambda: live.type("the cat runs"), "**s=the%20cat%20runs"),
        (lambda: live.type("a cat"), "**s=a%20cat"),
        (lambda: live.click(f'[data-part="{HEAD}.heads.1"]'), "**s=a%20cat&off=*"),
    ]
    for change, address in changes:
        seen.append(
            (page.input_value("#live-text"), live.text("h1"), page.is_visible("#live-without"))
        )
        change()
        page.wait_for_url(address)
        if not page.is_visible("#live-list"):
            page.click("#live-parts summary")
    last, title = page.url, live.text("h1")
    assert title.startswith("a cat → ")
    shown = """([text, title]) => document.getElementById("live-text").value === text
        && document.getElementById("title").innerText === title"""
    for text, before, is_off in reversed(seen):
        page.go_back()
        page.wait_for_function(shown, arg=[text, before])
        assert page.is_visible("#live-without") is is_off
    live.go("#" + last.partition("#")[2] + "&n=0")
    page.wait_for_function(shown, arg=["a cat", title])
    assert page.is_visible("#live-without")


@in_browser
@pytest.mark.slow
def test_the_box_fits_a_phone_and_excludes_nobody(browser: Any, tmp_path: Any) -> None:
    page = Live(browser, tmp_path / "page.html", viewport={"width": 390, "height": 800})
    page.type("the cat sleeps")
    page.page.click("#live-parts summary")
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.problems("'#live'") == []
    page.close()
