"""A chapter: the docstring of a file, then its public classes and functions in the file's order.

``.. chapter:: transformer_blocks.masks`` sets the module's docstring as running text. Its first
line, "Masks: which positions must not be seen", becomes the page's opening; the part before the
colon is the page's own heading. The docstrings of a package's files stand before what they define.
A last paragraph "Next chapter: ..." goes to the page's end.

What ``transformer_blocks`` exports is documented under the name by which it is imported, so that
every docstring can link to any other: ``:func:`~transformer_blocks.causal_mask```.
"""

import inspect
from collections.abc import Iterator
from importlib import import_module
from textwrap import indent
from types import ModuleType

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

PACKAGE = "transformer_blocks"


class Chapter(SphinxDirective):
    """The directive; its argument is the module's name."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Translate the module to reStructuredText and parse that."""
        module = import_module(self.arguments[0])
        for file in (module.__file__, import_module(PACKAGE).__file__):
            self.env.note_dependency(file or "")
        opening, *paragraphs = inspect.cleandoc(module.__doc__ or "").split("\n\n")
        has_closing = paragraphs and paragraphs[-1].startswith("Next chapter:")
        closing = paragraphs.pop() if has_closing else ""
        lead = opening.partition(": ")[2] or opening
        inside = PACKAGE if module.__name__.startswith(PACKAGE) else module.__name__
        text = "\n\n".join(
            (
                f".. py:module:: {module.__name__}\n.. py:currentmodule:: {inside}",
                with_class("lead", lead[0].upper() + lead[1:]),
                *paragraphs,
                *listing(module),
                with_class("next-chapter", closing),
            )
        )
        source = f"{module.__file__}:docstring of {module.__name__}"
        return self.parse_text_to_nodes(StringList(text.splitlines(), source))


def listing(module: ModuleType) -> Iterator[str]:
    """Yield what a module defines; in a package, what its files say goes before their names."""
    told = {module.__name__}
    for name in public_names(module):
        defined = getattr(module, name)
        if defined.__module__ not in told:
            told.add(defined.__module__)
            text = inspect.cleandoc(import_module(defined.__module__).__doc__ or "")
            heading, _, idea = text.partition(": ")
            yield f".. rubric:: {heading}\n   :heading-level: 2\n\n{idea[:1].upper()}{idea[1:]}"
        yield describe(name, defined)


def public_names(module: ModuleType) -> list[str]:
    """List what a module defines for others to use: in the file's order, a package's in its own."""
    exported = import_module(PACKAGE).__all__
    of_package = module.__name__.startswith(PACKAGE)
    candidates = exported if hasattr(module, "__path__") else vars(module)
    return [
        name
        for name in candidates
        if (name in exported if of_package else not name.startswith("_"))
        and inspect.getmodule(defined := getattr(module, name, None))
        and callable(defined)
        and f"{defined.__module__}.".startswith(f"{module.__name__}.")
    ]


def with_class(name: str, paragraph: str) -> str:
    """Mark a paragraph for the style sheet."""
    return f".. rst-class:: {name}\n\n{indent(paragraph, '   ')}" if paragraph else ""


def describe(name: str, defined: object) -> str:
    """Write the autodoc directive for a class or function."""
    if not inspect.isclass(defined):
        return f".. autofunction:: {name}"
    special = "\n   :special-members: __call__" if "__call__" in vars(defined) else ""
    return f".. autoclass:: {name}\n   :members:\n   :exclude-members: extra_repr{special}"


def hide_protocol_constructor(
    app: Sphinx, what: str, name: str, defined: object, options: object, *signature: str | None
) -> tuple[str, None] | None:
    """Leave out the signature of a protocol, which nobody calls."""
    return ("", None) if getattr(defined, "_is_protocol", False) else None


def skip_tuple_fields(
    app: Sphinx, what: str, name: str, defined: object, skip: bool, options: object
) -> bool | None:
    """Leave out the "Alias for field number 0" of a named tuple: its docstring has the fields."""
    return True if (inspect.getdoc(defined) or "").startswith("Alias for field") else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("chapter", Chapter)
    app.connect("autodoc-skip-member", skip_tuple_fields)
    app.connect("autodoc-process-signature", hide_protocol_constructor)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
