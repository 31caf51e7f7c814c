"""The reference: a Markdown page for each file or sub-package, made from the docstrings.

``make api`` writes ``docs/reference``; a test compares the pages with the docstrings. The pages can
be read in the repository. The site is made of the same pages, and shows the code of a name where a
page has a comment ``<!-- code of MODULE:NAME -->``. A page begins with the docstring of its file;
each name follows with its signature, its description and its methods. ``docs/reference.toml`` lists
the pages in their order.

The pages are not made by sphinx-markdown-builder 0.6, which writes signatures, with the rules of
their annotations, as headings of one long line, nor by griffe2md 1.5: it leaves roles, formulas and
examples as they stand in the docstrings, links ``Tensor`` and ``str`` to places that do not exist,
ends an item of a list with the first line of its text, and sorts names by the alphabet.
"""

import inspect
import operator
import os
import pkgutil
import re
import shutil
import sys
import textwrap
import tomllib
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial, reduce
from importlib import import_module
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference"
PACKAGE = "transformer_blocks"
FOLDERS = tomllib.loads((ROOT / "docs" / "reference.toml").read_text("utf-8"))
OVERVIEW = FOLDERS.pop("overview")
OF_PACKAGE = "blocks", "variants", "tools", "fast"  # the other folders are of the programs
CHAPTERS = [name for folder in OF_PACKAGE[:3] for name in FOLDERS[folder]["names"]]
LONG = 40  # lines; longer code is shown after a click
SECTIONS = r"^(Args|Attributes|Returns|Yields|Raises|Warns|Example):\n"
ITEM = r"^(\*{0,2}[\w.]+(?:, \*{0,2}[\w.]+)*): "  # names, and what is said of them
CALLED = types.FunctionType, classmethod
MARKUP = re.compile(
    r"^(?P<session>>>>.*(?:\n.+)*)"
    r"|^\.\. math::(?P<display>.*(?:\n+ .*)*)"
    r"|^\.\. code-block:: text\n(?P<drawing>(?:\n+ .+)+)"
    r"|:(?P<role>\w+):`~?(?P<target>[^`]+)`"
    r"|``(?P<code>(?:.|\n)+?)``"
    r"|`(?P<text>[^`<]+) <(?P<link>[^>]+)>`__?"
    r"|(?P<address>https?://[^\s()<>,]*[\w/])"
    r"|(?P<special>[<$])",
    re.MULTILINE,
)
SHORTER = {  # what Python writes in a signature, and what we do
    r"<function [^>]*<lambda> at \w+>|<factory>": "...",
    r"<\w+ '?(?:\w+\.)*(\w+)[^>]*>": r"\1",  # a class or function as a default
    r"\btorch\.nn\.(?:[a-z]\w*\.)*": "nn.",
    r"\b(?!nn\.|torch\.(?!Tensor)\w+\b(?!\.))(?:[a-z_]\w*\.)+(?=[a-zA-Z])": "",
    r"\bNoneType\b": "None",
    r"[~+-](?=[A-Z])|(?<=Options)\.k?w?args": "",
}
CONTENTS = "\n\n<!-- site\n```{{toctree}}\n:hidden:\n\n{}\n```\n-->"
Link = Callable[[str, str], str]


@dataclass
class Page:
    """A page: its modules, and each name that it documents.

    Attributes:
        path: Path of the page within the folder of the reference, such as ``blocks/masks.md``.
        modules: Its modules; the first one gives the page its title.
        names: Its classes and functions, by the path under which each is imported.
    """

    path: str
    modules: list[ModuleType]
    names: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        package = import_module(PACKAGE)
        exported = {name: getattr(package, name) for name in package.__all__}
        for module in self.modules:
            is_ours = module.__name__.startswith(PACKAGE)
            public = getattr(module, "__all__", exported if is_ours else vars(module))
            for name, thing in vars(module).items():
                owner = f"{getattr(thing, '__module__', '')}."
                is_here = callable(thing) and owner.startswith(f"{module.__name__}.")
                if is_here and name in public and name[0] != "_":
                    owner = PACKAGE if exported.get(name) is thing else module.__name__
                    self.names[f"{owner}.{name}"] = thing


@cache
def folders() -> dict[str, list[Page]]:
    """Return the pages of each folder. That of ``fast`` is among the tools."""
    return {
        folder: [page_of(folder, name) for name in described["names"]]
        for folder, described in FOLDERS.items()
    }


def page_of(folder: str, name: str) -> Page:
    """Return the page of a file, or of a sub-package with files of their own."""
    path = name.replace(".", "/") if "." in name else f"{folder}/{name}"
    path = f"{name}/index" if name in FOLDERS else path
    names = [name, "variants.explicit"] if name == "variants" else [name]
    prefix = f"{PACKAGE}." if folder in OF_PACKAGE else ""
    return Page(f"{path}.md", [import_module(prefix + each) for each in names])


def pages() -> list[Page]:
    """Return all pages."""
    return [page for found in folders().values() for page in found]


@cache
def members(thing: Any) -> dict[str, Any]:
    """Return the methods and properties of a class that have a docstring.

    Members of a base class in the same file are included, unless a page describes that class.
    """
    described = {each for page in pages() for each in page.names.values()}
    found: dict[str, Any] = {}
    for owner in reversed(thing.__mro__ if isinstance(thing, type) else ()):
        if owner is thing or (owner.__module__ == thing.__module__ and owner not in described):
            for name, each in vars(owner).items():
                is_shown = (name[0] != "_" or name == "__call__") and name != "extra_repr"
                if is_shown and isinstance(each, (*CALLED, property)) and each.__doc__:
                    found[name] = each
    return found


@cache
def places() -> dict[str, str]:
    """Return the address of each module, class, function and member, by its path."""
    found = {PACKAGE: "index.md"}
    for page in pages():
        found |= {module.__name__: page.path for module in page.modules}
        for path, thing in page.names.items():
            place = f"{page.path}#{path.rpartition('.')[2].lower()}"
            found |= {path: place} | {
                f"{path}.{each}": place + each.lower() for each in members(thing)
            }
    return found


def link(page: str, scope: str, target: str, text: str) -> str:
    """Return a link to a name that a docstring mentions.

    Args:
        page: Path of the page with the link.
        scope: Path of the class, function or module whose docstring mentions the name.
        target: The name, complete or as within the scope or the package.
        text: Text of the link.

    Returns:
        The link; the text alone for a name of another library.

    Raises:
        ValueError: If no page documents the name.
    """
    parts = scope.split(".")
    scopes = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
    for path in (target, *(f"{each}.{target}" for each in (*scopes, PACKAGE))):
        if path in places():
            return f"[{text}]({os.path.relpath(places()[path], PurePosixPath(page).parent)})"
    if target.partition(".")[0] in ("torch", "nn", "F", "Tensor"):
        return text
    raise ValueError(f"{scope} links to {target}, which has no place in the reference")


def markdown(text: str, link: Link) -> str:
    """Convert the reStructuredText of a docstring, without its sections."""

    def convert(found: re.Match[str]) -> str:
        kind = found.lastgroup or ""
        inner = textwrap.dedent(found[kind]).strip("\n")
        match kind:
            case "session":
                return f"```python\n{inner}\n```"
            case "drawing":
                return f"```text\n{inner}\n```"
            case "display":
                first, _, rest = inner.partition("\n")
                inner = f"{first.strip()}\n{textwrap.dedent(rest)}".strip()
                if r"\\" in inner and r"\begin" not in inner:
                    inner = f"\\begin{{aligned}}\n{inner}\n\\end{{aligned}}"
                return f"```math\n{inner}\n```"
            case "code":
                return f"`{inner}`"
            case "link":
                return f"[{found['text']}]({inner})"
            case "address":
                return f"<{inner}>"
            case "special":
                return f"\\{inner}"
        if found["role"] == "math":
            return f"${inner}$"
        name = inner.rpartition(".")[2] if "~" in found[0] else inner
        return link(inner, f"`{name}`")

    return MARKUP.sub(convert, text.strip("\n"))


def description(text: str, link: Link) -> str:
    """Convert a docstring with its sections: Args, Returns, Raises, Example ..."""
    first, *parts = re.split(SECTIONS, inspect.cleandoc(text), flags=re.M)
    blocks = [first]
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        body = textwrap.dedent(body)
        if title in ("Args", "Attributes", "Raises", "Warns"):
            body = re.sub(ITEM, r"- ``\1``: ", body, flags=re.M).replace("\n    ", "\n  ")
        blocks += [f"**{title.replace('Args', 'Arguments')}**", body]
    return "\n\n".join(markdown(each, link).strip() for each in blocks if each)


def modern(hint: Any) -> Any:
    """Return a type without the rules that an annotation adds to it, its unions as ``A | B``."""
    if isinstance(hint, list):  # the arguments of a callable
        return [*map(modern, hint)]
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return reduce(operator.or_, map(modern, arguments))
    return origin[tuple(map(modern, arguments))] if arguments else hint


def signature(name: str, thing: Any) -> str:
    """Return the signature of a class, function or method; long ones take a line a parameter."""
    is_class = isinstance(thing, type)
    prefix = f"{'class ' * is_class}{name}"
    if is_class and issubclass(thing, Exception):
        return prefix
    found = inspect.signature(thing)
    if is_class and "kwargs" in found.parameters:  # no constructor of its own
        return prefix
    hints = typing.get_type_hints(thing)
    if is_class:
        hints |= typing.get_type_hints(thing.__init__) | {"return": found.empty}
    found = found.replace(
        parameters=[
            each.replace(annotation=modern(hints.get(each.name, each.annotation)))
            for each in found.parameters.values()
            if each.name != "self"
        ],
        return_annotation=modern(hints.get("return", found.empty)),
    )
    line = f"{prefix}{found}"
    for pattern, short in SHORTER.items():
        line = re.sub(pattern, short, line)
    if len(line) <= 88:
        return line
    start, _, rest = line.partition("(")
    inner, _, end = rest.rpartition(")")
    inner = re.sub(r", (?=\*|\w+[:=])", ",\n    ", inner)
    return f"{start}(\n    {inner},\n){end}"


def titles(module: ModuleType) -> tuple[str, str, str]:
    """Split a module's docstring: title, lead and body."""
    first, _, body = inspect.cleandoc(module.__doc__ or "").partition("\n")
    title, _, lead = first.rstrip(".").partition(": ")
    return title, lead and f"{lead[0].upper()}{lead[1:]}.", body


def render(page: Page) -> str:
    """Return the Markdown of a page."""
    first, blocks = page.modules[0], []
    introduced: list[ModuleType] = []
    for path, thing in [("", first), *page.names.items()]:
        module = sys.modules[getattr(thing, "__module__", first.__name__)]
        if module not in introduced:
            blocks += introduce(page, module, "#" * min(len(introduced) + 1, 2))
            introduced.append(module)
        if path:
            blocks += entry(page, path, thing, "#" * min(len(introduced) + 1, 3))
    return "\n\n".join(filter(None, blocks))


def introduce(page: Page, module: ModuleType, level: str) -> list[str]:
    """Return heading, lead, file and description of a module."""
    to = partial(link, page.path, module.__name__)
    title, lead, body = titles(module)
    path = Path(module.__file__ or "").relative_to(ROOT).as_posix()
    file = f"File: [{path}]({'../' * (page.path.count('/') + 2)}{path})"
    return [f"{level} {markdown(title, to)}", markdown(lead, to), file, description(body, to)]


def entry(page: Page, path: str, thing: Any, level: str) -> Iterator[str]:
    """Yield the heading, signature and description of a name, and those of its members."""
    to = partial(link, page.path)
    name = path.rpartition(".")[2]
    yield f"{level} `{name}`\n\n```python\n{signature(name, thing)}\n```"
    yield description(inspect.getdoc(thing) or "", partial(to, path))
    yield f"<!-- code of {thing.__module__}:{thing.__qualname__} -->"
    for member, each in members(thing).items():
        yield f"{level}# `{name}.{member}`"
        if isinstance(each, CALLED):
            yield f"```python\n{signature(member, getattr(thing, member))}\n```"
        yield description(inspect.getdoc(each) or "", partial(to, f"{path}.{member}"))


def listed(folder: str, *, at: str) -> str:
    """List the pages of a folder in Markdown; in the overview, with their names."""
    to, items = partial(link, at), []
    for page in folders()[folder]:
        module = page.modules[0].__name__
        title, lead, _ = (markdown(each, partial(to, module)) for each in titles(page.modules[0]))
        items.append(f"\n**{to(module, module, title)}**. {lead}\n")
        for path, thing in page.names.items() if at == "index.md" else ():
            summary = markdown((inspect.getdoc(thing) or "").partition("\n")[0], partial(to, path))
            items.append(f"- {to(path, path, f'`{thing.__name__}`')}: {summary}")
    return "\n".join(items).strip()


def contents() -> dict[str, str]:
    """Return the text of each file of the reference, by its path within the folder."""
    files, overview = {}, [f"# {OVERVIEW['heading']}", OVERVIEW["text"].strip()]
    for folder, described in FOLDERS.items():
        heading, text, path = described["heading"], described["text"], f"{folder}/index.md"
        overview += [f"## {heading}", text, listed(folder, at="index.md")]
        files[path] = "\n\n".join(filter(None, [f"# {heading}", text, listed(folder, at=path)]))
    files["index.md"] = "\n\n".join(filter(None, overview))
    files |= {page.path: render(page) for page in pages()}
    for folder, described in folders().items():  # for the sidebar of the site
        names = [f"/reference/{page.path[:-3]}" for page in described]
        names = [name for name in names if name != f"/reference/{folder}/index"]
        files[f"{folder}/index.md"] += CONTENTS.format("\n".join(names))
    return {path: f"{text}\n" for path, text in files.items()}


def with_code(found: re.Match[str]) -> str:
    """Replace the comment below a description by the code of a name, without docstrings."""
    thing = pkgutil.resolve_name(found[1])
    source = inspect.cleandoc(f"\n{inspect.getsource(thing)}") + "\n"
    code = re.sub(r'^ *r?"""(?:.|\n)*?"""\n|  # noqa\b.*', "", source, flags=re.M).rstrip()
    opened = f'<details class="code"{" open" * (code.count(chr(10)) < LONG)}>'
    return f"{opened}<summary>Code</summary>\n\n```python\n{code}\n```\n\n</details>"


def main() -> None:
    """Write the pages anew."""
    sys.path.append(str(ROOT / "examples"))
    files = contents()
    shutil.rmtree(FOLDER)
    for name, text in files.items():
        (FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
