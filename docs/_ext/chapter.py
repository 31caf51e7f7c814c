"""A chapter: the docstring of a module, then its public classes and functions in the file's order.

``.. chapter:: transformer_blocks.masks`` renders the module's docstring as running text. The first
line of a docstring has the form "Masks: which positions ...". The part before the colon is the
page's heading, the part after it the page's lead. In a package, the docstring of each file precedes
what the file defines. A last paragraph "Next: ..." moves to the end of the page.

Every name is documented under the path from which it is imported, so that docstrings can link to
it: ``:func:`~transformer_blocks.causal_mask``` for a name of the top level, and
``:func:`~transformer_blocks.inspection.check_causal``` for one of a sub-package.

The code of each class or function follows its description, without its docstrings, which the page
shows already.
"""

import ast
import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from textwrap import indent
from types import ModuleType
from typing import Any

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

PACKAGE = "transformer_blocks"
BLOCKS = re.compile(rf"{PACKAGE}\.(variants\.)?\w+")  # modules of the paper's blocks and variants
LONG = 60  # lines; longer code is shown after a click


class details(nodes.General, nodes.Element):  # noqa: N801  (a docutils node, named after its HTML)
    """A part of the page that is shown or hidden by a click on its summary."""


class CodeOf(SphinxDirective):
    """The directive ``code-of``; its arguments are a module, and a class or function of it."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Show the code, opened if it is short and part of the paper's blocks or of a variant."""
        name, path = self.arguments
        module = import_module(name)
        for file in (module.__file__, __file__):
            self.env.note_dependency(file or "")
        code = without_docstrings(inspect.getsource(getattr(module, path)))
        is_block = BLOCKS.fullmatch(name) is not None
        is_open = is_block and len(code.splitlines()) <= LONG
        return [details("", nodes.literal_block(code, code, language="python"), is_open=is_open)]


def without_docstrings(source: str) -> str:
    """Remove all docstrings, those of attributes too, from the code of a class or function."""
    lines: list[str | None] = list(inspect.cleandoc(f"\n{source}").splitlines())
    for node in ast.walk(ast.parse("\n".join(map(str, lines)))):
        if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for statement in filter(is_text, node.body):
            first, end = statement.lineno - 1, statement.end_lineno or statement.lineno
            while statement is node.body[0] and end < len(lines) and lines[end] == "":
                end += 1
            lines[first:end] = [None] * (end - first)
            if len(node.body) == 1:
                lines[first] = " " * statement.col_offset + "..."
                if end < len(lines):  # the blank line that separates it from what follows
                    lines[end - 1] = ""
    code = "\n".join(line for line in lines if line is not None)
    return re.sub(r"  # noqa\b.*", "", code).rstrip()


def is_text(statement: ast.stmt) -> bool:
    """Return whether a statement is a docstring: a string alone."""
    is_constant = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return is_constant and isinstance(statement.value.value, str)


def visit_details(translator: Any, node: details) -> None:
    """Output the beginning of the element."""
    opened = " open" if node["is_open"] else ""
    translator.body.append(f'<details class="code"{opened}><summary>Code</summary>\n')


def depart_details(translator: Any, node: details) -> None:
    """Output the end of the element."""
    translator.body.append("</details>\n")


class Chapter(SphinxDirective):
    """The directive ``chapter``; its argument is the name of a module."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Generate reStructuredText for the module, and parse it."""
        module = import_module(self.arguments[0])
        for file in (module.__file__, import_module(PACKAGE).__file__):
            self.env.note_dependency(file or "")
        opening, *paragraphs = inspect.cleandoc(module.__doc__ or "").split("\n\n")
        has_closing = paragraphs and paragraphs[-1].startswith("Next:")
        closing = paragraphs.pop() if has_closing else ""
        lead = opening.partition(": ")[2] or opening
        exported = vars(import_module(PACKAGE))
        are_exported = all(name in exported for name in public_names(module))
        is_ours = module.__name__.startswith(PACKAGE)
        inside = PACKAGE if is_ours and are_exported else module.__name__
        text = "\n\n".join(
            (
                f".. py:module:: {module.__name__}\n.. py:currentmodule:: {inside}",
                with_class("lead", lead[0].upper() + lead[1:]),
                *paragraphs,
                *listing(module),
                with_class("read-next", closing),
            )
        )
        source = f"{module.__file__}:docstring of {module.__name__}"
        return self.parse_text_to_nodes(StringList(text.splitlines(), source))


def listing(module: ModuleType) -> Iterator[str]:
    """Yield a directive for each public name; in a package, each file's docstring comes first."""
    introduced = {module.__name__}
    for name in public_names(module):
        defined = getattr(module, name)
        if defined.__module__ not in introduced:
            introduced.add(defined.__module__)
            text = inspect.cleandoc(import_module(defined.__module__).__doc__ or "")
            first, _, body = text.partition("\n")
            heading, _, lead = first.rstrip(".").partition(": ")
            body = f"{lead[:1].upper()}{lead[1:]}.\n{body}" if lead else body
            yield f".. rubric:: {heading}\n   :heading-level: 2\n\n{body}"
        exported = getattr(import_module(PACKAGE), name, None) is defined
        yield describe(f"{PACKAGE if exported else module.__name__}.{name}", defined)
        yield f".. code-of:: {defined.__module__} {defined.__qualname__}"


def public_names(module: ModuleType) -> list[str]:
    """List the public names of a module in the order in which they are defined or imported."""
    public = getattr(module, "__all__", vars(import_module(PACKAGE)))
    return [
        name
        for name in vars(module)
        if not name.startswith("_")
        and (name in public or not module.__name__.startswith(PACKAGE))
        and inspect.getmodule(defined := getattr(module, name, None))
        and callable(defined)
        and f"{defined.__module__}.".startswith(f"{module.__name__}.")
    ]


def with_class(name: str, paragraph: str) -> str:
    """Give a paragraph a CSS class."""
    return f".. rst-class:: {name}\n\n{indent(paragraph, '   ')}" if paragraph else ""


def describe(path: str, defined: object) -> str:
    """Return the autodoc directive for a class or function, given its dotted path."""
    if not inspect.isclass(defined):
        return f".. autofunction:: {path}"
    special = "\n   :special-members: __call__" if "__call__" in vars(defined) else ""
    return f".. autoclass:: {path}\n   :members:\n   :exclude-members: extra_repr{special}"


def hide_protocol_constructor(
    app: Sphinx, what: str, name: str, defined: object, options: object, *signature: str | None
) -> tuple[str, None] | None:
    """Omit the constructor's signature of a protocol, which is never instantiated."""
    return ("", None) if getattr(defined, "_is_protocol", False) else None


def skip_tuple_fields(
    app: Sphinx, what: str, name: str, defined: object, skip: bool, options: object
) -> bool | None:
    """Omit "Alias for field number 0" of a named tuple, whose docstring describes the fields."""
    return True if (inspect.getdoc(defined) or "").startswith("Alias for field") else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive and the handlers of autodoc."""
    app.add_directive("chapter", Chapter)
    app.add_directive("code-of", CodeOf)
    app.add_node(details, html=(visit_details, depart_details))
    app.connect("autodoc-skip-member", skip_tuple_fields)
    app.connect("autodoc-process-signature", hide_protocol_constructor)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
