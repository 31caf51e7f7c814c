"""The search: what is collected from the pages, and what a reader finds without a server."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.browser import axe, in_browser
from tests.pairs import every_pair

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
TERMS = [
    "seq2seq",
    "autoregressive",
    "teacher forcing",
    "overfitting",
    "quadratic",
    "注意機構",
    "RoPE",
    "어텐션",
    "SimpleAttention",
    "Source-Target-Attention",
    "MASK",
]
SITE = Path(__file__).with_name("search_site")
CONFIGURATION = f"""
import sys
sys.path.insert(0, {str(ROOT / "docs" / "_ext")!r})
project = html_title = "site"
extensions = ["katex_prerender", "search"]
html_math_renderer = "katex"
exclude_patterns = ["_build"]
html_theme = "furo"
html_static_path = [{str(ROOT / "docs" / "_static")!r}]
templates_path = [{str(ROOT / "docs" / "_templates")!r}]
html_additional_pages = {{"search": "search.html"}}
"""


def write_page(number: int) -> str:
    """Write one of several pages that are alike."""
    return f"""
Page {number}
=======

All pages mention scores, scores, scores and ``<img src=x onerror="window.hacked = 1">``.

First of {number}
------------

Scores again: number{number}.

Second of {number}
------------

Scores. {"A long sentence comes before the word. " * 20} The softmax is here: softmax.

Third of {number}
------------

Scores.
"""


def build(source: Path) -> Path:
    """Build a site, and give the folder of its pages."""
    html = source / "_build"
    result = subprocess.run(
        [sys.executable, ROOT / "docs" / "_ext" / "pages.py", source, html],
        capture_output=True,
        text=True,
        encoding="utf-8",
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return html


def entries(html: Path) -> dict[str, list[str]]:
    """Read what is searched: titles and text by address."""
    text = (html / "_static" / "search_data.js").read_text(encoding="utf-8")
    match = re.fullmatch(r"const SEARCH_SECTIONS = (.*);\n", text)
    assert match is not None
    rows: list[list[str]] = json.loads(match[1])
    assert len({url for url, *_ in rows}) == len(rows)
    return {url: texts for url, *texts in rows}


def write(source: Path) -> Path:
    """Write the site: its files, twelve pages that are alike, and the configuration."""
    shutil.copytree(SITE, source, dirs_exist_ok=True)
    (source / "conf.py").write_text(CONFIGURATION, encoding="utf-8")
    (source / "pages").mkdir()
    for number in range(12):
        (source / "pages" / f"page{number}.rst").write_text(write_page(number), encoding="utf-8")
    return source


@pytest.fixture(scope="module")
def site(has_docs: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a small site, each of whose texts is known."""
    return build(write(tmp_path_factory.mktemp("site")))


# --- What is collected ---------------------------------------------------------------------------


def test_each_section_object_and_term_is_an_entry_with_its_own_text(site: Path) -> None:
    found = entries(site)
    assert {url: found[url] for url in found if url.startswith(("reference", "glossary"))} == {
        "reference.html": [
            "Layers",
            "",
            "A layer QK^top sqrt d_k d_model has properties. An exact & raw word.",
        ],
        "reference.html#LayerNorm": [
            "Layers",
            "LayerNorm",
            "class LayerNorm(size: int) Normalise the features.",
        ],
        "reference.html#LayerNorm.forward": [
            "Layers",
            "LayerNorm.forward",
            "forward(x) Compute the output of the norm.",
        ],
        "reference.html#positions": [
            "Layers",
            "Positions",
            "Rotary positions (RoPE) rotate queries and keys. literal_code(1)",
        ],
        "glossary.html": ["Glossary", "", ""],
        "glossary.html#term-0": [
            "Glossary",
            "注意機構",
            "注意機構 各クエリが、キーに応じてバリューの重み付き平均を計算する。ＲＮＮ。",
        ],
        "glossary.html#term-1": ["Glossary", "어텐션", "어텐션 쿼리와 키의 유사도."],
        "glossary.html#term-softmax": [
            "Glossary",
            "softmax",
            "softmax Turns scores into weights.",
        ],
    }
    assert found["index.html"] == ["Start", "", "Begin here."]


def test_every_entry_leads_to_a_place_that_exists(site: Path) -> None:
    for url in entries(site):
        page, _, anchor = url.partition("#")
        assert not anchor or f'id="{anchor}"' in (site / page).read_text(encoding="utf-8")


def test_what_a_reader_does_not_see_is_not_collected(site: Path) -> None:
    text = (site / "_static" / "search_data.js").read_text(encoding="utf-8").lower()
    assert "concealed" not in text
    assert "comment" not in text


def test_the_index_and_the_search_page_of_sphinx_are_not_written(site: Path) -> None:
    assert not (site / "searchindex.js").exists()
    text = (site / "search.html").read_text(encoding="utf-8")
    assert "searchtools" not in text
    assert "_static/search.js" in text


# --- What is found -------------------------------------------------------------------------------


class SearchPage:
    """The search page of a site, opened offline from the disk."""

    def __init__(self, browser: Any, html: Path) -> None:
        self.html = html
        self.context = browser.new_context(offline=True, viewport={"width": 1300, "height": 900})
        self.page = self.context.new_page()
        self.requests: list[str] = []
        self.messages: list[str] = []
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("console", lambda message: self.messages.append(message.text))
        self.page.on("pageerror", lambda error: self.messages.append(str(error)))

    def open(self, query: str) -> None:
        self.page.goto(f"{(self.html / 'search.html').as_uri()}?q={quote(query)}")

    def results(self) -> list[tuple[str, str, str, list[str]]]:
        """Read address, title, excerpt and marked words of each result."""
        found = self.page.eval_on_selector_all(
            "#search-results li",
            """items => items.map(item => [
                item.querySelector("a").getAttribute("href"),
                item.querySelector("a").textContent,
                item.querySelector("p").textContent,
                [...item.querySelectorAll("p mark")].map(mark => mark.textContent),
            ])""",
        )
        return [(url, title, excerpt, marked) for url, title, excerpt, marked in found]

    def search(self, query: str) -> list[str]:
        """Search, and list the addresses of the results."""
        self.open(query)
        return [url for url, *_ in self.results()]

    @property
    def status(self) -> str:
        return str(self.page.inner_text("#search-status"))


@contextmanager
def opened(browser: Any, html: Path) -> Iterator[SearchPage]:
    """Open the search page of a site, which logs nothing and requests files of the site alone."""
    page = SearchPage(browser, html)
    yield page
    assert page.messages == []
    assert all(url.startswith(html.as_uri()) for url in page.requests)
    page.context.close()


@pytest.fixture
def search_page(browser: Any, site: Path) -> Iterator[SearchPage]:
    with opened(browser, site) as page:
        yield page


@in_browser
def test_every_promised_term_is_found_with_an_excerpt(browser: Any, pages: Path) -> None:
    missing = []
    with opened(browser, pages) as search_page:
        for term in TERMS:
            search_page.open(term)
            words = term.lower().split()
            results = search_page.results()
            if not any(all(word in text.lower() for word in words) for _, _, text, _ in results):
                missing.append(term)
            assert search_page.page.locator("#search-results li:not(:has(mark))").count() == 0
            for url, *_ in results:
                assert (pages / url.partition("#")[0]).is_file()
    assert missing == []


@in_browser
def test_what_people_ask_leads_to_its_page(browser: Any, pages: Path) -> None:
    asked = {
        "why is my loss nan": "howto/when_a_training_fails.html#the-loss-is-nan",
        "loss does not decrease": "howto/when_a_training_fails.html#the-loss-does-not-decrease",
        "what is a logit": "glossary.html#logits",
        "own data": "howto/use_your_own_files.html",
        "use my own dataset": "howto/use_your_own_files.html",
        "multiple gpus": "howto/train_on_several_gpus.html",
        "colab": "learn/index.html#how-to-use-the-book",
    }
    with opened(browser, pages) as search_page:
        found = {query: search_page.search(query)[:3] for query in asked}
    assert {query: page for query, page in asked.items() if page not in found[query]} == {}


@in_browser
def test_a_hit_in_the_museum_says_that_it_is_a_fault(browser: Any, pages: Path) -> None:
    with opened(browser, pages) as search_page:
        search_page.open("softmax over the queries")
        titles = {url.partition("#")[0]: title for url, title, *_ in search_page.results()}
    assert titles["museum/softmax_over_queries.html"].startswith("A published fault: ")
    others = [url for url in titles if not url.startswith("museum/") or url.endswith("index.html")]
    assert [url for url in others if "A published fault" in titles[url]] == []


@in_browser
@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("rotary keys", ["reference.html#positions"]),  # all words must occur in a section
        ("rotary normalise", []),
        ("rotary keys nowhere", ["reference.html#positions"]),  # or else the most of them
        ("what is the rope", ["reference.html#positions"]),  # the others are unimportant
        ("rope", ["reference.html#positions"]),  # and not "property"
        ("ropert", ["reference.html"]),  # inside a word, as no word is or begins with it
        ("pe", ["reference.html#positions"]),  # a part of "RoPE", as in CamelCase
        ("literal_code(1)", ["reference.html#positions"]),
        ("注意", ["glossary.html#term-0"]),
        ("重み付き平均", ["glossary.html#term-0"]),
        ("rnn", ["glossary.html#term-0"]),  # the text has full-width letters
        ("ＲＯＰＥ", ["reference.html#positions"]),
        ("유사", ["glossary.html#term-1"]),
        ("쿼리　유사도", ["glossary.html#term-1"]),  # with a full-width space
        *((special, []) for special in (".*", "[", "\\", "(?", "$&", "%")),
    ],
)
def test_a_query_finds_the_sections_with_all_its_words_in_any_script_and_width(
    search_page: SearchPage, query: str, found: list[str]
) -> None:
    assert search_page.search(query) == found
    assert found or search_page.status == f"Nothing was found for “{query}”."


@in_browser
@pytest.mark.parametrize("query", ["sofmax", "softmaxx", "sotfmax", "saftmax", "roftmax"])
def test_a_word_that_occurs_nowhere_may_have_one_wrong_letter(
    search_page: SearchPage, query: str
) -> None:
    expected = search_page.search("softmax")
    assert search_page.search(query) == expected
    assert search_page.status == f"Found {len(expected)} sections for “softmax” instead."
    assert search_page.search("tofmax") == []


@in_browser
def test_titles_come_first_then_the_glossary_and_learn_then_the_rest(
    search_page: SearchPage,
) -> None:
    found = search_page.search("softmax")
    assert found[:2] == ["glossary.html#term-softmax", "learn/softmax.html"]
    assert len(found) == 14
    scores = search_page.search("scores")
    assert set(scores[:2]) == {"glossary.html#term-softmax", "learn/softmax.html"}
    assert scores[2] == "pages/page0.html"  # three times


@in_browser
def test_at_most_thirty_results_and_three_of_a_page_are_shown(search_page: SearchPage) -> None:
    found = search_page.search("scores")
    assert len(found) == 30
    assert search_page.status == "Found 50 sections, of which 30 are shown."
    counts = [sum(url.startswith(f"pages/page{number}.html") for url in found) for number in (0, 1)]
    assert max(counts) <= 3


@in_browser
def test_the_excerpt_surrounds_the_word_and_marks_it(search_page: SearchPage) -> None:
    search_page.open("softmax here")
    url, title, excerpt, marked = search_page.results()[0]
    assert url == "pages/page0.html#second-of-0"
    assert title == "Page 0 › Second of 0"
    assert marked == ["softmax", "here", "softmax"]
    assert excerpt.startswith("…")
    assert excerpt.endswith("The softmax is here: softmax.")
    assert 100 < len(excerpt) < 190
    search_page.open("literal_code(1)")
    assert search_page.results()[0][3] == ["literal_code(1)"]
    search_page.open("second 0")
    assert search_page.page.inner_html("#search-results li a") == (
        "Page <mark>0</mark> › <mark>Second</mark> of <mark>0</mark>"
    )


@in_browser
def test_html_in_queries_and_pages_is_shown_as_text(search_page: SearchPage) -> None:
    hostile = '<img src=x onerror="window.hacked = 1">'
    search_page.open(hostile)
    assert all(hostile in excerpt for _, _, excerpt, _ in search_page.results())
    assert len(search_page.results()) == 12
    nowhere = '<img/src=x/onerror="window.hacked=1">'  # one word
    search_page.open(nowhere)
    assert search_page.status == f"Nothing was found for “{nowhere}”."
    assert search_page.page.query_selector("article img") is None
    assert search_page.page.evaluate("window.hacked") is None


@in_browser
def test_where_nothing_is_found_the_glossary_is_proposed(search_page: SearchPage) -> None:
    search_page.open("nowhere")
    assert search_page.status == "Nothing was found for “nowhere”."
    link = search_page.page.locator("#search-nothing a")
    assert link.is_visible()
    assert link.get_attribute("href") == "glossary.html"
    search_page.open("softmax")
    assert not link.is_visible()
    search_page.open(" ")
    assert search_page.status == ""
    assert not link.is_visible()


@in_browser
def test_results_follow_what_is_typed_and_are_reached_by_the_keyboard(
    search_page: SearchPage,
) -> None:
    search_page.open("")
    page = search_page.page
    page.keyboard.type("rotary")  # the field has the focus
    page.wait_for_selector("#search-results li")
    assert search_page.status == "Found 1 section."
    assert page.get_attribute("#search-status", "aria-live") == "polite"
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.wait_for_url("**/reference.html#positions")


@in_browser
def test_the_field_of_every_page_leads_to_the_search(search_page: SearchPage) -> None:
    search_page.page.goto((search_page.html / "pages" / "page1.html").as_uri())
    search_page.page.fill(".sidebar-search", "rotary")
    search_page.page.press(".sidebar-search", "Enter")
    search_page.page.wait_for_url("**/search.html?**")
    assert [url for url, *_ in search_page.results()] == ["reference.html#positions"]


@in_browser
@every_pair({"query": ["softmax", "nowhere"], "width": [390, 1300], "theme": ["light", "dark"]})
def test_the_search_page_is_accessible(
    search_page: SearchPage, query: str, width: int, theme: str
) -> None:
    rules = axe()
    page = search_page.page
    page.set_viewport_size({"width": width, "height": 900})
    search_page.open(query)
    page.evaluate("theme => { document.body.dataset.theme = theme; }", theme)
    page.evaluate(rules)
    result = page.evaluate("axe.run({preload: false})")
    assert [(rule["id"], rule["nodes"][0]["html"]) for rule in result["violations"]] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
