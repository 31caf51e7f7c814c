"""Localisation: the README and chapters of the book in other languages.

    python docs/_ext/localisation.py

A translation is tied to the English text. The Translate Toolkit splits a text into its paragraphs,
headings, list items and table cells, the *messages*. The translation of each is in a catalog: that
of the README in ``docs/locale/ja/README.po``, that of a chapter in
``docs/locale/ja/01_one_query.po``, that of the sidebar and of the texts in figures and widgets in
``docs/locale/ja/site.po``. Code blocks and equations are copied, and so are the targets of links: a
message has ``[text]{1}`` in place of its first link, so that a page can be moved without a change
of the translation.

A message whose English has changed is shown in English until it is translated again. After a change
of the README or of a chapter:

1. Run this program. It adds new messages to the catalogs, marks the translation of changed ones as
   *fuzzy*, and prints both.
2. Translate them in the catalog (``msgstr``), and remove the lines ``#, fuzzy`` and ``#| msgid``.
3. Run this program again. It writes README.ja.md. The pages are made by ``make docs``.

A new translation of a chapter begins with a file of the right name that has only the first lines of
another one, up to the first empty line.
tests/docs/test_translations.py fails when README.ja.md is not what this program writes, and when a
message of a catalog is not translated.
"""

import html
import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any
from unittest.mock import patch

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

from cells import LEARN, prose

ROOT = LEARN.parents[1]
LOCALE = ROOT / "docs" / "locale"
ENGLISH = ROOT / "README.md"
CATALOG = LOCALE / "ja" / "README.po"
JAPANESE = ROOT / "README.ja.md"

FURNITURE = ["Search", "On this page", "Back to top", "Next", "Previous"]  # of the theme
FURNITURE += ["Solution", "Hint", "recorded"]
FURNITURE += ["This chapter as a notebook", "{} minutes, exercises {}"]

MARKED = re.compile(r"""_\((["`])(.+?)\1\)""")  # a text of a script
NOT_TEXT = re.compile(r"\$\$.*?\$\$|\$[^$]*\$|`[^`]*`|<[^>]*>", re.S)

Lookup = Callable[[str], str | None]


# The Translate Toolkit has the name of one of our programs.
with patch.dict(sys.modules), patch.object(sys, "path", sys.path[:]):
    sys.modules.pop("translate", None)
    sys.path[:] = [each for each in sys.path if not Path(each, "translate.py").is_file()]
    MARKDOWN = import_module("translate.storage.markdown")


def read(text: str, lookup: Lookup) -> Any:
    """Split a Markdown text into messages, and translate those that the function knows."""
    file = MARKDOWN.MarkdownFile(
        callback=lambda message: lookup(message) or message,
        lookup_callback=lookup,
        extract_code_blocks=False,
    )
    file.parse(text.encode())
    return file


def translate(text: str, lookup: Lookup) -> str:
    """Translate a Markdown text.

    Args:
        text: The English text.
        lookup: A function that returns the translation of a message, or None if there is none.

    Returns:
        The text, in which each message is one line.
    """
    return read(text, lookup).filesrc


def messages(text: str) -> list[str]:
    """List the messages of a Markdown text that have words, each once."""
    return with_words([unit.source for unit in read(text, lambda _: None).units])


def with_words(texts: list[str]) -> list[str]:
    """List the texts that have words beside code and formulas, each once."""
    return [each for each in dict.fromkeys(texts) if re.search("[a-z]{2,}", NOT_TEXT.sub("", each))]


@cache
def lookup_in(path: Path) -> Lookup:
    """Return the function that finds translations in a catalog, if any; fuzzy ones do not count."""
    catalog = read_catalog(path) if path.is_file() else Catalog()

    def lookup(msgid: str) -> str | None:
        message = catalog.get(msgid)
        return str(message.string) if message and message.string and not message.fuzzy else None

    return lookup


def read_catalog(path: Path) -> Catalog:
    """Read translations; the folder of a catalog is its language."""
    with path.open("rb") as file:
        return read_po(file, locale=path.parent.name)


def update(path: Path) -> None:
    """Add new messages to a catalog, and mark the translations of changed ones as fuzzy."""
    catalog, template = read_catalog(path), Catalog()
    for text in messages_of(path):
        template.add(text)
    catalog.update(template)
    for message in catalog:  # a wrapped comment about an earlier text is read as the translator's
        message.user_comments.clear()
    header = path.read_text("utf-8").partition("\n\n")[0]  # babel's has dates, which always change
    with path.open("wb") as file:
        file.write(f"{header}\n\n".encode())
        options = {"include_previous": True, "ignore_obsolete": True, "omit_header": True}
        write_po(file, catalog, width=0, **options)


def catalogs() -> list[Path]:
    """List the catalogs of all languages."""
    return sorted(LOCALE.glob("*/*.po"))


def english_text(catalog: Path) -> str:
    """Return the text that a catalog translates: the README or a chapter."""
    if catalog.stem == "README":
        return ENGLISH.read_text("utf-8")
    return prose(LEARN / f"{catalog.stem}.py")


def messages_of(catalog: Path) -> list[str]:
    """List the messages of a catalog's text, or of what is around the chapters."""
    if catalog.stem == "site":
        return with_words([*FURNITURE, *sidebar_texts(), *figure_texts(), *widget_texts()])
    return messages(english_text(catalog))


def sidebar_texts() -> list[str]:
    """List the captions of the sidebar, and the titles of its first level."""
    text = (ROOT / "docs" / "index.md").read_text("utf-8").replace("'", "’")  # as in the page
    return re.findall(
        r"(?m)^(?::caption: )?([A-Z][^<\n]*?)(?: <[\w/]+>)?$", text.partition("{toctree}")[2]
    )


def figure_texts() -> list[str]:
    """List the texts in the figures of the book."""
    figures = [path.read_text("utf-8") for path in sorted(LEARN.glob("figures/*.svg"))]
    found = re.findall(r"<text[^>]*>(?:\d+\. )?([^<]+)", "".join(figures))
    return list(dict.fromkeys(html.unescape(text).strip() for text in found))


def widget_texts() -> list[str]:
    """List the texts of the book's widgets."""
    widgets = sorted((ROOT / "docs" / "_static" / "widgets").glob("*.js"))
    return [text for path in widgets for _, text in MARKED.findall(path.read_text("utf-8"))]


def translate_script(script: str, word: Callable[[str], str]) -> str:
    """Translate the texts that a script marks: ``_("so")`` or, with values, ``_(`${so}`)``."""

    def translated(match: re.Match[str]) -> str:
        quote, text = match.groups()
        return f"_({quote}{word(text)}{quote})"

    return MARKED.sub(translated, script)


def translate_markup(markup: str, word: Callable[[str], str]) -> str:
    """Translate the texts between the tags of HTML or SVG, which may begin with a number."""

    def translated(match: re.Match[str]) -> str:
        return match[1] + html.escape(word(html.unescape(match[2])), quote=False)

    return re.sub(r"(>(?:\d+\. )?)([^<>\n]+)(?=<)", translated, markup)


def missing_messages(catalog: Path) -> tuple[list[str], int]:
    """Return the messages without a translation, and the number of all."""
    lookup = lookup_in(catalog)
    found = messages_of(catalog)
    return [message for message in found if lookup(message) is None], len(found)


def main() -> None:
    """Update the catalogs and README.ja.md, and print what is not translated."""
    for path in catalogs():
        update(path)
        missing, count = missing_messages(path)
        name = path.relative_to(LOCALE)
        print(f"{name}: {len(missing)} of {count} messages are not translated")
        for message in missing:
            print(f"  {message}")
    readme = ENGLISH.read_text("utf-8")
    JAPANESE.write_text(translate(readme, lookup_in(CATALOG)), "utf-8")


if __name__ == "__main__":
    main()
