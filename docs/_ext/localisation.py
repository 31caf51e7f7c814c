"""Localisation: the README and chapters of the book in other languages.

    python docs/_ext/localisation.py

A translation is tied to the English text. A text is split into its paragraphs, headings, list items
and table cells, the *messages*. The translation of each is in a catalog: that of the README in
``docs/locale/ja/README.po``, that of a chapter in ``docs/locale/ja/01_one_query.po``, that of the
sidebar and of the texts in figures and widgets in ``docs/locale/ja/site.po``. Code blocks and
equations are copied, and so are the targets of links: a message has ``{1}`` in place of its first
target, so that a page can be moved without a change of the translation.

A message whose English has changed is shown in English until it is translated again. After a change
of the README or of a chapter:

1. Run this program. It adds new messages to the catalogs, marks the translation of changed ones as
   *fuzzy*, and prints both.
2. Translate them in the catalog (``msgstr``), and remove the lines ``#, fuzzy`` and ``#| msgid``.
3. Run this program again. It writes README.ja.md. The pages are made by ``make docs``.

A new translation of a chapter begins with an empty file of the right name.
tests/test_translation.py fails when README.ja.md is not what this program writes, and when more
than a twentieth of the messages of a catalog is not translated.
"""

import html
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

from cells import LEARN, read_cells

ROOT = LEARN.parents[1]
LOCALE = ROOT / "docs" / "locale"
ENGLISH = ROOT / "README.md"
CATALOG = LOCALE / "ja" / "README.po"
JAPANESE = ROOT / "README.ja.md"

FURNITURE = ["Search", "On this page", "Back to top", "Next", "Previous"]  # of the theme

LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
MARKED = re.compile(r"""_\((["`])(.+?)\1\)""")  # a text of a script
CELL = re.compile(r"(?<!\\)\|")
HEADER = """\
# The translation of {name}; see docs/_ext/localisation.py.
msgid ""
msgstr ""
"Language: {language}\\n"
"MIME-Version: 1.0\\n"
"Content-Type: text/plain; charset=utf-8\\n"
"Content-Transfer-Encoding: 8bit\\n"
"Plural-Forms: nplurals=1; plural=0;\\n"

"""  # without dates, which would change the file in every run
STARTS = {  # of the blocks that are no paragraphs
    "fence": re.compile(r"(```|~~~)"),
    "heading": re.compile(r"#+ "),
    "table": re.compile(r"\|"),
    "list": re.compile(r" *([-*]|\d+\.) "),
    "html": re.compile(r"<(?!https?:)"),
    "quote": re.compile(r"> "),
    "equation": re.compile(r"\$\$"),
}


def blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    """Split a Markdown text into blocks; their lines, joined, are the text again.

    Yields:
        The kind of a block, which is a key of ``STARTS``, "blank" or "paragraph", and its lines.
    """
    lines = text.splitlines()
    while lines:
        kind = kind_of(lines[0])
        count = 1
        if kind == "fence":
            fence = lines[0][:3]
            while count < len(lines) and lines[count].rstrip() != fence:
                count += 1
            count += 1
        elif kind == "equation":
            while "".join(lines[:count]).count("$$") < 2 and count < len(lines):
                count += 1
        elif kind not in ("blank", "heading"):
            while count < len(lines) and continues(kind, lines[count]):
                count += 1
        yield kind, lines[:count]
        lines = lines[count:]


def kind_of(line: str) -> str:
    """Return the kind of the block that a line starts."""
    if not line.strip():
        return "blank"
    return next((kind for kind, start in STARTS.items() if start.match(line)), "paragraph")


def continues(kind: str, line: str) -> bool:
    """Return whether a line belongs to the block of the lines before it."""
    following = kind_of(line)
    return following == kind or (kind in ("list", "html") and following == "paragraph")


def translate(text: str, lookup: Callable[[str], str | None]) -> str:
    """Translate a Markdown text.

    Args:
        text: The English text.
        lookup: A function that returns the translation of a message, or None if there is none.

    Returns:
        The text, in which each translated message is one line.
    """
    lines: list[str] = []
    for kind, block in blocks(text):
        if block[0].startswith("```{widget}"):
            lines += [block[0], *translate("\n".join(block[1:-1]), lookup).splitlines(), block[-1]]
        elif kind in ("blank", "fence", "html", "equation"):
            lines += block
        elif kind == "quote":
            message = " ".join(line.removeprefix("> ") for line in block)
            translated = translate_message(message, lookup)
            lines += block if translated is None else [f"> {translated}"]
        elif kind == "heading":
            marks, _, title = block[0].partition(" ")
            lines.append(f"{marks} {translate_message(title, lookup) or title}")
        elif kind == "table":
            lines += [translate_row(row, lookup) for row in block]
        elif kind == "list":
            for item in items(block):
                start = STARTS["list"].match(item[0])
                mark = start[0] if start else ""
                message = " ".join([item[0].removeprefix(mark), *map(str.strip, item[1:])])
                translated = translate_message(message, lookup)
                lines += item if translated is None else [mark + translated]
        else:
            translated = translate_message(" ".join(map(str.strip, block)), lookup)
            lines += block if translated is None else [translated]
    return "\n".join(lines) + "\n"


def items(block: list[str]) -> list[list[str]]:
    """Split a list into its items."""
    found: list[list[str]] = []
    for line in block:
        if STARTS["list"].match(line):
            found.append([line])
        else:
            found[-1].append(line)
    return found


def translate_row(row: str, lookup: Callable[[str], str | None]) -> str:
    """Translate the cells of a table's row."""
    cells = CELL.split(row)
    return "|".join(
        cell.replace(cell.strip(), translate_message(cell.strip(), lookup) or cell.strip())
        if cell.strip()
        else cell
        for cell in cells
    )


def translate_message(message: str, lookup: Callable[[str], str | None]) -> str | None:
    """Translate a message; its links keep their targets.

    Returns:
        The translation. None if there is none, or if the message contains no text.
    """
    plain = LINK.sub(r"\1", re.sub(r"`[^`]*`|\$[^$]*\$", "", message))
    is_text = re.search(r"[a-z]{2,}", plain) or message.startswith("![")
    if not is_text:
        return None
    msgid, targets = with_placeholders(message)
    translated = lookup(msgid)
    for number, target in enumerate(targets, 1):
        translated = translated and translated.replace(f"{{{number}}}", target)
    return translated


def with_placeholders(message: str) -> tuple[str, list[str]]:
    """Replace the targets of links by {1}, {2} and so on; also a text that equals its target.

    Returns:
        The message with placeholders, and the targets.
    """
    targets: list[str] = []

    def replace(match: re.Match[str]) -> str:
        text, target = match.groups()
        targets.append(target)
        number = len(targets)
        return f"[{f'{{{number}}}' if text == target else text}]({{{number}}})"

    return LINK.sub(replace, message), targets


def messages(text: str) -> list[str]:
    """List the messages of a Markdown text, each once."""
    found: dict[str, None] = {}

    def remember(message: str) -> None:
        found[message] = None

    translate(text, remember)
    return list(found)


def lookup_in(catalog: Catalog) -> Callable[[str], str | None]:
    """Return the function that finds translations in a catalog; fuzzy ones do not count."""

    def lookup(msgid: str) -> str | None:
        message = catalog.get(msgid)
        return str(message.string) if message and message.string and not message.fuzzy else None

    return lookup


def read_catalog(path: Path = CATALOG) -> Catalog:
    """Read translations; the folder of a catalog is its language."""
    with path.open("rb") as file:
        return read_po(file, locale=path.parent.name)


def update(catalog: Catalog, text: str) -> None:
    """Add the new messages of a text to a catalog, and mark the changed ones as fuzzy."""
    template = Catalog()
    for message in messages(text):
        template.add(message)
    catalog.update(template)


def write_catalog(path: Path, catalog: Catalog) -> None:
    """Write a catalog without dates, which would change the file in every run."""
    header = HEADER.format(name=path.stem, language=path.parent.name)
    with path.open("wb") as file:
        file.write(header.encode())
        write_po(file, catalog, width=0, omit_header=True, include_previous=True)


def catalogs() -> list[Path]:
    """List the catalogs of all languages."""
    return sorted(LOCALE.glob("*/*.po"))


def english_text(catalog: Path) -> str:
    """Return the text that a catalog translates: the README, a chapter, or what is around it."""
    if catalog.stem == "README":
        return ENGLISH.read_text("utf-8")
    if catalog.stem == "site":
        return "\n\n".join([*FURNITURE, *sidebar_texts(), *figure_texts(), *widget_texts()])
    cells = read_cells(LEARN / f"{catalog.stem}.py")
    return "\n\n".join(cell.source for cell in cells if cell.kind == "markdown")


def sidebar_texts() -> list[str]:
    """List the captions of the sidebar, and the pages of its first level."""
    docs = ROOT / "docs"
    found = []
    for tree in re.findall(r"```\{toctree\}(.*?)```", (docs / "index.md").read_text("utf-8"), re.S):
        found += re.findall(r":caption: (.+)", tree)
        for name, page in re.findall(r"(?m)^(?:(.+) <)?([\w/]+)>?$", tree):
            title = name or (docs / f"{page}.md").read_text("utf-8").splitlines()[0].strip("# ")
            found.append(title.replace("'", "’"))  # as it is written in the page
    return found


def figure_texts() -> list[str]:
    """List the texts in the figures of the book."""
    figures = [path.read_text("utf-8") for path in sorted(LEARN.glob("figures/*.svg"))]
    found = re.findall(r"<text[^>]*>([^<]+)", "".join(figures))
    return list(dict.fromkeys(html.unescape(text).strip() for text in found))


def widget_texts() -> list[str]:
    """List the texts of the book's widgets."""
    widgets = sorted((ROOT / "docs" / "_static" / "widgets").glob("*.js"))
    return [text for path in widgets for _, text in MARKED.findall(path.read_text("utf-8"))]


def translate_script(script: str, lookup: Callable[[str], str | None]) -> str:
    """Translate the texts that a script marks: ``_("so")`` or, with values, ``_(`${so}`)``."""

    def translated(match: re.Match[str]) -> str:
        quote, text = match.groups()
        return f"_({quote}{lookup(text) or text}{quote})"

    return MARKED.sub(translated, script)


def translate_markup(markup: str, lookup: Callable[[str], str | None]) -> str:
    """Translate the texts between the tags of HTML or SVG."""

    def translated(match: re.Match[str]) -> str:
        text = translate(html.unescape(match[1]), lookup).removesuffix("\n")
        return f">{html.escape(text, quote=False)}<"

    return re.sub(r">([^<>\n]+)<", translated, markup)


def missing_messages(catalog: Path) -> tuple[list[str], int]:
    """Return the messages without a translation, and the number of all."""
    lookup = lookup_in(read_catalog(catalog))
    found = messages(english_text(catalog))
    return [message for message in found if lookup(message) is None], len(found)


def main() -> None:
    """Update the catalogs and README.ja.md, and print what is not translated."""
    for path in catalogs():
        catalog = read_catalog(path)
        update(catalog, english_text(path))
        write_catalog(path, catalog)
        missing, count = missing_messages(path)
        name = path.relative_to(LOCALE)
        print(f"{name}: {len(missing)} of {count} messages are not translated")
        for message in missing:
            print(f"  {message}")
    readme = ENGLISH.read_text("utf-8")
    JAPANESE.write_text(translate(readme, lookup_in(read_catalog())), "utf-8")


if __name__ == "__main__":
    main()
