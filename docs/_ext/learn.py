"""Learn: the chapters of the book as pages, and what the site shows instead of comments.

The Markdown of the repository is plain, since a code host shows it as it is. The site replaces what
:data:`SHOWN` lists: comments by widgets, by the cards of the chapters and by code, texts for a code
host by those for the site, and pictures by figures that follow the page's light or dark theme, with
a link for enlarging them.

A chapter, ``learn/NN_name.ipynb``, is shown with the texts of its Python file (see ``cells.py``)
and with what its notebook says that the code prints. A chapter whose texts are translated (see
``localisation.py``) has a page for each language, ``learn/ja/NN_name.md``, which is an empty file
until it is read. Its code and its numbers are those of the English page.
"""

import html
import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

from cells import LEARN, Cell, chapter_files, folded, prose, read_cells
from localisation import LOCALE, lookup_in, translate, translate_markup, translate_script
from reference_pages import with_code

DOCS = LEARN.parent
PIXELS = 10  # height of the smallest text of a figure on a telephone
WORDS_A_MINUTE = 120  # of a text with formulas and code
NAMES = {"en": "English", "ja": "日本語", "ko": "한국어"}

Found = re.Match[str]


def read_page(app: Sphinx, page: str, source: list[str]) -> None:
    """Make the Markdown of a page of the site."""
    if found := re.fullmatch(r"learn/(?:../)?(\d\d_\w+)", page):
        source[0] = as_markdown(LEARN / f"{found[1]}.py", language_of(page))
    for pattern, shown in SHOWN.items():
        source[0] = re.sub(pattern, partial(shown, page), source[0], flags=re.M | re.S)


# Chapters


def as_markdown(path: Path, language: str = "en") -> str:
    """Make the Markdown of a chapter's page."""
    parts: list[str] = []
    word = words_in(language)
    for cell in read_cells(path):
        text = show(cell, word)
        if cell.kind == "markdown" and language != "en":
            text = translate(text, lookup_in(catalog_of(path, language))).rstrip()
            text = relocated(text, language)
        if cell.role == "formula":  # beside the implementation, which is the next cell
            text = f"::::{{container}} beside\n:::{{container}} formula\n{text}\n:::"
        elif parts and parts[-1].startswith("::::{container} beside"):
            text = f":::{{container}} code\n{text}\n:::\n::::"
        parts.append(text)
    title, _, rest = "\n\n".join(parts).partition("\n")
    links = [f"{{download}}`{word('This chapter as a notebook')} </learn/{path.stem}.ipynb>`"]
    for other in languages_of(path):
        if other != language:
            links.append(f"[{NAMES[other]}](/learn/{page_of(path, other)})")
    rest = f"\n:::{{container}} chapter-links\n{' · '.join(links)}\n:::\n{rest}"
    for phrase in ("Hint", "Solution"):
        rest = rest.replace(f"<summary>{phrase}<", f"<summary>{word(phrase)}<")
    return f"{title}\n{rest}"


def show(cell: Cell, word: Callable[[str], str]) -> str:
    """Make the Markdown of one cell."""
    if cell.kind == "markdown":
        return cell.source
    if cell.role == "solution":
        return folded(cell)
    caption = cell.recorded and f":caption: {word('recorded')}: {cell.recorded}\n"
    printed = f"~~~{{code-block}} text\n:class: output\n{caption}\n{cell.output}\n~~~"
    code = f"~~~{{code-block}} python\n:class: {cell.role or 'input'}\n\n{cell.source}\n~~~"
    return f"{code}\n\n{printed}" if cell.output else code


def catalog_of(path: Path, language: str) -> Path:
    """Return the file of a chapter's translations."""
    return LOCALE / language / f"{path.stem}.po"


def languages_of(path: Path) -> list[str]:
    """List the languages of a chapter."""
    return ["en", *(each for each in NAMES if catalog_of(path, each).is_file())]


def page_of(path: Path, language: str) -> str:
    """Return the source file of a chapter's page, seen from the folder of the English ones."""
    return f"{path.stem}.ipynb" if language == "en" else f"{language}/{path.stem}.md"


def language_of(page: str) -> str:
    """Return the language of a page."""
    folder = page.split("/")[1] if page.startswith("learn/") else ""
    return folder if folder in NAMES else "en"


def words_in(language: str) -> Callable[[str], str]:
    """Return the function that gives a text around a chapter or in its figures in a language."""
    lookup = lookup_in(LOCALE / language / "site.po")
    return lambda text: lookup(text) or text


def relocated(text: str, language: str) -> str:
    """Adapt the links of a chapter to the folder of a language."""

    def adapted(found: Found) -> str:
        chapter = LEARN / f"{Path(found[1]).stem}.py"
        is_translated = chapter.is_file() and language in languages_of(chapter)
        return f"]({chapter.stem}.md" if is_translated else f"](../{found[1]}"

    return re.sub(r"\]\((?!#|[a-z]+:)([^)#\s]+)", adapted, text)


def add_translations(app: Sphinx) -> None:
    """Add an empty file for each translated chapter."""
    for path in chapter_files():
        for language in languages_of(path)[1:]:
            page = LEARN / page_of(path, language)
            page.parent.mkdir(exist_ok=True)
            page.touch()


def set_language(app: Sphinx, page: str, template: str, context: dict[str, Any], _: Any) -> None:
    """Declare the language of a translated page, and translate what the theme adds to it."""
    if (language := language_of(page)) != "en":
        word = words_in(language)
        context["language"] = language
        context["_"] = context["gettext"] = lambda text, **_: word(text)
        tree = context["furo_navigation_tree"]
        context["furo_navigation_tree"] = translate_markup(tree, word)


# What comments stand for


def root_of(page: str) -> str:
    """Return the address of the site's folder, seen from a page."""
    return "../" * page.count("/")


def figure(page: str, found: Found) -> str:
    """Return the HTML of a picture, and a link that shows it alone.

    On a narrow screen a figure of the book is as wide as its smallest text needs, on a wide one as
    high (see ``pages.css``).
    """
    label, large = (
        html.escape(found[1], quote=True),
        f"{root_of(page)}_images/{Path(found[2]).name}",
    )
    picture = f'<img alt="{label}" src="{large}">'
    if found[2].startswith("figures"):
        svg = (LEARN / found[2]).read_text(encoding="utf-8")
        smallest = min(map(float, re.findall(r"font(?:-size)?:[^;\"]*?([\d.]+)px", svg)))
        [size] = re.findall(r'<svg[^>]* viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
        width, height = (float(each) / smallest * PIXELS for each in size)
        style = f"--readable: {width:.0f}px; --tall: {height:.0f}px"
        picture = svg[svg.index("<svg") :].replace(
            "<svg", f'<svg role="img" aria-label="{label}" style="{style}"', 1
        )
        picture = re.sub(r"\n\s*\n", "\n", translate_markup(picture, words_in(language_of(page))))
    return f'<figure class="drawing"><a href="{large}">{picture}</a></figure>'


def copy_pictures(app: Sphinx, error: Exception | None) -> None:
    """Copy the pictures beside the pages, where the links to them lead."""
    if error is None:
        for folder in (LEARN / "figures", DOCS / "images"):
            ignored = shutil.ignore_patterns("data")
            shutil.copytree(folder, app.outdir / "_images", ignore=ignored, dirs_exist_ok=True)


def widget(page: str, found: Found) -> str:
    """Return a script that draws into the page, and its still picture for where scripts are off.

    ``<!-- widget: softmax -->`` puts ``_static/widgets/softmax.js`` into the page, in which it
    fills the element ``<div class="widget" id="widget-softmax">``. A picture that follows is the
    still one.
    """
    name, still = found.groups(default="")
    script = (DOCS / "_static" / "widgets" / f"{name}.js").read_text("utf-8")
    script = translate_script(script, words_in(language_of(page)))
    place = f'<div class="widget" id="widget-{name}" data-static="{root_of(page)}_static"></div>'
    drawn = f"~~~{{raw}} html\n<script>\n{script}</script>\n~~~"
    return f"{place}\n\n<noscript>\n\n{still}\n\n</noscript>\n\n{drawn}"


def cards(page: str, found: Found) -> str:
    """Return the HTML of a card for each chapter, in the language of the page.

    It shows the chapter's first figure, its title, its question, and the minutes that it takes.
    """
    language, root = language_of(page), root_of(page)
    chapters = [each for each in chapter_files() if language in languages_of(each)]
    shown = "".join(card(each, language, root) for each in chapters)
    return f'<ol class="chapters">{shown}</ol>'


def card(path: Path, language: str, root: str) -> str:
    """Return the HTML of a chapter's card."""
    text = prose(path)
    exercises = sum(map(int, re.findall(r"about (\d+) minutes", text)))
    reading = 5 * round(len(text.split()) / WORDS_A_MINUTE / 5)
    minutes = words_in(language)("{} minutes, exercises {}").format(reading, exercises)
    [picture, *_] = re.findall(r"\]\(figures/(\w+\.svg)\)", text)
    if language != "en":
        text = translate(text, lookup_in(catalog_of(path, language)))
    [(title, question)] = re.findall(r"\A# (.*)\n\n\*\*([^*]*)\*\*", text)
    address = Path(page_of(path, language)).with_suffix(".html").as_posix()
    return (
        f'<li><a href="{root}learn/{address}">'
        f'<img src="{root}_images/{picture}" alt="" role="none" loading="lazy">'
        f"<strong>{html.escape(title)}</strong> <span>{html.escape(question)}</span> "
        f"<small>{minutes}</small></a></li>"
    )


SHOWN: dict[str, Callable[[str, Found], str]] = {
    r"<!-- plain -->\n.*?<!-- /plain -->\n": lambda page, found: "",
    r"<!-- site\n(.*?)-->\n": lambda page, found: found[1],
    r"<!-- code of (\S+) -->": lambda page, found: with_code(found),
    r"<!-- chapters -->": cards,
    r"<!-- widget: (\w+) -->(?:\n\n(!\[[^\n]*))?": widget,
    r"^!\[([^]]*)\]\((?:\.\./)*((?:figures|images)/\w+\.(?:svg|png))\)": figure,
}
"""What the site shows instead of a pattern, in this order; functions of the page and the match."""


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the reader of pages and the translations."""
    app.connect("builder-inited", add_translations)
    app.connect("source-read", read_page)
    app.connect("html-page-context", set_language, priority=900)  # after the theme's handler
    app.connect("build-finished", copy_pictures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
