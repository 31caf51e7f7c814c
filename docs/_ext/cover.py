"""Cover: the chapters of the book as cards, and chapter 0's translator for the pages.

``{chapters}`` shows a card for each chapter: its first figure, its title, its question, and the
minutes that it takes. All are read from the chapter, so that a new one needs nothing else.

A build trains the translator with the code of chapter 0, and writes it to
``_static/translator_model.js`` with the forward pass and the search of the explorer's page.
``_static/widgets/translator.js`` runs it.
"""

import html
import json
import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from cells import chapter_files, definitions, prose
from learn import catalog_of, language_of, languages_of, words_in
from localisation import lookup_in, translate
from transformer_blocks.explorer.live import LiveModel, serialize_live
from transformer_blocks.explorer.page import read_script

WORDS_A_MINUTE = 120  # of a text with formulas and code


class Chapters(SphinxDirective):
    """The directive ``chapters``: a card for each chapter, in the language of the page."""

    def run(self) -> list[nodes.Node]:
        """Return the cards."""
        language, root = language_of(self.env.docname), "../" * self.env.docname.count("/")
        folder = "learn/" if language == "en" else f"learn/{language}/"
        cards = []
        for path in chapter_files():
            self.env.note_dependency(str(path))
            if language in languages_of(path):
                cards.append(card(path, language, root, f"{root}{folder}{path.stem}.html"))
        return [nodes.raw("", f'<ol class="chapters">{"".join(cards)}</ol>', format="html")]


def card(path: Path, language: str, root: str, address: str) -> str:
    """Return the HTML of a chapter's card."""
    text = prose(path)
    exercises = sum(map(int, re.findall(r"about (\d+) minutes", text)))
    reading = 5 * round(len(text.split()) / WORDS_A_MINUTE / 5)
    minutes = words_in(language)("{} minutes, exercises {}").format(reading, exercises)
    [picture, *_] = re.findall(r"\]\(figures/(\w+\.svg)\)", text)
    if language != "en":
        text = translate(text, lookup_in(catalog_of(path, language)))
    [(title, question)] = re.findall(r"\A# (.*)\n\n\*\*([^*]*)\*\*", text)
    return (
        f'<li><a href="{address}">'
        f'<img src="{root}_images/{picture}" alt="" role="none" loading="lazy">'
        f"<strong>{html.escape(title)}</strong> <span>{html.escape(question)}</span> "
        f"<small>{minutes}</small></a></li>"
    )


def translator_script() -> str:
    """Train chapter 0's translator, and return a script with it."""
    chapter = definitions("00_map", until="library = Seq2Seq(")
    live = LiveModel(chapter["library"], [], end_id=chapter["EOS"], max_length=9)
    content = serialize_live(live) | {
        "sourceWords": chapter["source_words"],
        "targetWords": chapter["target_words"],
        "choices": [chapter[name] for name in ("beings", "things", "verbs")],
    }
    scripts = [read_script(name) for name in ("blocks", "search")]
    [codec] = re.findall(
        r"(?ms)^const ALPHABET.*?^async function inflate.*?^}$", read_script("data")
    )
    parts = "{data, loadModel, seq2seq, newRun, finish, generate, mostProbable, headPart}"
    data = f"const data = {json.dumps(content, ensure_ascii=False)};"
    body = "\n".join([codec, *scripts, data, f"return {parts};"])
    return f"const translator = (() => {{\n{body}\n}})();\n"


def write_translator(app: Sphinx, error: Exception | None) -> None:
    """Write the translator beside the pages."""
    if error is None and app.builder.format == "html":
        script = Path(app.outdir) / "_static" / "translator_model.js"
        script.write_text(translator_script(), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive and the translator."""
    app.add_directive("chapters", Chapters)
    app.connect("build-finished", write_translator)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
