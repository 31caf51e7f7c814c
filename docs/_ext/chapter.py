"""A chapter: the docstring of a file, then its public classes and functions.

``.. chapter:: transformer_blocks.masks`` renders the docstring as text. The part of its first line
after the colon becomes the page's opening paragraph; the part before the colon is the page's
heading. In a sub-package, the docstring of each file precedes what the file defines. A last
paragraph "Next chapter: ..." moves to the end of the page.

Names are documented under the path from which they are imported, the top level where it exports
them, so that every docstring can link to any other: ``:func:`~transformer_blocks.causal_mask```.
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
        text = "\n\n".join(
            (
                f".. py:module:: {module.__name__}",
                with_class("lead", lead[0].upper() + lead[1:]),
                *paragraphs,
                *listing(module),
                with_class("next-chapter", closing),
            )
        )
        source = f"{module.__file__}:docstring of {module.__name__}"
        return self.parse_text_to_nodes(StringList(text.splitlines(), source))


def listing(module: ModuleType) -> Iterator[str]:
    """Yield a module's public names; in a sub-package, a file's docstring precedes its names."""
    described = {module.__name__}
    for name in public_names(module):
        defined = getattr(module, name)
        if defined.__module__ not in described:
            described.add(defined.__module__)
            text = inspect.cleandoc(import_module(defined.__module__).__doc__ or "")
            heading, _, idea = text.partition(": ")
            yield f".. rubric:: {heading}\n   :heading-level: 2\n\n{idea[:1].upper()}{idea[1:]}"
        yield describe(public_path(module, name), defined)


def public_names(module: ModuleType) -> list[str]:
    """List the public names that a module defines, in the order of the file or ``__all__``."""
    names = getattr(module, "__all__", None)
    if names is None:
        exported = import_module(PACKAGE) if module.__name__.startswith(PACKAGE) else module
        names = [name for name in vars(exported) if hasattr(module, name)]
    return [
        name
        for name in names
        if not name.startswith("_")
        and callable(defined := getattr(module, name))
        and f"{getattr(defined, '__module__', '')}.".startswith(f"{module.__name__}.")
    ]


def public_path(module: ModuleType, name: str) -> str:
    """Give the shortest path from which a name can be imported."""
    is_exported = module.__name__.startswith(PACKAGE) and hasattr(import_module(PACKAGE), name)
    return f"{PACKAGE if is_exported else module.__name__}.{name}"


def with_class(name: str, paragraph: str) -> str:
    """Mark a paragraph for the style sheet."""
    return f".. rst-class:: {name}\n\n{indent(paragraph, '   ')}" if paragraph else ""


def describe(path: str, defined: object) -> str:
    """Write the autodoc directive for a class or function."""
    if not inspect.isclass(defined):
        return f".. autofunction:: {path}"
    special = "\n   :special-members: __call__" if "__call__" in vars(defined) else ""
    return f".. autoclass:: {path}\n   :members:\n   :exclude-members: extra_repr{special}"


def hide_protocol_constructor(
    app: Sphinx, what: str, name: str, defined: object, options: object, *signature: str | None
) -> tuple[str, None] | None:
    """Omit the constructor's signature of a protocol."""
    return ("", None) if getattr(defined, "_is_protocol", False) else None


def skip_tuple_fields(
    app: Sphinx, what: str, name: str, defined: object, skip: bool, options: object
) -> bool | None:
    """Omit "Alias for field number 0" of a named tuple; its docstring describes the fields."""
    return True if (inspect.getdoc(defined) or "").startswith("Alias for field") else None


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("chapter", Chapter)
    app.connect("autodoc-skip-member", skip_tuple_fields)
    app.connect("autodoc-process-signature", hide_protocol_constructor)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
