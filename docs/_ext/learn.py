"""Learn: a chapter of the book as a page, made from its Python file.

A file ``learn/NN_*.py`` (see ``cells.py``) is read as if it were Markdown: its texts as they are,
its code with what its notebook says that the code prints. An image is put into the page itself,
so that its colours follow the page's light or dark theme, with a link to the file for enlarging it.

A chapter whose texts are translated (see ``localisation.py``) has a page for each language,
``learn/ja/NN_*.md``, which is made before the pages are read. Its code and its numbers are those of
the English page.
"""

import html
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util.docutils import SphinxDirective

from cells import LEARN, Cell, Output, chapter_files, read_cells, stored_outputs
from localisation import (
    LOCALE,
    lookup_in,
    translate,
    translate_markup,
    translate_script,
)

PIXELS = 10  # height of the smallest text of a figure on a telephone
NAMES = {"en": "English", "ja": "日本語", "ko": "한국어"}


def read_chapter(app: Sphinx, docname: str, source: list[str]) -> None:
    """Replace the Python file of a chapter by the Markdown of its page."""
    if re.fullmatch(r"learn/\d\d_\w+", docname):
        source[0] = as_markdown(LEARN.parent / f"{docname}.py")


def as_markdown(path: Path, language: str = "en") -> str:
    """Make the Markdown of a chapter's page."""
    parts: list[str] = []
    cells = read_cells(path)
    word = words_in(language)
    for number, (cell, output) in enumerate(zip(cells, stored_outputs(path), strict=True)):
        if cell.kind == "markdown" and language != "en":
            text = translate(cell.source, lookup_in(catalog_of(path, language)))
            cell = Cell(
                "markdown", text.rstrip().replace("<summary>Hint<", f"<summary>{word('Hint')}<")
            )
        shown = show(cell, output, word)
        if cells[number].role == "formula":  # beside the implementation, which is the next cell
            parts.append(f"::::{{container}} beside\n:::{{container}} formula\n{shown}\n:::")
        elif number and cells[number - 1].role == "formula":
            parts.append(f":::{{container}} code\n{shown}\n:::\n::::")
        else:
            parts.append(shown)
    title, _, rest = parts[0].partition("\n")
    download = f"{{download}}`{word('This chapter as a notebook')} <{path.stem}.ipynb>`"
    links = [each for each in languages_of(path) if each != language]
    switches = [f"[{NAMES[each]}]({page_of(path, each)})" for each in links]
    line = " · ".join([download, *switches])
    text = "\n\n".join([title, f":::{{container}} chapter-links\n{line}\n:::", rest, *parts[1:]])
    return text if language == "en" else relocated(text, language)


def catalog_of(path: Path, language: str) -> Path:
    """Return the file of a chapter's translations."""
    return LOCALE / language / f"{path.stem}.po"


def languages_of(path: Path) -> list[str]:
    """List the languages of a chapter."""
    return ["en", *(each for each in NAMES if catalog_of(path, each).is_file())]


def page_of(path: Path, language: str) -> str:
    """Return the source file of a chapter's page, seen from the folder of the English ones."""
    return path.name if language == "en" else f"{language}/{path.stem}.md"


def relocated(text: str, language: str) -> str:
    """Adapt the links of a chapter to the folder of a language."""

    def adapted(match: re.Match[str]) -> str:
        target, anchor = match[1], match[2] or ""
        chapter = LEARN / target
        if target.endswith(".py") and "/" not in target and language in languages_of(chapter):
            return f"]({chapter.stem}.md{anchor})"
        return f"](../{target}{anchor})"

    text = re.sub(r"\]\((?![a-z]+:|#)([^)#\s]+)(#[^)\s]*)?\)", adapted, text)
    return re.sub(r"<(\d\d_\w+\.ipynb)>", r"<../\1>", text)


def write_translations(app: Sphinx) -> None:
    """Write the pages of the translated chapters."""
    for path in chapter_files():
        for language in languages_of(path)[1:]:
            page = LEARN / page_of(path, language)
            text = as_markdown(path, language)
            if not page.is_file() or page.read_text(encoding="utf-8") != text:
                page.parent.mkdir(exist_ok=True)
                page.write_text(text, encoding="utf-8")


def set_language(app: Sphinx, page: str, template: str, context: dict[str, Any], _: Any) -> None:
    """Declare the language of a translated page, and translate what the theme adds to it."""
    if (language := language_of(page)) != "en":
        context["language"] = language
        context["_"] = context["gettext"] = lambda text, **_: words_in(language)(text)
        tree = context["furo_navigation_tree"]
        context["furo_navigation_tree"] = translate_markup(tree, site_lookup(language))


def language_of(page: str) -> str:
    """Return the language of a page."""
    folder = page.split("/")[1] if page.startswith("learn/") else ""
    return folder if folder in NAMES else "en"


def site_lookup(language: str) -> Callable[[str], str | None]:
    """Return the function that translates what is around a chapter and in its figures."""
    return lookup_in(LOCALE / language / "site.po")


def words_in(language: str) -> Callable[[str], str]:
    """Return the function that gives a text around a chapter in a language."""
    return lambda text: site_lookup(language)(text) or text


def show(cell: Cell, output: Output, word: Callable[[str], str]) -> str:
    """Make the Markdown of one cell."""
    if cell.kind == "markdown":
        return cell.source
    caption = output.recorded and f"{word('recorded')}: {output.recorded}"
    printed = f"\n\n{fenced('text', output.text, 'output', caption)}" if output.text else ""
    shown = fenced("python", cell.source, cell.role) + printed
    if cell.role == "solution":
        summary = f"<summary>{word('Solution')}</summary>"
        return f"<details class='solution'>{summary}\n\n{shown}\n\n</details>"
    return shown


def fenced(language: str, text: str, css_class: str = "", caption: str = "") -> str:
    """Make a code block with a CSS class and a caption."""
    options = [f":class: {css_class}"] if css_class else []
    options += [f":caption: {caption}"] if caption else []
    ticks = "`" * max(3, 1 + max((len(run) for run in re.findall("`+", text)), default=0))
    return "\n".join([f"{ticks}{{code-block}} {language}", *options, "", text, ticks])


class InlineFigures(SphinxPostTransform):
    """Put the SVG files of ``learn/figures`` into the pages, and pictures into links to them."""

    default_priority = 5  # before the builder collects the images
    formats = ("html",)

    def run(self, **kwargs: object) -> None:
        """Replace the image nodes of one page."""
        for image in list(self.document.findall(nodes.image)):
            path = Path(self.env.srcdir) / image["uri"]
            target = image.parent if len(image.parent) == 1 else image  # an image paragraph
            large = "../" * self.env.docname.count("/") + f"_images/{path.name}"
            if path.parent == LEARN.parent / "images":
                link = nodes.reference("", "", image.deepcopy(), refuri=large)
                target.replace_self(nodes.container("", link, classes=["drawing"]))
            if path.suffix != ".svg" or path.parent != LEARN / "figures":
                continue
            figure = inline_svg(path, image.get("alt", ""), large)
            figure = translate_markup(figure, site_lookup(language_of(self.env.docname)))
            target.replace_self(nodes.raw("", figure, format="html"))


def inline_svg(path: Path, alt: str, large: str) -> str:
    """Return the HTML of a figure: its description, and a link that shows it alone.

    On a narrow screen it is as wide as its smallest text needs, on a wide one as high (see
    ``pages.css``).
    """
    svg = path.read_text(encoding="utf-8")
    svg = svg[svg.index("<svg") :]
    smallest = min(map(float, re.findall(r"font(?:-size)?:[^;\"]*?([\d.]+)px", svg)))
    [size] = re.findall(r'<svg[^>]* viewBox="0 0 ([\d.]+) ([\d.]+)"', svg)
    width, height = (float(each) / smallest * PIXELS for each in size)
    style = f"--readable: {width:.0f}px; --tall: {height:.0f}px"
    label = html.escape(alt, quote=True)
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{label}" style="{style}"', 1)
    return f'<figure class="drawing"><a href="{large}">{svg}</a></figure>'


def copy_figures(app: Sphinx, error: Exception | None) -> None:
    """Copy the figures beside the pages, where the links to them lead."""
    if error is None and app.builder.format == "html":
        shutil.copytree(LEARN / "figures", Path(app.outdir) / "_images", dirs_exist_ok=True)


class Widget(SphinxDirective):
    """The directive ``widget``: a script that draws into the page; its content replaces it without.

    ``{widget} softmax`` puts ``_static/widgets/softmax.js`` into the page, in which it fills the
    element ``<div class="widget" id="widget-softmax">``. The content, a still picture, is shown
    where scripts are off.
    """

    required_arguments = 1
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the widget's element and its still picture."""
        name = self.arguments[0]
        script = LEARN.parent / "_static" / "widgets" / f"{name}.js"
        self.env.note_dependency(str(script))
        static = "../" * self.env.docname.count("/") + "_static"
        opened = f'<div class="widget" id="widget-{name}" data-static="{static}"></div>\n<noscript>'
        lookup = site_lookup(language_of(self.env.docname))
        text = translate_script(script.read_text("utf-8"), lookup)
        closed = f"</noscript>\n<script>\n{text}</script>"
        still = self.parse_content_to_nodes()
        return [nodes.raw("", opened, format="html"), *still, nodes.raw("", closed, format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the reader of chapters, the figures and the widgets."""
    app.connect("builder-inited", write_translations)
    app.connect("source-read", read_chapter)
    app.connect("html-page-context", set_language, priority=900)  # after the theme's handler
    app.connect("build-finished", copy_figures)
    app.add_post_transform(InlineFigures)
    app.add_directive("widget", Widget)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
