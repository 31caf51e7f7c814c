"""Search: write the text of every section to a script that the search page loads from the disk.

The search of Sphinx fetches pages to show excerpts, which a browser refuses for files on the disk,
and it splits text into words at spaces, which Japanese does not have. (With its Japanese splitter
it finds nothing for 어텐션, one section for 注意機構, and not the pages that answer *why is my loss
nan* and *what is a logit*.) This extension switches it off. It writes one entry for each section:
its address, the title of its page, its own title, and its text. ``search.js`` searches the entries
for substrings.
"""

import html
import json
import re
import unicodedata
from collections.abc import Iterator

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

NOT_SHOWN = addnodes.toctree, nodes.comment, nodes.image, nodes.pending, nodes.system_message
FORMULA = re.compile(r"\\[a-zA-Z]+|[\\{}&]")  # what is no text in it
JAPANESE = "[\u3000-\u30ff\u3400-\u9fff\uff01-\uff9f]"
BREAK_IN_JAPANESE = re.compile(rf"(?<={JAPANESE})[ \t]*\n[ \t]*(?={JAPANESE})")


def entries(doctree: nodes.document) -> Iterator[tuple[str, str, str, str]]:
    """List anchor, title of the page, own title and own text of each section of a page."""
    prepare(doctree)
    page = ""
    for section in doctree.findall(nodes.section):
        title, *rest = section.children
        texts = [each.astext() for each in rest if not isinstance(each, nodes.section)]
        anchor, own = section["ids"][0], plain(title.astext())
        text = plain("\n\n".join(texts))
        yield (anchor, page, own, text) if page else ("", own, "", text)
        page = page or own


def prepare(doctree: nodes.document) -> None:
    """Remove what a reader does not see, and turn equations and raw HTML into text."""
    for node in list(doctree.findall(nodes.Element)):
        if isinstance(node, NOT_SHOWN):
            node.parent.remove(node)
        elif isinstance(node, nodes.math | nodes.math_block):
            node.parent.replace(node, nodes.inline(text=FORMULA.sub(" ", node.astext())))
        elif isinstance(node, nodes.literal_block | nodes.doctest_block):
            lines = node.astext().replace("\n", "\n\n")  # which plain() does not join
            node.parent.replace(node, nodes.inline(text=lines))
        elif isinstance(node, nodes.raw):
            node.parent.replace(node, nodes.inline(text=visible(node.astext())))


def visible(source: str) -> str:
    """Return the text of raw HTML without its scripts, styles and drawings."""
    hidden = r"(?is)<(script|style|svg)\b.*?</\1\s*>|<!--.*?-->|<summary>Code</summary>"
    source = re.sub(hidden, " ", source)
    return html.unescape(re.sub(r"<[^>]+>", " ", source))


def plain(text: str) -> str:
    """Put a text on one line. Inside Japanese, a line break is no space."""
    return unicodedata.normalize("NFC", " ".join(BREAK_IN_JAPANESE.sub("", text).split()))


def switch_off(app: Sphinx) -> None:
    """Keep Sphinx from writing an index and a search page of its own."""
    app.builder.search = False


def write(app: Sphinx, exception: Exception | None) -> None:
    """Write the entries of all pages, after a build that succeeded."""
    if exception is not None:
        return
    rows = [
        (app.builder.get_target_uri(docname) + (anchor and f"#{anchor}"), *texts)
        for docname in sorted(app.env.found_docs)
        for anchor, *texts in entries(app.env.get_doctree(docname))
    ]
    data = json.dumps(rows, ensure_ascii=False, separators=(",", ":"))
    path = app.outdir / "_static" / "search_data.js"
    path.write_text(f"const SEARCH_SECTIONS = {data};\n", encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register what writes the entries."""
    app.connect("builder-inited", switch_off)
    app.connect("build-finished", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
