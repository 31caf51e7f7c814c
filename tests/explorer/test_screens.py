"""The explorer's page in a browser: the story, one screen after the other."""

import re
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from sentencepiece import SentencePieceProcessor
from tests.browser import in_browser
from tests.explorer.live import round_weights, translator_of_texts
from tests.explorer.page import Opened
from tests.explorer.page_script import Script

from transformer_blocks import attention_weights, beam_search, causal_mask, explorer
from transformer_blocks.explorer import (
    Arithmetic,
    AttentionMaps,
    DecodingSteps,
    Explorer,
    LiveModel,
)
from transformer_blocks.explorer.tokens import token_labels

BEGIN, END = 1, 2
WORDS = ["▁does", "▁this", "▁dog", "▁run", "</s>"]


def aligned(clear: tuple[int, int], keys: list[str], moved: list[int]) -> torch.Tensor:
    """Make weights of 2 layers and 2 heads, of which one looks at given keys."""
    stack = torch.full((2, 2, len(moved), len(keys)), 1 / len(keys))
    stack[clear] = 0.1 / (len(keys) - 1)
    stack[clear][range(len(moved)), moved] = 0.9
    return stack


def test_the_story_shows_the_clearest_head_and_asks_for_its_own_keys_and_then_the_farthest() -> (
    None
):
    keys = ["▁この", "犬は", "走", "りますか", "。", "</s>"]
    moved = [3, 0, 1, 2, 5]
    for clear in ((0, 1), (1, 0)):
        stack = aligned(clear, keys, moved)
        stack[0, 0] = 0.001  # clear, but of a sign
        stack[0, 0, :, 4] = 0.995
        cross = AttentionMaps("Cross", stack, WORDS, keys, is_decoding=True)
        page = Script(Explorer([cross], decoding=DecodingSteps(WORDS, [[]] * 5)).html)
        assert page("clearestHead()") == ([0, *clear] if clear != (0, 0) else None)
        rows = page("stepsOf().filter(({id}) => id === 'look').map(({row}) => row)")
        assert rows[-1] == 0  # its key is near the end
        assert len(rows) == 3
        assert set(rows) <= {0, 1, 2, 3}
    assert page("[state.view, state.screen, state.head]") == ["screens", 0, 0]


def test_a_page_of_another_model_begins_with_the_name_of_its_clearest_head() -> None:
    equal = torch.ones(1, 2, 6, 6).masked_fill(causal_mask(6), 0.0)
    stack = equal / equal.sum(-1, keepdim=True)
    stack[0, 1] = torch.eye(6).roll(-1, 1)
    stack[0, 1, 0] = torch.eye(6)[0]
    page = Script(Explorer([AttentionMaps("Self", stack, list("abcdef"))]).html)
    assert page.text("title") == "Head 1 of layer 0 looks at the previous word"
    page("$('laboratory').click()")
    assert page("[state.view, state.layer, state.head]") == ["map", 0, 1]
    nothing = Script(Explorer([AttentionMaps("Self", torch.eye(2)[None, None], ["a", "b"])]).html)
    assert nothing("[shownStep().id, state.head]") == ["pattern", 1]  # no name: the mean


MODEL, CONTENT = translator_of_texts()
PROCESSOR = SentencePieceProcessor(model_proto=CONTENT)
SOURCE = [*PROCESSOR.encode("the cat sleeps"), END]
KEYS = PROCESSOR.id_to_piece(SOURCE)
MOVED = [len(KEYS) - 2, 0, 1, 1, len(KEYS) - 1]


def story_of(text: str = "the cat sleeps") -> Explorer:
    """Make a page with a model, whose cross-attention has one clear head."""
    cross = AttentionMaps(
        *("Cross-attention", aligned((1, 0), KEYS, MOVED), WORDS, KEYS),
        is_decoding=True,
        query_axis="target",
        key_axis="source",
    )
    live = LiveModel(MODEL, [CONTENT] * 2, end_id=END, max_length=40, language="en")
    earlier = Explorer([cross], f"{text} → before", DecodingSteps(WORDS, [[]] * 5), "T, 0 updates")
    return replace(
        earlier,
        title=f"{text} → after",
        model="T, 9 updates",
        text=text,
        live=live,
        earlier=[earlier],
        languages=["en", "ja"],
        glosses={token_labels(KEYS)[0].text: "cat (topic)"},
        slots=[[("the cat", "猫"), ("the dog", "犬")], [("sleeps", ""), ("runs", "")]],
    )


def test_without_a_word_the_probabilities_are_those_of_torch() -> None:
    page = Script(story_of().html)
    page("$('live-method').value = 'beam', goTo(3), 0")
    assert page("shownStep().id") == "without"
    for _ in range(500):
        page("pass(20), 0")
    model = deepcopy(MODEL)
    round_weights(model)
    tokens = model.generate(
        [SOURCE], beam_search, beam_size=5, end_id=END, max_length=2 * len(SOURCE) + 10
    )[0][0]
    target = [*tokens.tokens, END] if tokens.finished else list(tokens.tokens)
    struck = page("screens.struck")
    without = [model.padding_id if i == struck else token for i, token in enumerate(SOURCE)]
    for found, source in zip(page("screens.change.probabilities"), (SOURCE, without), strict=True):
        logits = model(torch.tensor([source]), torch.tensor([[BEGIN, *target[:-1]]]))[0]
        expected = logits.softmax(-1)[range(len(target)), target].tolist()
        assert found == pytest.approx(expected, rel=1e-3)
    page("screens.change.probabilities = [[0.8, 0.8, 0.8], [0.1, 0.5, 0.9]]")
    fell = page("[0, 1, 2].map(row => views.screens.marksOf('queries', row).includes('fell'))")
    assert fell == [True, False, False]
    assert page("views.screens.marksOf('keys', screens.struck)") == " struck"
    assert page("[shownToken(), $('story-all').style.opacity]") == [None, "0"]  # it has no lines
    page("$('say-other').click(), 0")
    assert page("[screens.struck, screens.change]") == [None, None]


def test_a_weight_is_explained_by_the_score_of_its_key() -> None:
    torch.manual_seed(0)
    key = torch.randn(2, 2, 6, 8)
    query = torch.stack([key[:, :, column] for column in (3, 0, 1, 2, 5)], dim=2)
    query, key = query + torch.randn(2, 2, 5, 8) / 3, key + torch.randn(2, 2, 6, 8) / 3
    stack, tokens = attention_weights(query, key), ["▁この", "犬は", "走", "りますか", "。", "</s>"]
    cross = AttentionMaps(
        *("Cross", stack, WORDS, tokens),
        is_decoding=True,
        arithmetic=Arithmetic(query, key, torch.randn(2, 2, 6, 3)),
    )
    page = Script(Explorer([cross], decoding=DecodingSteps(WORDS, [[]] * 5)).html)
    page("goTo(stepsOf().findIndex(({id}) => id === 'why')), 0")
    page("0")  # once the vectors are there
    layer, head, row, column = page("[state.layer, state.head, state.row, state.column]")
    scores = key[layer, head] @ query[layer, head, row] / 8**0.5
    assert f"score {scores[column]:.1f}" in page.text("extra")


@pytest.mark.parametrize(("reader", "letters"), [("en", "[a-z]"), ("ja", "[ぁ-ん]")])
def test_the_story_is_in_the_language_of_the_reader(reader: str, letters: str) -> None:
    page = Script(story_of().html, reader=f"{reader}-XX")
    keys = [page(f"Object.keys(SENTENCES.{each})") for each in ("en", reader)]
    assert keys[0] == keys[1]
    for number in range(page("stepsOf().length")):
        page(f"goTo({number}), 0")
        for answer in ("0", "shownStep().choose({side: 'keys', index: 0})"):
            page(f"{answer}, 0")
            text = page.text("title") + page.text("say-text")
            assert len(re.findall(letters, text)) > 10, text
            assert not re.search(r"undefined|[{}]", text)
        terms = page("$('say-text').querySelectorAll('.term').map(each => each.textContent)")
        assert reader == "en" or not re.search("[a-z]{4}", "".join(terms).replace("updates", ""))
    assert (page("glossOf('keys', attentions[0].keys[0])") != "") is (reader == "en")


@pytest.fixture(scope="module")
def story(browser: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    file = tmp_path_factory.mktemp("story") / "page.html"
    options: Any = {"viewport": {"width": 390, "height": 844}, "reduced_motion": "reduce"}
    page = Opened(browser, file, story_of(), **options)
    yield page
    page.close()


def key(index: int) -> str:
    return f"#story-keys button:nth-child({index + 1})"


@in_browser
@pytest.mark.parametrize(("width", "height"), [(390, 844), (1366, 768)])
def test_the_first_screen_fits_and_a_tap_shows_the_true_weight(
    story: Opened, width: int, height: int
) -> None:
    page = story.page
    story.resize(width, height)
    story.go()
    asked = page.inner_text("#story-queries .asked")
    best = MOVED[[label.text for label in token_labels(WORDS)].index(asked)]
    assert story.text("#say-text").endswith(f"look at to write “{asked}”? Tap it.")
    assert page.evaluate("window.explorerStory().shows") is None
    assert page.evaluate("document.getElementById('story-all').style.opacity") == "0"
    page.hover(key(best))
    assert page.evaluate("window.explorerStory().shows") is None  # a pointer gives nothing away
    assert not page.is_visible("#say-next")
    for selector in ("#title", "#story-keys", "#story-queries", "#say"):
        box = page.evaluate(
            f"document.querySelector('{selector}').getBoundingClientRect().toJSON()"
        )
        assert 0 <= box["top"] <= box["bottom"] <= height
    page.click(key(best + 1))
    assert story.text("#say-text").startswith("✗ Not ")
    frame = "each => parseFloat(getComputedStyle(each).outlineWidth)"
    assert page.eval_on_selector(".token.wrong", frame) >= 3
    assert story.problems("{include: ['#story']}") == []
    story.go()
    page.click(key(best))
    text = story.text("#say-text")
    assert text.startswith("✓ Yes: it looked at ")
    assert "90\u00a0%" in text
    assert "attention" in text
    bottom = page.evaluate("document.getElementById('say-next').getBoundingClientRect().bottom")
    assert bottom <= height
    assert page.get_attribute(key(0), "lang") == "en"
    assert page.inner_text(f"{key(0)} small") == "cat (topic)"
    assert page.get_attribute("#story-queries button", "lang") == "ja"


@in_browser
def test_the_screens_follow_each_other_and_the_laboratory_has_a_link_of_its_own(
    story: Opened,
) -> None:
    page = story.page
    story.resize(390, 844)
    story.go()
    seen = []
    for screen in range(7):
        if screen:
            if not page.is_visible("#say-next"):
                page.click(key(0))  # answers the question
            page.click("#say-next")
            page.wait_for_url(f"**#p={screen}*")
        seen.append(story.text("#title"))
        below = "document.getElementById('say').getBoundingClientRect().bottom"
        page.evaluate("scrollTo(0, 1e6)")
        assert page.evaluate(f"[{below}, document.getElementById('say').offsetLeft]") == [844, 0]
        assert page.evaluate("document.getElementById('story').getBoundingClientRect().top") >= -1
    assert len(set(seen)) == 5  # three questions of one title, without, heads, learn, turn
    assert story.text("#title").startswith("Your turn")
    page.go_back()
    page.wait_for_function("document.getElementById('title').innerText === 'Watch it learn'")
    assert page.input_value("#time") == "0"  # it begins with the model that has learned nothing
    assert "before" in story.text("#say-text")
    page.fill("#time", "1")
    page.wait_for_function("document.getElementById('say-text').innerText.includes('after')")
    page.click("#laboratory")
    page.wait_for_url("**v=story**")
    assert page.is_visible("#tools")
    page.click("#to-screens")
    assert not page.is_visible("#tools")


@in_browser
def test_a_sentence_is_put_together_from_slots_and_an_unknown_one_is_refused(story: Opened) -> None:
    page = story.page
    story.go("#p=6")
    page.select_option("#slots select >> nth=0", "the dog")
    page.wait_for_function("document.getElementById('live-text').value === 'the dog sleeps'")
    page.wait_for_selector("#live-status >> text=ms a token")
    keys = page.eval_on_selector_all("#story-keys button", "all => all.map(each => each.title)")
    said = story.text("#say-text")
    page.fill("#live-text", "😀")
    page.wait_for_selector("#live-status >> text=is in none of them")
    assert said == story.text("#say-text")
    assert keys == page.eval_on_selector_all("#story-keys button", "all => all.map(e => e.title)")


@in_browser
@pytest.mark.parametrize(("theme", "width"), [("light", 390), ("dark", 1366)])
def test_the_screens_exclude_nobody_and_nothing_overflows_or_moves(
    browser: Any, tmp_path: Any, theme: Any, width: int
) -> None:
    options = {"viewport": {"width": width, "height": 800}, "color_scheme": theme}
    story = Opened(browser, tmp_path / "page.html", story_of(), **options)
    story.page.add_init_script(
        """const shifts = [];
        const observer = new PerformanceObserver(list => shifts.push(...list.getEntries()));
        observer.observe({type: "layout-shift", buffered: true});
        window.moved = async () => {
            for (let i = 0; i < 2; i++) await new Promise(requestAnimationFrame);  // one is painted
            shifts.push(...observer.takeRecords());
            return shifts.reduce((sum, each) => sum + each.value, 0);
        };"""
    )
    for place, computed in {
        "#p=0": "#story-queries .asked",
        "#p=3": "#say-text q",
        "#p=4": "#extra .mini",
        "#p=5": "#time",
        "#p=6": "#live-list button",
        "#v=story": "#live-list button",
        "#v=map": "#grid[data-drawn]",
    }.items():
        story.go(place)
        story.page.wait_for_selector(computed, state="attached")
        assert story.problems() == []
        assert story.page.evaluate("document.documentElement.scrollWidth") <= width
        assert story.page.evaluate("moved()") < 0.05
    story.close()


@in_browser
def test_forced_colours_show_what_is_selected(browser: Any, tmp_path: Any) -> None:
    story = Opened(browser, tmp_path / "page.html", story_of(), forced_colors="active")
    story.go("#v=story&lock=1&q=1&k=0")
    colour = "each => getComputedStyle(each).backgroundColor"
    for chosen, other in (
        ("#views [aria-checked=true]", "#views [aria-checked=false]"),
        ("#heads [aria-checked=true]", "#heads [aria-checked=false]"),
        ("#story-queries .shown", "#story-queries .token:not(.shown)"),
    ):
        found = [story.page.eval_on_selector(each, colour) for each in (chosen, other)]
        assert found[0] != found[1]
        kept = "each => getComputedStyle(each).forcedColorAdjust"  # or all buttons look alike
        assert story.page.eval_on_selector(chosen, kept) == "none"
    story.close()


@in_browser
def test_without_scripts_the_page_shows_a_picture_of_its_weights(
    browser: Any, tmp_path: Any
) -> None:
    story_of().save(tmp_path / "page.html")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    assert page.inner_text("noscript h1") == "the cat sleeps → after"
    assert page.locator("noscript text").all_text_contents() == [
        label.text for label in (*token_labels(KEYS), *token_labels(WORDS))
    ]
    assert not page.is_visible("header")
    context.close()


@in_browser
def test_the_scripts_are_modules_that_import_what_they_use(browser: Any) -> None:
    files = Path(explorer.__file__).with_name("page")
    html = re.sub('<meta http-equiv="Content-Security-Policy"[^>]*>', "", story_of().html)
    modules = "".join(f'import "./{name}.js";' for name in ("times", "live", "start"))
    html = f"{html.rpartition('<script>')[0]}<script type=module>{modules}</script>"
    page, errors = browser.new_page(), []
    page.on("pageerror", lambda error: errors.append(str(error)))

    def serve(route: Any) -> None:
        name = str(route.request.url).rpartition("/")[2]
        if name.endswith(".js"):
            body, kind = (files / name).read_text(encoding="utf-8"), "text/javascript"
        else:
            body, kind = html, "text/html"
        route.fulfill(body=body, content_type=kind)

    page.route("**/*", serve)
    page.goto("http://page.test/")
    page.wait_for_selector("html[data-ready]")
    page.click(key(0))
    page.click("#laboratory")
    page.click("#story-queries button")
    for view in (1, 0):
        page.click(f"#views [role=radio] >> nth={view}")
    page.click("#save-png")
    assert errors == []
    page.close()
