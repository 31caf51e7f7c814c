"""The search: what a reader finds on the disk, without a server."""

import json
import re
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.browser import in_browser

pytestmark = pytest.mark.slow

ASKED = {
    "why is my loss nan": "howto/when_a_training_fails.html#the-loss-is-nan",
    "loss does not decrease": "howto/when_a_training_fails.html#the-loss-does-not-decrease",
    "what is a logit": "glossary.html#logits",
    "own data": "howto/use_your_own_files.html",
    "use my own dataset": "howto/use_your_own_files.html",
    "multiple gpus": "howto/train_on_several_gpus.html",
    "colab": "learn/index.html#how-to-use-the-book",
    "softmax": "glossary.html#softmax",  # titles come first
}
"""What people ask, and where the answer is."""
TERMS = """
    seq2seq, autoregressive, teacher forcing, overfitting, quadratic, RoPE, ＲＯＰＥ, MASK,
    注意機構, 어텐션, SimpleAttention, Source-Target-Attention
"""
"""Terms of other articles, one of them in full width."""


class SearchPage:
    """The search page of the site, opened offline from the disk."""

    def __init__(self, browser: Any, html: Path) -> None:
        self.html = html
        self.page = browser.new_page(offline=True)
        self.messages: list[str] = []
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))

    def search(self, query: str) -> dict[str, tuple[str, str]]:
        """Search; return title and excerpt of each result, by its address."""
        self.page.goto(f"{(self.html / 'search.html').as_uri()}?q={quote(query)}")
        return self.results()

    def results(self) -> dict[str, tuple[str, str]]:
        found = self.page.eval_on_selector_all(
            "#search-results li",
            """items => items.map(item => [
                item.querySelector("a").getAttribute("href"),
                item.querySelector("a").textContent,
                item.querySelector("p").textContent,
            ])""",
        )
        return {url: (title, excerpt) for url, title, excerpt in found}

    @property
    def status(self) -> str:
        return str(self.page.inner_text("#search-status"))


@pytest.fixture
def search_page(browser: Any, pages: Path) -> Iterator[SearchPage]:
    """Open the search page, which logs nothing."""
    opened = SearchPage(browser, pages)
    yield opened
    assert opened.messages == []
    opened.page.close()


def test_every_entry_leads_to_its_place_and_has_the_text_that_is_seen(pages: Path) -> None:
    text = (pages / "_static" / "search_data.js").read_text(encoding="utf-8")
    rows = json.loads(text.removeprefix("const SEARCH_SECTIONS = ").rstrip(";\n"))
    assert len({url for url, *_ in rows}) == len(rows) > 1000
    html: dict[str, str] = {}
    for url, *texts in rows:
        page, _, anchor = url.partition("#")
        html.setdefault(page, (pages / page).read_text(encoding="utf-8"))
        assert not anchor or f'id="{anchor}"' in html[page], url
        assert not re.search(
            r"\\(frac|operatorname|begin|sqrt)|</(div|span|svg|details)>|addEventListener", texts[2]
        )


@in_browser
def test_what_people_ask_leads_to_its_page(search_page: SearchPage) -> None:
    places = {query: [*search_page.search(query)][:3] for query in ASKED}
    assert {query: found for query, found in places.items() if ASKED[query] not in found} == {}


@in_browser
def test_a_term_of_other_articles_is_found_and_marked_in_each_excerpt(
    search_page: SearchPage,
) -> None:
    for term in map(str.strip, TERMS.split(",")):
        words = unicodedata.normalize("NFKC", term).lower().split()
        found = search_page.search(term).values()
        assert any(all(word in excerpt.lower() for word in words) for _, excerpt in found), term
        assert search_page.page.locator("#search-results li:not(:has(mark))").count() == 0, term


@in_browser
def test_a_hit_in_the_museum_says_that_it_is_a_fault(search_page: SearchPage) -> None:
    found = search_page.search("softmax over the queries")
    titles = {url.partition("#")[0]: title for url, (title, _) in found.items()}
    assert titles["museum/softmax_over_queries.html"].startswith("A published fault: ")
    others = [url for url in titles if not url.startswith("museum/") or url.endswith("index.html")]
    assert [url for url in others if "A published fault" in titles[url]] == []


@in_browser
def test_a_word_that_occurs_nowhere_may_have_one_wrong_letter(search_page: SearchPage) -> None:
    expected = search_page.search("softmax")
    for query in ("sofmax", "softmaxx", "sotfmax", "saftmax"):
        assert search_page.search(query) == expected
        assert "for “softmax” instead" in search_page.status


@in_browser
def test_at_most_thirty_results_and_three_of_a_page_come_first(search_page: SearchPage) -> None:
    found = [url.partition("#")[0] for url in search_page.search("attention")]
    assert len(found) == 30
    assert max(map(found.count, found)) <= 3
    assert "30 are shown" in search_page.status


@in_browser
def test_html_in_a_query_is_shown_as_text_and_the_glossary_is_proposed(
    search_page: SearchPage,
) -> None:
    hostile = '<img/src=x/onerror="window.hacked=1">'  # one word
    assert search_page.search(hostile) == {}
    assert search_page.status == f"Nothing was found for “{hostile}”."
    assert search_page.page.evaluate("window.hacked") is None
    link = search_page.page.locator("#search-nothing a")
    assert link.get_attribute("href") == "glossary.html"
    search_page.search("softmax")
    assert not link.is_visible()


@in_browser
def test_results_follow_what_is_typed_and_are_reached_by_the_keyboard(
    search_page: SearchPage,
) -> None:
    page = search_page.page
    search_page.search("")
    page.keyboard.type("teacher forcing")  # the field has the focus
    page.wait_for_selector("#search-results li")
    first = next(iter(search_page.results()))
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/{first}")
    page.fill(".sidebar-search", "teacher forcing")
    page.press(".sidebar-search", "Enter")
    page.wait_for_url("**/search.html?**")
    assert next(iter(search_page.results())) == first
