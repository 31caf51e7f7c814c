"""The glossary: ``docs/glossary.toml``, rendered as the page ``docs/glossary.md``.

Each term is a section of the page. Its anchor is the term in small letters with hyphens (or the
field ``id``), so a page links to a term in Markdown with an ordinary link. For a page in a folder::

    Each [attention head](../glossary.md#attention-head) has its own weights.

and in a docstring, which is reStructuredText, with the label ``glossary-`` and the anchor::

    Each :ref:`attention head <glossary-attention-head>` has its own weights.

A link to a term that does not exist is a warning, and the build fails.

The directive ``glossary-page`` writes an index of letters, the terms in alphabetical order, and an
index of the Japanese and of the Korean words. These words have the attribute ``lang``, by which
browsers choose a font and screen readers a voice.
"""

import re
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

from cells import chapter_files

SOURCE = Path(__file__).parent.parent / "glossary.toml"
PACKAGE = "transformer_blocks"
CHAPTERS = [  # the titles, "# # 0 Map and demo" without the number
    path.read_text("utf-8").splitlines()[1].lstrip("# 0123456789") for path in chapter_files()
]
KATAKANA_TO_HIRAGANA = {code: code - 0x60 for code in range(ord("ァ"), ord("ヶ") + 1)}

Term = dict[str, Any]


def load() -> tuple[list[Term], dict[str, str]]:
    """Read the terms in alphabetical order, each with its anchor, and the readings of kanji."""
    content = tomllib.loads(SOURCE.read_text(encoding="utf-8"))
    terms = [{"id": slug(term["term"])} | term for term in content["term"]]
    return sorted(terms, key=lambda term: term["term"].lower()), content["readings"]


def slug(text: str) -> str:
    """Return the anchor of a term: "KV cache" has "kv-cache"."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def reading(word: str, readings: dict[str, str]) -> str:
    """Return a Japanese word in hiragana, by which it is sorted."""
    kanji = "|".join(map(re.escape, sorted(readings, key=len, reverse=True)))
    word = re.sub(kanji, lambda match: readings[match[0]], word)
    return word.translate(KATAKANA_TO_HIRAGANA).lower()


def in_language(language: str, text: str) -> nodes.inline:
    """Return a text with the attribute ``lang``, which docutils makes of this class."""
    return nodes.inline(text, text, classes=[f"language-{language}"])


def plain(text: str) -> Iterator[nodes.Node]:
    """Yield the nodes of a text in which code stands between backticks."""
    for index, part in enumerate(text.split("`")):
        if part:
            yield nodes.literal(part, part) if index % 2 else nodes.Text(part)


def joined(parts: Iterable[nodes.Node], separator: str = ", ") -> list[nodes.Node]:
    """Return nodes with a separator between them."""
    found: list[nodes.Node] = []
    for part in parts:
        found += [nodes.Text(separator), part] if found else [part]
    return found


class GlossaryPage(SphinxDirective):
    """The directive ``glossary-page``, without arguments."""

    def run(self) -> list[nodes.Node]:
        """Generate the letters, the terms and the two indices."""
        self.env.note_dependency(str(SOURCE))
        terms, readings = load()
        self.ids = {term["term"]: term["id"] for term in terms}
        by_letter: dict[str, list[Term]] = {}
        for term in terms:
            by_letter.setdefault(term["term"][0].upper(), []).append(term)
        letters = [link(f"letter-{letter.lower()}", letter) for letter in by_letter]
        indices = [link("japanese", "日本語", "ja"), link("korean", "한국어", "ko")]
        navigation = nodes.paragraph(
            "", "", *joined([*letters, *indices], " "), classes=["glossary-letters"]
        )
        sections = [
            self.section(f"letter-{letter.lower()}", letter, map(self.entry, group))
            for letter, group in by_letter.items()
        ]
        japanese = words(terms, "ja", lambda word: reading(word, readings))
        korean = words(terms, "ko", str.lower)
        return [
            navigation,
            *sections,
            self.section("japanese", "Index of Japanese words", [japanese]),
            self.section("korean", "Index of Korean words", [korean]),
        ]

    def section(self, id: str, title: str, content: Iterable[nodes.Node]) -> nodes.section:
        """Return a section with an anchor, to which other pages can link."""
        section = nodes.section(ids=[id], names=[f"glossary-{id}"])
        self.set_source_info(section)
        self.state.document.note_explicit_target(section, section)
        section += [nodes.title(title, title), *content]
        return section

    def entry(self, term: Term) -> nodes.section:
        """Return the section of a term."""
        translations = nodes.paragraph(
            "",
            "",
            in_language("ja", "、".join(term["ja"])),
            nodes.Text(" · "),
            in_language("ko", ", ".join(term["ko"])),
            classes=["glossary-words"],
        )
        content: list[nodes.Node] = [translations, nodes.paragraph("", "", *plain(term["text"]))]
        if formula := term.get("formula"):
            content.append(
                nodes.math_block(
                    formula,
                    formula,
                    docname=self.env.docname,
                    number=None,
                    label=None,
                    **{"no-wrap": False},
                )
            )
        fields = nodes.field_list(classes=["glossary-fields"])
        for name, parts in self.fields(term):
            body = nodes.paragraph("", "", *parts)
            fields += nodes.field("", nodes.field_name(name, name), nodes.field_body("", body))
        return self.section(term["id"], term["term"], [*content, fields])

    def fields(self, term: Term) -> Iterator[tuple[str, list[nodes.Node]]]:
        """Yield the lines below the text of a term."""
        if term["aliases"]:
            yield "Also", [nodes.Text(", ".join(term["aliases"]))]
        yield "Learn", [self.chapter(term["chapter"])]
        if name := term.get("name"):
            reference = addnodes.pending_xref(
                "",
                nodes.literal(name, name.rpartition(".")[2]),
                refdomain="py",
                reftype="obj",
                reftarget=f"{PACKAGE}.{name}",
                refdoc=self.env.docname,
                refwarn=True,
            )
            yield "Library", [reference]
        if section := term.get("section"):
            yield "Paper", [nodes.Text(f"section {section}")]
        if related := term.get("see"):
            yield "See also", joined(link(self.ids[other], other) for other in related)

    def chapter(self, number: int) -> nodes.Node:
        """Return a chapter's name, with a link if the chapter has a page."""
        text = f"chapter {number}, {CHAPTERS[number]}"
        if (page := page_of(self.env, number)) is None:
            return nodes.Text(text)
        return addnodes.pending_xref(
            "",
            nodes.inline(text, text),
            refdomain="std",
            reftype="doc",
            reftarget=f"/{page}",
            refdoc=self.env.docname,
            refexplicit=True,
            refwarn=True,
        )


def link(id: str, text: str, language: str = "") -> nodes.reference:
    """Return a link to a place on this page."""
    content = in_language(language, text) if language else nodes.Text(text)
    return nodes.reference("", "", content, internal=True, refid=id)


def words(terms: list[Term], language: str, key: Any) -> nodes.bullet_list:
    """Return the list of all words of a language, each a link to its term."""
    pairs = [(word, term) for term in terms for word in term[language]]
    items = nodes.bullet_list(classes=["glossary-index"])
    for word, term in sorted(pairs, key=lambda pair: (key(pair[0]), pair[1]["term"])):
        paragraph = nodes.paragraph("", "", link(term["id"], word, language))
        if word != term["term"]:
            paragraph += nodes.Text(f" {term['term']}")
        items += nodes.list_item("", paragraph)
    return items


def page_of(env: BuildEnvironment, number: int) -> str | None:
    """Return the page of a chapter of Learn, whose file's name begins with its number."""
    pattern = re.compile(rf"learn/0*{number}(?!\d)[^/]*")
    return next(filter(pattern.fullmatch, sorted(env.found_docs)), None)


def read_again(
    app: Sphinx, env: BuildEnvironment, added: set[str], changed: set[str], removed: set[str]
) -> list[str]:
    """Read the glossary again after a chapter has been added or removed."""
    is_concerned = any(name.startswith("learn/") for name in added | removed)
    return ["glossary"] if is_concerned and "glossary" in env.found_docs else []


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive and its style sheet."""
    app.add_directive("glossary-page", GlossaryPage)
    app.add_css_file("glossary.css")
    app.connect("env-get-outdated", read_again)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
