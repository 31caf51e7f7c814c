"""The Japanese README and the translated chapters: complete, and true to the English text."""

import re
from pathlib import Path

import pytest

import localisation as program

ROOT = Path(__file__).parents[2]


def language_and_name(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}"


def test_the_japanese_readme_is_up_to_date() -> None:
    written = (ROOT / "README.ja.md").read_text("utf-8")
    english = (ROOT / "README.md").read_text("utf-8")
    lookup = program.lookup_in(program.CATALOG)
    assert written == program.translate(english, lookup), "run `make translations`"


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
    lookup = program.lookup_in(path)
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
    text = program.translate(program.english_text(path), program.lookup_in(path))
    without_formulas = re.sub(r"\$\$.*?\$\$|\$[^$]*\$|`[^`]*`", "", text, flags=re.S)
    shown = re.sub(r"<[^>]+>", "", markdown.render(without_formulas))
    assert [line for line in shown.splitlines() if "*" in line] == []
