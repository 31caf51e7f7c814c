"""The ledger of the paper: ``docs/paper.toml`` as pages.

``.. ledger:: 3`` renders the entries of section 3 and of its subsections, in their order: what the
paper states, the formula, the lines of our code that compute it with a link to the reference, the
tests that prove it, and what is done differently. ``.. ledger:: deviations`` lists everything that
is done differently.

A name that does not exist, and a line that does not occur exactly once in its object, stop the
build; ``tests/test_paper.py`` finds them without one.
"""

import importlib
import inspect
import re
import tomllib
from itertools import groupby
from pathlib import Path
from textwrap import indent
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
LEDGER = ROOT / "docs" / "paper.toml"
SECTIONS = {
    "3": "Model architecture",
    "3.1": "Encoder and decoder stacks",
    "3.2": "Attention",
    "3.2.1": "Scaled dot-product attention",
    "3.2.2": "Multi-head attention",
    "3.2.3": "Applications of attention",
    "3.3": "Position-wise feed-forward networks",
    "3.4": "Embeddings and softmax",
    "3.5": "Positional encoding",
    "4": "Why self-attention",
    "5.1": "Training data and batching",
    "5.2": "Hardware and schedule",
    "5.3": "Optimizer",
    "5.4": "Regularization",
    "6.1": "Machine translation",
    "6.2": "Model variations",
    "6.3": "English constituency parsing",
}
"""Titles of the paper's sections; any other section is a title itself."""

Entry = dict[str, Any]


class Ledger(SphinxDirective):
    """The directive ``ledger``; its argument is a section, or ``deviations``."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Render the chosen entries."""
        for path in (str(LEDGER), __file__):
            self.env.note_dependency(path)
        entries: list[Entry] = tomllib.loads(LEDGER.read_text(encoding="utf-8"))["entry"]
        chosen = self.arguments[0]
        if chosen == "deviations":
            return self.deviations(entries)
        entries = [each for each in entries if f"{each['section']}.".startswith(f"{chosen}.")]
        if not entries:
            raise self.error(f"docs/paper.toml has no entry of section {chosen}")
        rendered: list[nodes.Node] = []
        for section, of_section in groupby(entries, key=lambda each: each["section"]):
            cards = [self.card(each) for each in of_section]
            if section == chosen:  # its title is the page's
                rendered += cards
            else:
                title = f"{section} {SECTIONS[section]}" if section in SECTIONS else section
                rendered.append(titled(title, f"section-{section}", cards))
        return rendered

    def card(self, entry: Entry) -> nodes.Node:
        """Render one entry, as a section of the page."""
        body: list[nodes.Node] = self.parse(entry["says"])
        if "formula" in entry:
            body += self.parse(f".. math::\n\n{indent(entry['formula'].strip(), '   ')}")
        items: list[nodes.Node] = []
        if "parameters" in entry:
            count = f"{entry['parameters']:,} parameters, counted with 37,000 tokens"
            items += item("Here", self.parse(f"{count}."))
        if "measured" in entry:
            items += item("Measured", self.parse(entry["measured"]))
        if entry["code"]:
            items += item("Code", self.code(entry["code"]))
        if entry["tests"]:
            items += item(
                "Proof", self.parse("\n".join(f"- ``{each}``" for each in entry["tests"]))
            )
        items += item("Chapter", self.parse(self.chapter(entry["chapter"])))
        if entry["code"]:
            body.append(nodes.definition_list("", *items))
        if "deviation" in entry:
            body += self.parse(
                ".. admonition:: Deviation\n   :class: deviation\n\n"
                f"{indent(entry['deviation'].strip(), '   ')}"
            )
        return titled(entry["title"], entry["id"], body)

    def code(self, lines: list[dict[str, str]]) -> list[nodes.Node]:
        """Render the lines of code, each object with a link and the places of its lines."""
        rendered: list[nodes.Node] = []
        for name, of_object in groupby(lines, key=lambda each: each["object"]):
            texts = [each["line"] for each in of_object]
            places = [self.find(name, text) for text in texts]
            path, numbers = places[0][0], " and ".join(str(number) for _, number in places)
            link = reference(name, self.env.docname)
            noun = "line" if len(places) == 1 else "lines"
            place = f", {path.relative_to(ROOT).as_posix()}, {noun} {numbers}"
            rendered.append(nodes.paragraph("", "", link, nodes.Text(place)))
            block = "\n".join(texts)
            rendered.append(nodes.literal_block(block, block, language="python"))
        return rendered

    def find(self, name: str, line: str) -> tuple[Path, int]:
        """Find the file and the number of a line in the source of an object."""
        try:
            found = resolve(name)
            path = Path(inspect.getsourcefile(found) or "")
            lines, first = inspect.getsourcelines(found)
        except (AttributeError, ModuleNotFoundError, OSError, TypeError) as error:
            raise self.error(f"docs/paper.toml: {name}: {error}") from error
        self.env.note_dependency(str(path))
        numbers = [number for number, each in enumerate(lines) if each.strip() == line]
        if len(numbers) != 1:
            raise self.error(f"docs/paper.toml: {name} has the line {line!r} {len(numbers)} times")
        return path, max(first, 1) + numbers[0]

    def chapter(self, number: int) -> str:
        """Return the reference to a chapter of Learn; without a link where there is no page."""
        pattern = re.compile(rf"learn/0?{number}(?!\d)[^/]*")
        for name in sorted(self.env.found_docs):
            if pattern.fullmatch(name):
                return f"Learn, :doc:`chapter {number} </{name}>`"
        return f"Learn, chapter {number}"

    def deviations(self, entries: list[Entry]) -> list[nodes.Node]:
        """List what is done differently, each with a link to its entry."""
        items: list[nodes.Node] = []
        for entry in entries:
            if "deviation" in entry:
                link = addnodes.pending_xref(
                    "",
                    nodes.inline("", entry["title"]),
                    refdomain="std",
                    reftype="ref",
                    reftarget=f"paper-{entry['id']}",
                    refdoc=self.env.docname,
                    refexplicit=True,
                    refwarn=True,
                )
                term = nodes.term("", "", link, nodes.Text(f" (section {entry['section']})"))
                if entry["section"] not in SECTIONS:
                    term = nodes.term("", "", link)
                definition = nodes.definition("", *self.parse(entry["deviation"]))
                items.append(nodes.definition_list_item("", term, definition))
        return [nodes.definition_list("", *items)]

    def parse(self, text: str) -> list[nodes.Node]:
        """Parse reStructuredText."""
        return self.parse_text_to_nodes(StringList(text.strip().splitlines(), str(LEDGER)))


def reference(name: str, docname: str) -> addnodes.pending_xref:
    """Return a link from a page to the reference of an object, or of what contains it."""
    return addnodes.pending_xref(
        "",
        nodes.literal("", short_name(name), classes=["xref", "py", "py-obj"]),
        refdomain="py",
        reftype="obj",
        reftarget=name,
        refdoc=docname,
        from_ledger=True,
    )


def short_name(name: str) -> str:
    """Return the path of an object within its module; of a module, its own name."""
    *_, owner, last = name.split(".")
    return last if owner.islower() else f"{owner}.{last}"


def titled(title: str, name: str, body: list[nodes.Node]) -> nodes.Node:
    """Make a section with an address."""
    address = re.sub(r"[^a-z0-9]+", "-", name.lower())
    section = nodes.section("", nodes.title("", title), *body, ids=[f"paper-{address}"])
    section["names"] = [f"paper-{address}"]
    section["classes"] = ["ledger"]
    return section


def item(term: str, definition: list[nodes.Node]) -> list[nodes.Node]:
    """Make an item of a definition list."""
    return [
        nodes.definition_list_item(
            "", nodes.term("", term), nodes.definition("", *definition), classes=["ledger-item"]
        )
    ]


def resolve(name: str) -> Any:
    """Import the object of a dotted path."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        module = ".".join(parts[:length])
        try:
            found: Any = importlib.import_module(module)
        except ModuleNotFoundError as error:
            if not f"{module}.".startswith(f"{error.name}."):
                raise
            continue
        for part in parts[length:]:
            found = inspect.getattr_static(found, part)
        found = getattr(found, "__func__", found)  # of a class method
        return inspect.unwrap(getattr(found, "fget", found))  # of a property
    raise ModuleNotFoundError(f"no module of {name}")


def register_addresses(app: Sphinx, document: nodes.document) -> None:
    """Register the address of each entry, so that other pages can link to it."""
    labels = app.env.domains.standard_domain
    for section in document.findall(nodes.section):
        if "ledger" in section["classes"]:
            name, title = section["names"][0], section[0].astext()
            labels.labels[name] = (app.env.docname, name, title)
            labels.anonlabels[name] = (app.env.docname, name)


def link_to_reference(
    app: Sphinx, env: BuildEnvironment, node: addnodes.pending_xref, content: nodes.Element
) -> nodes.Node | None:
    """Link an object without a page of its own to what contains it, or else show its name."""
    if not node.get("from_ledger"):
        return None
    name = node["reftarget"].rpartition(".")[0]
    while name:
        found = env.domains.python_domain.resolve_xref(
            env, node["refdoc"], app.builder, "obj", name, node, content
        )
        if found is not None:
            return found
        name = name.rpartition(".")[0]
    return content


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive, its addresses, its links and its style sheet."""
    app.add_directive("ledger", Ledger)
    app.connect("doctree-read", register_addresses)
    app.connect("missing-reference", link_to_reference)
    app.add_css_file("ledger.css")
    return {"parallel_read_safe": True, "parallel_write_safe": True}
