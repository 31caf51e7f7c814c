"""Search: write the text of every section to a script that the search page loads from the disk.

The search of Sphinx fetches pages to show excerpts, which a browser refuses for files on the disk,
and it splits text into words at spaces, which Japanese does not have. (With its Japanese splitter
it finds nothing for 어텐션, one section for 注意機構, and not the pages that answer *why is my loss
nan* and *what is a logit*.) This extension switches it off. It writes one entry for each section,
each documented class or function and each term of a glossary: its address, the title of its page,
its own title, and its text. ``search.js`` searches the entries for substrings.
"""

import html
import json
import re
import unicodedata
from collections.abc import Iterator

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder

Entry = tuple[str, str, str, str]  # the anchor (or ""), the page's title, the own title, the text

NOT_SHOWN = (
    addnodes.index,
    addnodes.toctree,
    nodes.comment,
    nodes.image,
    nodes.pending,
    nodes.substitution_definition,
    nodes.system_message,
)
LATEX_AS_TEXT = [
    (re.compile(r"\\(operatorname|text|math\w+)\b\s*"), ""),
    (re.compile(r"\\(begin|end)\{\w+\}|\\(left|right|d?frac|q?quad)\b|\\[,;:! \\]|&"), " "),
    (re.compile(r"\\(\w+)\s*\{"), r"\1 "),  # a command with an argument
    (re.compile(r"\}\s*\{"), " "),
    (re.compile(r"[\\{}]"), ""),
]
JAPANESE = "[\u3000-\u30ff\u3400-\u9fff\uff01-\uff9f]"
BREAK_IN_JAPANESE = re.compile(rf"(?<={JAPANESE})[ \t]*\n[ \t]*(?={JAPANESE})")


def entries(doctree: nodes.document) -> Iterator[Entry]:
    """List the entries of a page; the text of an entry does not contain that of entries inside."""
    prepare(doctree)
    found = list(doctree.findall(has_entry))
    titles = [title_of(node) for node in found]
    collected = []
    for node, (anchor, title) in reversed(list(zip(found, titles, strict=True))):
        collected.append((anchor, title, plain(node.astext())))
        node.parent.remove(node)
    page = titles[0][1] if titles else ""
    for number, (anchor, title, text) in enumerate(reversed(collected)):
        yield (anchor, page, title, text) if number else ("", page, "", text)


def has_entry(node: nodes.Node) -> bool:
    """Return whether a part of a page is found and linked on its own."""
    return (
        isinstance(node, nodes.section)
        or (isinstance(node, addnodes.desc) and bool(node[0].get("ids")))
        or (isinstance(node, nodes.definition_list_item) and bool(node[0].get("ids")))
    )


def title_of(node: nodes.Element) -> tuple[str, str]:
    """Return the anchor and the title of a section, an object or a term; remove a section's title.

    The signature of an object and the term remain in the text: the one holds more than its title,
    the other is read with its definition.
    """
    if not isinstance(node, nodes.section):
        return node[0]["ids"][0], node[0].get("fullname") or plain(node[0].astext())
    title = next(iter(node.findall(nodes.title)), None)
    if title is None:
        return node["ids"][0], ""
    node.remove(title)
    return node["ids"][0], plain(title.astext())


def prepare(doctree: nodes.document) -> None:
    """Remove what a reader does not see, and turn equations and raw HTML into text."""
    for node in list(doctree.findall(nodes.Element)):
        is_doubled = (
            isinstance(node, addnodes.pending_xref_condition) and node["condition"] != "resolved"
        )
        if isinstance(node, NOT_SHOWN) or is_doubled:
            node.parent.remove(node)
        elif isinstance(node, nodes.math | nodes.math_block):
            text = node.astext()
            for pattern, replacement in LATEX_AS_TEXT:
                text = pattern.sub(replacement, text)
            node.parent.replace(node, nodes.inline(text=text))
        elif isinstance(node, nodes.literal_block | nodes.doctest_block):
            lines = node.astext().replace("\n", "\n\n")  # which plain() does not join
            node.parent.replace(node, nodes.inline(text=lines))
        elif isinstance(node, nodes.raw):
            is_html = "html" in node["format"].split()
            node.parent.replace(node, nodes.inline(text=visible(node.astext()) if is_html else ""))


def visible(source: str) -> str:
    """Return the text of raw HTML without its scripts, styles and drawings."""
    source = re.sub(r"(?is)<(script|style|svg)\b.*?</\1\s*>|<!--.*?-->", " ", source)
    return html.unescape(re.sub(r"<[^>]+>", " ", source))


def plain(text: str) -> str:
    """Put a text on one line. Inside Japanese, a line break is no space."""
    return unicodedata.normalize("NFC", " ".join(BREAK_IN_JAPANESE.sub("", text).split()))


def switch_off(app: Sphinx) -> None:
    """Keep Sphinx from writing an index and a search page of its own."""
    if isinstance(app.builder, StandaloneHTMLBuilder):
        app.builder.search = False


def write(app: Sphinx, exception: Exception | None) -> None:
    """Write the entries of all pages, after a build that succeeded."""
    if exception is not None or not isinstance(app.builder, StandaloneHTMLBuilder):
        return
    rows = [
        (app.builder.get_target_uri(docname) + (anchor and f"#{anchor}"), *texts)
        for docname in sorted(app.env.found_docs)
        if not {"no-search", "nosearch"} & app.env.metadata[docname].keys()
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
