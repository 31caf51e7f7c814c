"""The reference: a Markdown page for each file or sub-package, made from the docstrings.

``make api`` writes ``docs/reference``; a test compares the pages with the docstrings. The pages can
be read in the repository, and the site is built from the same pages, with the code of each name
(see ``conf.py``). A page begins with the docstring of its file and with the lines that import its
names; each name follows with its signature, its description and its methods.
``docs/reference.toml`` lists the pages in their order.

The pages are not made by sphinx-markdown-builder 0.6, which writes signatures, with the rules of
their annotations, as headings of one long line, nor by griffe2md 1.5, which leaves roles, formulas
and examples as they stand in the docstrings, and splits what is said of a result by its lines.
"""

import inspect
import os
import re
import sys
import textwrap
import tomllib
import types
import typing
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from itertools import groupby
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
BLOCKS = "blocks/", "variants/"  # folders whose code is shown at once, if it is short
LONG = 60  # lines; longer code is shown after a click
SECTIONS = r"^(Args|Attributes|Returns|Yields|Raises|Warns|Example):\n"
CALLED = types.FunctionType, classmethod
IN_LINE = re.compile(
    r":(?P<role>\w+):`(?P<target>[^`]+)`|``(?P<code>.+?)``|`(?P<text>[^`<]+) <(?P<link>[^>]+)>`__?"
    r"|(?P<address>https?://[^\s()<>,]*[\w/])",
    re.DOTALL,
)
BLOCK = re.compile(  # a formula or a text, with the indented lines that follow; a Python session
    r"^\.\. (?:(?:math::(?P<math>.*(?:\n+ .*)*))|(?:code-block:: text\n(?P<text>(?:\n+ .*)+)))"
    r"|^(?P<python>>>>.*(?:\n.+)*)",
    re.MULTILINE,
)
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
def targets() -> dict[str, tuple[str, str]]:
    """Return the page and the heading of each module, class, function and member, by its path."""
    found = {PACKAGE: ("index.md", "")}
    for page in pages():
        found |= {module.__name__: (page.path, "") for module in page.modules}
        for path, thing in page.names.items():
            name = path.rpartition(".")[2]
            found[path] = page.path, name
            found |= {f"{path}.{each}": (page.path, f"{name}.{each}") for each in members(thing)}
    return found


# --- reStructuredText to Markdown ---


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
        if path in targets():
            other, heading = targets()[path]
            address = "" if other == page else os.path.relpath(other, PurePosixPath(page).parent)
            address += heading and f"#{heading.replace('.', '').lower()}"
            return f"[{text}]({address})" if address else text
    if target.partition(".")[0] in ("torch", "nn", "F", "Tensor"):
        return text
    raise ValueError(f"{scope} links to {target}, which has no place in the reference")


def in_line(text: str, link: Link) -> str:
    """Convert the text of a paragraph: roles, formulas, code, addresses and links."""

    def convert(match: re.Match[str]) -> str:
        target = match["target"]
        if match["role"] == "math":
            return f"${target}$"
        if match["role"] == "doc":
            return re.sub(r"(.+?)\s+</(.+)>", r"[\1](../../\2.py)", target, flags=re.S)
        if match["role"]:
            name = target.rpartition(".")[2] if target[0] == "~" else target
            return link(target.removeprefix("~"), f"`{name}`")
        if match["text"]:
            return f"[{match['text']}]({match['link']})"
        return f"`{match['code']}`" if match["code"] else f"<{match['address']}>"

    return replace(IN_LINE, text, convert, lambda rest: re.sub(r"[<$]", r"\\\g<0>", rest))


def markdown(text: str, link: Link) -> str:
    """Convert the reStructuredText of a docstring, without its sections."""

    def convert(match: re.Match[str]) -> str:
        kind = match.lastgroup or ""
        first, _, rest = match[kind].partition("\n")
        inner = f"{first.strip()}\n{textwrap.dedent(rest)}".strip("\n")
        if kind == "math" and r"\\" in inner and r"\begin" not in inner:
            inner = f"\\begin{{aligned}}\n{inner}\n\\end{{aligned}}"
        return f"```{kind}\n{inner}\n```"

    text = re.sub(r"^(?!\.\.)(.*:):$", r"\1\n\n.. code-block:: text", text.strip("\n"), flags=re.M)
    return replace(BLOCK, text, convert, partial(in_line, link=link))


def replace(
    pattern: re.Pattern[str],
    text: str,
    convert: Callable[[re.Match[str]], str],
    otherwise: Callable[[str], str],
) -> str:
    """Convert what matches a pattern by one function, and the text between by another."""
    pieces, end = [], 0
    for match in pattern.finditer(text):
        pieces += [otherwise(text[end : match.start()]), convert(match)]
        end = match.end()
    return "".join([*pieces, otherwise(text[end:])])


def description(text: str, link: Link) -> str:
    """Convert a docstring with its sections: Args, Returns, Raises, Example ..."""
    first, *parts = re.split(SECTIONS, inspect.cleandoc(text), flags=re.M)
    blocks = [markdown(first, link)]
    for title, body in zip(parts[::2], parts[1::2], strict=True):
        body = textwrap.dedent(body).strip()
        blocks.append(f"**{title.replace('Args', 'Arguments')}**")
        if title in ("Args", "Attributes", "Raises", "Warns"):
            items = re.split(r"^(\*{0,2}[\w.]+(?:, \*{0,2}[\w.]+)*): ", body, flags=re.M)[1:]
            entries = []
            for name, item in zip(items[::2], items[1::2], strict=True):
                text = markdown(inspect.cleandoc(item), link)
                entries.append(f"- `{name}`: {textwrap.indent(text, '  ').lstrip()}")
            blocks.append("\n".join(entries))
        else:
            blocks.append(markdown(body, link))
    return "\n\n".join(filter(None, blocks))


# --- signatures ---


def type_name(annotation: Any) -> str:
    """Write a type as in the source, without the rules that an annotation adds to it."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return type_name(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(type_name, arguments))
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if isinstance(annotation, list):
        return f"[{', '.join(map(type_name, annotation))}]"
    if annotation in (None, types.NoneType, ...):
        return {...: "..."}.get(annotation, "None")
    name = getattr(origin or annotation, "__name__", str(annotation)).lstrip("~")
    if name == "ndarray":
        return name
    if name != "Tensor":
        module = f"{getattr(annotation, '__module__', '')}."
        libraries = {"torch.nn.": "nn.", "torch.optim.": "torch.optim.", "torch.": "torch."}
        name = next((libraries[each] for each in libraries if module.startswith(each)), "") + name
    return f"{name}[{', '.join(map(type_name, arguments))}]" if arguments else name


class Written(str):
    """What a signature shows as it is written."""

    __slots__ = ()
    __repr__ = str.__str__


def signature(name: str, thing: Any) -> str:
    """Return the signature of a class, function or method; long ones take a line a parameter."""
    prefix = "class " if isinstance(thing, type) else ""
    if prefix and issubclass(thing, Exception):
        return prefix + name
    found = inspect.signature(thing)
    if prefix and "kwargs" in found.parameters:  # no constructor of its own
        return prefix + name
    parameters = []
    has_star = False
    for each in found.parameters.values():
        if each.kind is each.KEYWORD_ONLY and not has_star:
            parameters.append("*")
        has_star = each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        if each.annotation is not each.empty:
            each = each.replace(annotation=Written(type_name(each.annotation)))
        if each.default is not each.empty:
            default = getattr(each.default, "__name__", repr(each.default))
            each = each.replace(default=Written("..." if default[0] == "<" else default))
        parameters.append(str(each))
    shown = [each for each in parameters if each != "self"]
    returned = found.return_annotation
    result = "" if prefix or returned is found.empty else f" -> {type_name(returned)}"
    line = f"{prefix}{name}({', '.join(shown)}){result}"
    lines = [f"{prefix}{name}(", *(f"    {each}," for each in shown), f"){result}"]
    return line if len(line) <= 88 else "\n".join(lines)


def without_docstrings(thing: Any) -> str:
    """Return the code of a class or function without all docstrings, those of attributes too."""
    source = inspect.cleandoc(f"\n{inspect.getsource(thing)}") + "\n"

    def rest(found: re.Match[str]) -> str:
        indentation, blank = found.groups()
        if not re.search(r":(?:  #.*)?\n$", source[: found.start()]):
            return blank  # of an attribute
        is_alone = not source.startswith(indentation, found.end())
        return f"{indentation}...\n{blank}" if is_alone else ""

    code = re.sub(r'^( *)r?"""(?:.|\n)*?"""\n(\n*)', rest, source, flags=re.M)
    return re.sub(r"  # noqa\b.*", "", code).rstrip()


# --- pages ---


def titles(module: ModuleType) -> tuple[str, str, str, str]:
    """Split a module's docstring: title, lead, body, and the paragraph that names the next one."""
    first, _, body = inspect.cleandoc(module.__doc__ or "").partition("\n")
    title, _, lead = first.rstrip(".").partition(": ")
    body, _, following = body.partition("\n\nNext: ")
    return title, lead and f"{lead[0].upper()}{lead[1:]}.", body.strip(), following


def render(page: Page, *, on_site: bool = False) -> str:
    """Return the Markdown of a page; on the site, the code of each name follows its description."""

    def box(css: str, text: str) -> str:
        return f'<div class="{css}">\n\n{text}\n\n</div>' if on_site else text

    def introduce(module: ModuleType, level: str) -> list[str]:
        to = partial(link, page.path, module.__name__)
        title, lead, body, _ = titles(module)
        path = Path(module.__file__ or "").relative_to(ROOT).as_posix()
        up = "../" * (len(Path(page.path).parts) + 1)
        file = f"File: `{path}`" if on_site else f"File: [{path}]({up}{path})"
        is_first = module is page.modules[0]
        lines = f"```python\n{import_lines(page)}\n```" if is_first and page.names else ""
        lead = box("lead", in_line(lead, to)) if is_first else in_line(lead, to)
        return [f"{level} {in_line(title, to)}", lead, file, lines, description(body, to)]

    introduced = [page.modules[0].__name__]
    blocks = introduce(page.modules[0], "#")
    for path, thing in page.names.items():
        if thing.__module__ not in introduced:
            introduced.append(thing.__module__)
            blocks += introduce(import_module(thing.__module__), "##")
        blocks += entry(page, path, thing, "##" + "#" * (len(introduced) > 1), on_site)
    if following := titles(page.modules[0])[3]:
        text = in_line(f"Next: {following}", partial(link, page.path, introduced[0]))
        blocks.append(box("read-next", text))
    return "\n\n".join(filter(None, blocks)) + "\n"


def import_lines(page: Page) -> str:
    """Return the statements that import the names of a page."""

    def module_of(path: str) -> str:
        return path.rpartition(".")[0]

    lines = []
    for module, paths in groupby(sorted(page.names, key=module_of), key=module_of):
        names = [path.rpartition(".")[2] for path in paths]
        line = f"from {module} import {', '.join(names)}"
        if len(line) > 100:
            line = "\n".join([f"from {module} import (", *(f"    {each}," for each in names), ")"])
        lines.append(line)
    return "\n".join(lines)


def entry(page: Page, path: str, thing: Any, level: str, on_site: bool) -> Iterator[str]:
    """Yield the heading, signature and description of a name, and those of its members."""
    to = partial(link, page.path)
    name = path.rpartition(".")[2]
    yield f"{level} `{name}`\n\n```python\n{signature(name, thing)}\n```"
    yield description(inspect.getdoc(thing) or "", partial(to, path))
    if on_site:
        code = without_docstrings(thing)
        is_open = page.path.startswith(BLOCKS) and len(code.splitlines()) <= LONG
        yield f'<details class="code"{" open" * is_open}><summary>Code</summary>'
        yield f"```python\n{code}\n```\n\n</details>"
    for member, each in members(thing).items():
        yield f"{level}# `{name}.{member}`"
        if isinstance(each, CALLED):
            yield f"```python\n{signature(member, getattr(thing, member))}\n```"
        yield description(inspect.getdoc(each) or "", partial(to, f"{path}.{member}"))


def render_list(folder: str, *, at: str, with_names: bool) -> str:
    """Return the Markdown of a list of the pages of a folder, with their names, for a page."""
    to = partial(link, at)
    items = []
    for page in folders()[folder]:
        module = page.modules[0].__name__
        title, lead, _, _ = (in_line(each, partial(to, module)) for each in titles(page.modules[0]))
        heading = to(module, module, title)
        items.append(f"\n**{heading}**. {lead}\n" if with_names else f"- {heading}: {lead}")
        for path, thing in page.names.items() if with_names else ():
            summary = in_line((inspect.getdoc(thing) or "").partition("\n")[0], partial(to, path))
            name = f"`{path.rpartition('.')[2]}`"
            items.append(f"- {to(path, path, name)}: {summary}")
    return "\n".join(items).strip()


def contents() -> dict[str, str]:
    """Return the text of each file of the reference, by its path within the folder."""
    files, overview = {}, [f"# {OVERVIEW['heading']}", OVERVIEW["text"].strip()]
    for folder, described in FOLDERS.items():
        heading, text, path = described["heading"], described["text"], f"{folder}/index.md"
        names = render_list(folder, at="index.md", with_names=True)
        overview += filter(None, [f"## {heading}", text, names])
        listed = render_list(folder, at=path, with_names=False)
        first = filter(None, [f"# {heading}", text, listed])
        files[path] = "\n\n".join(first) + "\n"
    files |= {page.path: render(page) for page in pages()}
    return files | {"index.md": "\n\n".join(overview) + "\n"}


def main() -> None:
    """Write the pages, and remove those of files that are gone."""
    sys.path.append(str(ROOT / "examples"))
    files = contents()
    for path in FOLDER.rglob("*.md"):
        if path.relative_to(FOLDER).as_posix() not in files:
            path.unlink()
    for name, text in files.items():
        (FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / name).write_text(text, "utf-8")


if __name__ == "__main__":
    main()
