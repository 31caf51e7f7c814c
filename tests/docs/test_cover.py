"""Chapter 0's translator, which the pages run."""

import re
from pathlib import Path
from typing import Any

import pytest
from tests.browser import in_browser

import explorer_page
from cells import LEARN, definitions

WIDGET = LEARN.parent / "_static" / "widgets" / "translator.js"


@pytest.mark.slow
@in_browser
def test_the_page_translates_all_sentences_of_the_chapter_as_torch_does(
    browser: Any, tmp_path: Path
) -> None:
    script = explorer_page.translator_script()
    without_weights = re.compile(r"^const data = .*", re.M)
    stored = explorer_page.TRANSLATOR.read_text("utf-8")
    assert without_weights.sub("", script) == without_weights.sub("", stored), "make pictures"
    (tmp_path / "translator_model.js").write_text(script, encoding="utf-8")
    page_file = tmp_path / "page.html"
    page_file.write_text(
        '<!doctype html><meta charset="utf-8"><div id="widget-translator" data-static="."></div>'
        f"<script>{WIDGET.read_text('utf-8')}</script>",
        encoding="utf-8",
    )
    chapter = definitions("00_map", until="library = Seq2Seq(")
    unusual = [["魚", "は", "猫", "を", "食べ", "ます", "。"], ["鳥"]]
    sources = [*(words for words, _ in chapter["pairs"]), *unusual]
    sentences, expected = ["".join(words) for words in sources], []
    for words in sources:
        ids = [chapter["source_words"].index(word) for word in words]
        search = chapter["greedy_search"]
        [found] = chapter["library"].generate([ids], search, end_id=chapter["EOS"], max_length=9)
        expected.append(" ".join(chapter["target_words"][token] for token in found.tokens))
    page = browser.new_page(reduced_motion="reduce")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(page_file.as_uri())
    box = page.locator("input[type=text]")
    shown = []
    for sentence in sentences:
        box.fill(sentence)
        shown.append(page.inner_text(".status").partition(" — ")[0].removesuffix(" …"))
        at_end = page.inner_text("button[aria-pressed=true]")  # the last word, not the full stop
        assert at_end == shown[-1].removesuffix(" .").split()[-1]
    box.fill("<b>x</b>")
    assert page.inner_text(".status").endswith(" ".join(chapter["source_words"]))
    page.check("input[type=checkbox]")
    without = set()
    for sentence in sentences[:5]:
        box.fill(sentence)
        without.add(page.inner_text(".status"))
    page.close()
    assert shown == expected
    assert len(without) == 1
    assert all(address.startswith("file:") for address in requests)
