"""The Japanese README and the translated chapters: complete, and true to the English text."""

import re
from pathlib import Path
from typing import Any

import pytest
from babel.messages.catalog import Catalog

import localisation as program
from cells import LEARN, read_cells

ROOT = Path(__file__).parents[2]
ENGLISH = (ROOT / "README.md").read_text("utf-8")

CATALOG = program.read_catalog()
LOOKUP = program.lookup_in(CATALOG)
TRANSLATED = {
    message: translation
    for message in program.messages(ENGLISH)
    if (translation := LOOKUP(message)) is not None
}


def language_and_name(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def test_the_japanese_readme_is_up_to_date() -> None:
    written = (ROOT / "README.ja.md").read_text("utf-8")
    assert written == program.translate(ENGLISH, LOOKUP), "run `make translations`"


@pytest.mark.parametrize("path", program.catalogs(), ids=language_and_name)
def test_every_message_is_translated(path: Path) -> None:
    missing, count = program.missing_messages(path)
    assert count > 30
    assert missing == [], (
        f"{len(missing)} of {count} messages of {path} are not translated (shown in English); "
        "run `make translations`, translate them, and run it again:\n" + "\n".join(missing)
    )


CHAPTERS = [path for path in program.catalogs() if path.stem[0].isdigit()]


@pytest.mark.parametrize("path", program.catalogs(), ids=language_and_name)
def test_a_translation_keeps_formulas_code_links_numbers_and_emphasis(path: Path) -> None:
    lookup = program.lookup_in(program.read_catalog(path))
    for message in program.messages_of(path):
        translation = lookup(message)
        if translation is None or "README" in translation:  # a link to the other language
            continue
        for pattern in (r"\$(?!\{)[^$]+\$(?!\{)", r"\$\{[^}]+\}", r"`[^`]+`", r"\{\d\}"):
            expected = set(re.findall(pattern, message))  # a translation may repeat a name
            assert expected == set(re.findall(pattern, translation)), (message, translation)
        digits = r"\d[\d.,]*\d(?!\d| [mb]illion)"  # of numbers that need no conversion
        numbers = set(re.findall(digits, message))  # a translation may write more in digits
        assert numbers <= set(re.findall(digits, translation)), (message, translation)
        assert message.count("**") == translation.count("**"), translation
        assert "\n" not in translation


@pytest.mark.parametrize("path", CHAPTERS, ids=language_and_name)
def test_emphasis_in_a_translated_chapter_is_recognised(path: Path) -> None:
    markdown = pytest.importorskip("markdown_it").MarkdownIt()
    text = program.translate(
        program.english_text(path), program.lookup_in(program.read_catalog(path))
    )
    without_formulas = re.sub(r"\$\$.*?\$\$|\$[^$]*\$|`[^`]*`", "", text, flags=re.S)
    shown = re.sub(r"<[^>]+>", "", markdown.render(without_formulas))
    assert [line for line in shown.splitlines() if "*" in line] == []


@pytest.mark.parametrize("path", CHAPTERS, ids=language_and_name)
def test_the_page_of_a_language_has_the_code_of_the_chapter(path: Path) -> None:
    learn = pytest.importorskip("learn")
    for cell in read_cells(LEARN / f"{path.stem}.py"):
        if cell.kind == "code":
            assert learn.relocated(cell.source, path.parent.name) == cell.source


def test_images_are_copied_and_so_is_what_is_not_translated() -> None:
    copied = program.translate(ENGLISH, lambda message: None)
    assert re.findall(r"[^\s|-]+", copied) == re.findall(r"[^\s|-]+", ENGLISH)  # in other lines
    images = re.compile(r"!\[[^\]]*\]\((.*?)\)")
    japanese = program.translate(ENGLISH, LOOKUP)
    assert images.findall(japanese) == images.findall(ENGLISH) != []


def test_sentences_are_polite_japanese() -> None:
    for message, translation in TRANSLATED.items():
        text = re.sub(r"`[^`]*`|（[^（）]*）|\(.*?\)", "", translation).replace("**", "")
        for sentence in re.findall(r"[^。：]+。", text):
            if len(sentence) > 15:
                polite = r"(ます|です|ません|ください|ました)。$"
                assert re.search(polite, sentence), (message, sentence)


def test_both_readmes_link_to_each_other() -> None:
    assert ENGLISH.splitlines()[2] == "English | [日本語](README.ja.md)"
    assert program.translate(ENGLISH, LOOKUP).splitlines()[2] == "[English](README.md) | 日本語"


TEXT = "# Title\n\nThe results are in\n[this file](docs/results.md).\n\nThree rules hold:\n"


def small_catalog() -> Any:
    """Translate TEXT."""
    catalog = Catalog()
    catalog.add("Title", "題")
    catalog.add("The results are in [this file]{1}.", "結果は[このファイル]{1}にあります。")
    catalog.add("Three rules hold:", "すべてに共通する規則が3つあります。")
    return catalog


def test_the_texts_of_a_figure_are_translated_and_nothing_else() -> None:
    words = {"key": "キー", "dot products": "内積", "the <bos> token": "トークン<bos>"}
    svg = '<text class="key">key</text>\n<text>1. dot products</text><b>the &lt;bos&gt; token</b>'
    translated = program.translate_markup(svg, words.get)
    expected = '<text class="key">キー</text>\n<text>1. 内積</text><b>トークン&lt;bos&gt;</b>'
    assert translated == expected
    for path in sorted(LEARN.glob("figures/*.svg")):
        svg = path.read_text("utf-8")
        assert program.translate_markup(svg, lambda message: None) == svg, path.name


def test_the_texts_that_a_script_marks_are_translated_and_nothing_else() -> None:
    words = {"step": "ステップ", "${n} beams": "ビーム${n}本"}
    script = 'const step = "step"; say(_("step"), _(`${n} beams`), _("other"));'
    expected = 'const step = "step"; say(_("ステップ"), _(`ビーム${n}本`), _("other"));'
    assert program.translate_script(script, words.get) == expected


def test_a_moved_page_needs_no_translation() -> None:
    lookup = program.lookup_in(small_catalog())
    assert "結果は[このファイル](docs/results.md)にあります。" in program.translate(TEXT, lookup)
    moved = TEXT.replace("docs/results.md", "docs/howto/results.md")
    expected = "結果は[このファイル](docs/howto/results.md)にあります。"
    assert expected in program.translate(moved, lookup)
    assert program.messages(moved) == program.messages(TEXT)


def test_a_changed_paragraph_is_shown_in_english_and_counted() -> None:
    old, new = "Three rules hold:", "Four rules hold:"
    changed = TEXT.replace(old, new).replace("The results", "All results")
    catalog = small_catalog()
    program.update(catalog, program.messages(changed))
    lookup = program.lookup_in(catalog)
    assert catalog.get(new).fuzzy  # the old translation is proposed, and not used
    assert catalog.get(new).string == "すべてに共通する規則が3つあります。"
    english = "All results are in [this file](docs/results.md)."
    assert program.translate(changed, lookup) == f"# 題\n\n{english}\n\n{new}\n"
    missing = [message for message in program.messages(changed) if lookup(message) is None]
    assert missing == ["All results are in [this file]{1}.", new]


def test_a_widget_s_still_picture_is_translated_and_no_other_fence() -> None:
    text = "one\n\n```{widget} softmax\n![one](y)\n```\n\n```text\none\n```\n"
    shown = "two\n\n```{widget} softmax\n![two](y)\n```\n\n```text\none\n```\n"
    assert program.translate(text, {"one": "two", "![one]{1}": "![two]{1}"}.get) == shown
    assert program.messages(text) == ["one", "![one]{1}"]
