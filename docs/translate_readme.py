"""Translate the README: make README.ja.md from README.md and docs/locale/ja/README.po.

    python docs/translate_readme.py

The translation is tied to the English text. README.md is split into its paragraphs, headings, list
items and table cells, the *messages*. Each message is translated in the file README.po. Code blocks
are copied, and so are the targets of links: a message contains ``{1}`` instead of its first target,
so a page can be moved without a change of the translation.

A message whose English has changed is shown in English until it is translated again. After a change
of README.md:

1. Run this program. It adds new messages to README.po, marks the translation of changed ones as
   *fuzzy*, and prints both.
2. Translate them in README.po (``msgstr``), and remove the lines ``#, fuzzy`` and ``#| msgid``.
3. Run this program again. It writes README.ja.md.

tests/test_translation.py fails when README.ja.md is not what this program writes, and when more
than a twentieth of the messages is not translated.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from babel.messages.catalog import Catalog
from babel.messages.pofile import read_po, write_po

ROOT = Path(__file__).parent.parent
ENGLISH = ROOT / "README.md"
CATALOG = ROOT / "docs" / "locale" / "ja" / "README.po"
JAPANESE = ROOT / "README.ja.md"

LINK = re.compile(r"\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^()\s]+)\)")
CELL = re.compile(r"(?<!\\)\|")
HEADER = """\
# The Japanese translation of README.md; see docs/translate_readme.py.
msgid ""
msgstr ""
"Language: ja\\n"
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
        if kind in ("blank", "fence", "html"):
            lines += block
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
    plain = LINK.sub("", re.sub(r"`[^`]*`", "", message))
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
    """Read the translations."""
    with path.open("rb") as file:
        return read_po(file, locale="ja")


def update(catalog: Catalog, text: str) -> None:
    """Add the new messages of a text to a catalog, and mark the changed ones as fuzzy."""
    template = Catalog()
    for message in messages(text):
        template.add(message)
    catalog.update(template)


def main() -> None:
    """Update README.po and README.ja.md, and print what is not translated."""
    text = ENGLISH.read_text("utf-8")
    catalog = read_catalog()
    update(catalog, text)
    with CATALOG.open("wb") as file:
        file.write(HEADER.encode())
        write_po(file, catalog, width=0, omit_header=True, include_previous=True)
    lookup = lookup_in(catalog)
    JAPANESE.write_text(translate(text, lookup), "utf-8")
    missing = [message for message in messages(text) if lookup(message) is None]
    print(f"{JAPANESE.name}: {len(missing)} of {len(messages(text))} messages are not translated")
    for message in missing:
        print(f"  {message}")


if __name__ == "__main__":
    main()
