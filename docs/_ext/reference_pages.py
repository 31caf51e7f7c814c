"""The reference: a Markdown page for each file or sub-package, made from the docstrings.

``make api`` writes ``docs/reference``; a test compares the pages with the docstrings. The pages can
be read in the repository, and the site is built from the same pages. A page begins with the
docstring of its file and with the lines that import its names; each name follows with its
signature, its description and its methods. ``docs/reference.toml`` lists the pages in their order.

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
from typing import Annotated, Any

import griffe

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference"
PACKAGE = "transformer_blocks"
FOLDERS = tomllib.loads((ROOT / "docs" / "reference.toml").read_text("utf-8"))
OF_PACKAGE = "blocks", "variants", "tools", "fast"  # the other folders are of the programs
CHAPTERS = [name for folder in OF_PACKAGE[:3] for name in FOLDERS[folder]["names"]]
SECTIONS = {"Args": "Arguments"} | {
    name: name for name in ("Attributes", "Returns", "Yields", "Raises", "Warns", "Example")
}
IN_LINE = re.compile(
    r":(?P<role>\w+):`(?P<target>[^`]+)`|``(?P<code>.+?)``|`(?P<text>[^`<]+) <(?P<link>[^>]+)>`__?"
    r"|(?P<address>https?://[^\s()<>,]*[\w/])",
    re.DOTALL,
)
INTRODUCTION = """\
Every public class and function. A page documents one file or one sub-package, with examples that
the tests run. The order is also a reading order: each page uses only what those before it define.
To learn how attention works, begin with [the book](../learn/index.md); to solve a task, see the
[how-to pages](../howto/index.md).
"""


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
        for module in self.modules:
            for name in public_names(module):
                thing = getattr(module, name)
                exported = getattr(import_module(PACKAGE), name, None) is thing
                self.names[f"{PACKAGE if exported else module.__name__}.{name}"] = thing


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
    modules = [import_module(f"{PACKAGE}.{name}" if folder in OF_PACKAGE else name)]
    if name == "variants":
        modules.append(import_module(f"{PACKAGE}.variants.explicit"))
    return Page(f"{path}.md", modules)


def pages() -> list[Page]:
    """Return all pages."""
    return [page for found in folders().values() for page in found]


def public_names(module: ModuleType) -> list[str]:
    """List the public names of a module in the order in which they are defined or imported."""
    public = getattr(module, "__all__", vars(import_module(PACKAGE)))
    return [
        name
        for name, thing in vars(module).items()
        if not name.startswith("_")
        and (name in public or not module.__name__.startswith(PACKAGE))
        and callable(thing)
        and f"{getattr(thing, '__module__', '')}.".startswith(f"{module.__name__}.")
    ]


@cache
def package(name: str) -> Any:
    """Read the source of a package."""
    return griffe.load(name, search_paths=[ROOT / "src", ROOT / "examples"])


@cache
def members(thing: type) -> list[tuple[str, str, bool]]:
    """List name, docstring and whether it is called, for each documented member of a class.

    Members of a base class in the same file are included, unless a page describes that class.
    """
    described = {each for page in pages() for each in page.names.values()}
    found = {}
    for owner in reversed(thing.__mro__):
        if owner is thing or (owner.__module__ == thing.__module__ and owner not in described):
            top, _, path = f"{owner.__module__}.{owner.__qualname__}".partition(".")
            for name, each in package(top)[path].members.items():
                is_shown = not name.startswith("_") or name == "__call__"
                if each.docstring and is_shown and name != "extra_repr":
                    found[name] = (name, each.docstring.value, each.is_function)
    return list(found.values())


def places(page: Page) -> Iterator[tuple[str, str, str]]:
    """Yield the path, the heading and the kind, in Sphinx's words, of all that a page describes."""
    for path, thing in page.names.items():
        name = path.rpartition(".")[2]
        yield path, name, "class" if isinstance(thing, type) else "function"
        for member, _, is_called in members(thing) if isinstance(thing, type) else ():
            kind = "method" if is_called else "attribute"
            yield f"{path}.{member}", f"{name}.{member}", kind


@cache
def targets() -> dict[str, tuple[str, str]]:
    """Return the page and the anchor of each module, class, function and member, by its path."""
    found = {PACKAGE: ("index.md", "")}
    for page in pages():
        found |= {module.__name__: (page.path, "") for module in page.modules}
        for path, title, _ in places(page):
            found[path] = page.path, title.replace(".", "").lower()
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
            other, anchor = targets()[path]
            address = "" if other == page else os.path.relpath(other, PurePosixPath(page).parent)
            address += anchor and f"#{anchor}"
            return f"[{text}]({address})" if address else text
    if target.partition(".")[0] in ("torch", "nn", "F", "Tensor"):
        return text
    raise ValueError(f"{scope} links to {target}, which has no place in the reference")


def in_line(text: str, link: Callable[[str, str], str]) -> str:
    """Convert the text of a paragraph: roles, formulas, code, addresses and links."""

    def convert(match: re.Match[str]) -> str:
        if match["role"] == "math":
            if re.search(r"\\[^a-zA-Z]", match["target"]):
                raise ValueError(f"Markdown would drop a backslash of {match[0]}")
            return f"${match['target']}$"
        if match["role"] == "doc":
            title, address = re.fullmatch(r"(.+?)\s+</(.+)>", match["target"], re.DOTALL).groups()  # type: ignore[union-attr]
            return f"[{title}](../../{address}.py)"
        if match["role"]:
            target = match["target"].removeprefix("~")
            name = target if "~" not in match["target"] else target.rpartition(".")[2]
            return link(target, f"`{name}`")
        if match["code"]:
            return f"`{match['code']}`"
        return (
            f"<{match['address']}>" if match["address"] else f"[{match['text']}]({match['link']})"
        )

    pieces, end = [], 0
    for match in IN_LINE.finditer(text):
        pieces += [re.sub(r"[<$]", r"\\\g<0>", text[end : match.start()]), convert(match)]
        end = match.end()
    return "".join([*pieces, re.sub(r"[<$]", r"\\\g<0>", text[end:])])


def markdown(text: str, link: Callable[[str, str], str]) -> str:
    """Convert the reStructuredText of a docstring, without its sections."""
    blocks: list[str] = []
    lines = text.splitlines()
    while lines:
        first = lines.pop(0)
        if not first.strip():
            continue
        if found := re.match(r"( *)\.\. math::(.*)", first):
            formula = textwrap.dedent("\n".join(take_inner(lines, len(found[1])))).strip()
            formula = (found[2].strip() + "\n" + formula).strip()
            if r"\\" in formula and r"\begin" not in formula:
                formula = f"\\begin{{aligned}}\n{formula}\n\\end{{aligned}}"
            blocks.append(f"```math\n{formula}\n```")
        elif first.startswith(">>>"):
            blocks.append("\n".join(["```python", first, *take_paragraph(lines), "```"]))
        elif first.startswith("==="):
            blocks.append(table([first, *take_paragraph(lines)], link))
        else:
            paragraph = "\n".join([first, *take_paragraph(lines)])
            is_followed_by_code = paragraph.endswith("::")
            if is_followed_by_code:
                paragraph = paragraph[:-1]
            blocks.append(in_line(paragraph, link))
            if is_followed_by_code:
                code = textwrap.dedent("\n".join(take_inner(lines, 0))).strip("\n")
                blocks.append(f"```text\n{code}\n```")
    return "\n\n".join(blocks)


def take(lines: list[str], ends: Callable[[str], object]) -> list[str]:
    """Remove and return the lines before the first one at which a block ends."""
    end = next((number for number, line in enumerate(lines) if ends(line)), len(lines))
    taken, lines[:end] = lines[:end], []
    return taken


def take_paragraph(lines: list[str]) -> list[str]:
    """Remove and return the lines up to the next blank one."""
    return take(lines, lambda line: not line.strip())


def take_inner(lines: list[str], indentation: int) -> list[str]:
    """Remove and return the lines that are blank or indented by more than that."""
    return take(lines, re.compile(rf" {{0,{indentation}}}\S").match)


def table(lines: list[str], link: Callable[[str, str], str]) -> str:
    """Convert a table whose columns are marked by lines of equal signs."""
    starts = [found.start() for found in re.finditer("=+", lines[0])]
    columns = [slice(*ends) for ends in zip(starts, [*starts[1:], None], strict=True)]
    rows = [[in_line(line[each].strip(), link) for each in columns] for line in lines[1:-1]]
    return "\n".join(map(row, [[" " for _ in columns], ["---" for _ in columns], *rows]))


def row(cells: list[str]) -> str:
    """Return a row of a table."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def description(text: str, link: Callable[[str, str], str]) -> str:
    """Convert a docstring with its sections: Args, Returns, Raises, Example ..."""
    parts = re.split(rf"^({'|'.join(SECTIONS)}):\n", inspect.cleandoc(text), flags=re.M)
    blocks = [markdown(parts[0], link)]
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        body = textwrap.dedent(body).strip()
        blocks.append(f"**{SECTIONS[title]}**")
        if title in ("Args", "Attributes", "Raises", "Warns"):
            items = re.split(r"^(\*{0,2}[\w.]+(?:, \*{0,2}[\w.]+)*): ", body, flags=re.M)[1:]
            entries = []
            for name, item in zip(items[::2], items[1::2], strict=True):
                text = markdown(inspect.cleandoc(item), link)
                entries.append(f"- `{name}`: {textwrap.indent(text, '  ').lstrip()}")
            blocks.append("\n".join(entries))
        else:
            blocks.append(markdown(body, link))
    return "\n\n".join(block for block in blocks if block)


# --- signatures ---


def type_name(annotation: Any) -> str:
    """Write a type as in the source, without the rules that an annotation adds to it."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation in (None, types.NoneType):
        return "None"
    if annotation is ...:
        return "..."
    if getattr(origin, "__module__", "") == "numpy":
        return "ndarray"
    if origin is Annotated:
        return type_name(arguments[0])
    if origin in (typing.Union, types.UnionType):
        return " | ".join(map(type_name, arguments))
    if origin is typing.Literal:
        return f"Literal[{', '.join(map(repr, arguments))}]"
    if isinstance(annotation, list):
        return f"[{', '.join(map(type_name, annotation))}]"
    name = getattr(origin or annotation, "__name__", str(annotation)).lstrip("~")
    module = getattr(annotation, "__module__", "")
    if name != "Tensor" and module.partition(".")[0] == "torch":
        libraries = {"torch.nn.": "nn.", "torch.optim.": "torch.optim.", "torch": "torch."}
        name = next(short for long, short in libraries.items() if module.startswith(long)) + name
    return f"{name}[{', '.join(map(type_name, arguments))}]" if arguments else name


def has_constructor(thing: type) -> bool:
    """Return whether a class is made with arguments that it defines itself."""
    makers = [vars(each).keys() & {"__init__", "__new__"} for each in thing.__mro__]
    maker = next(each for each, found in zip(thing.__mro__, makers, strict=True) if found)
    is_ours = maker.__module__.partition(".")[0] not in ("torch", "builtins", "enum", "typing")
    return is_ours and not getattr(thing, "_is_protocol", False)


def signature(name: str, thing: Any) -> str:
    """Return the signature of a class, function or method; long ones take a line a parameter."""
    prefix = "class " if isinstance(thing, type) else ""
    if isinstance(thing, type) and not has_constructor(thing):
        return prefix + name
    found = inspect.signature(thing)
    parameters: list[str] = []
    only_by_name = False  # whether a star separates the parameters from those before them
    for each in found.parameters.values():
        if each.name == "self":
            continue
        if each.kind is each.KEYWORD_ONLY and not only_by_name:
            parameters.append("*")
        only_by_name = each.kind in (each.KEYWORD_ONLY, each.VAR_POSITIONAL)
        is_typed = each.annotation is not each.empty
        text = str(each.replace(annotation=each.empty, default=each.empty))
        text += f": {type_name(each.annotation)}" if is_typed else ""
        if each.default is not each.empty:
            default = getattr(each.default, "__name__", repr(each.default))
            default = "..." if default.startswith("<") else default
            text += f" = {default}" if is_typed else f"={default}"
        parameters.append(text)
    returned = found.return_annotation
    result = "" if returned is found.empty or prefix else f" -> {type_name(returned)}"
    line = f"{prefix}{name}({', '.join(parameters)}){result}"
    if len(line) <= 88:
        return line
    return "\n".join([f"{prefix}{name}(", *(f"    {each}," for each in parameters), f"){result}"])


# --- pages ---


def titles(module: ModuleType) -> tuple[str, str, str, str]:
    """Split a module's docstring: title, lead, body, and the paragraph that names the next one."""
    first, _, body = inspect.cleandoc(module.__doc__ or "").partition("\n")
    title, _, lead = first.rstrip(".").partition(": ")
    body, _, following = body.partition("\n\nNext: ")
    return title, lead and f"{lead[0].upper()}{lead[1:]}.", body.strip(), following


def source(page: Page, module: ModuleType) -> str:
    """Return a link to the file of a module."""
    path = Path(module.__file__ or "").relative_to(ROOT).as_posix()
    up = "../" * (len(Path(page.path).parts) + 1)
    return f"[{path}]({up}{path})"


def render(page: Page) -> str:
    """Return the Markdown of a page."""
    title, lead, body, following = titles(page.modules[0])
    to = partial(link, page.path)
    here = page.modules[0].__name__
    blocks = [f"# {in_line(title, partial(to, here))}", in_line(lead, partial(to, here))]
    blocks.append(f"File: {source(page, page.modules[0])}")
    if imports := import_lines(page):
        blocks.append(f"```python\n{imports}\n```")
    blocks.append(description(body, partial(to, here)))
    introduced = {here}
    for path, thing in page.names.items():
        module = import_module(thing.__module__)
        if module.__name__ not in introduced:
            introduced.add(module.__name__)
            part, lead, body, _ = titles(module)
            name = module.__name__
            blocks += [f"## {in_line(part, partial(to, name))}", in_line(lead, partial(to, name))]
            blocks += [f"File: {source(page, module)}", description(body, partial(to, name))]
        blocks += entry(path, thing, "##" if len(introduced) == 1 else "###", to)
    if following:
        blocks.append(in_line(f"Next: {following}", partial(to, here)))
    return "\n\n".join(block for block in blocks if block) + "\n"


def module_of(path: str) -> str:
    """Return the path of the module from which a name is imported."""
    return path.rpartition(".")[0]


def import_lines(page: Page) -> str:
    """Return the statements that import the names of a page."""
    lines = []
    for module, paths in groupby(sorted(page.names, key=module_of), key=module_of):
        names = [path.rpartition(".")[2] for path in paths]
        line = f"from {module} import {', '.join(names)}"
        if len(line) > 100:
            line = "\n".join([f"from {module} import (", *(f"    {each}," for each in names), ")"])
        lines.append(line)
    return "\n".join(lines)


def entry(path: str, thing: Any, level: str, to: Callable[..., str]) -> Iterator[str]:
    """Yield the heading, signature and description of a name, and those of its members."""
    name = path.rpartition(".")[2]
    yield f"{level} `{name}`"
    yield f"```python\n{signature(name, thing)}\n```"
    yield description(inspect.getdoc(thing) or "", partial(to, path))
    for member, text, is_called in members(thing) if isinstance(thing, type) else ():
        yield f"{level}# `{name}.{member}`"
        if is_called:
            yield f"```python\n{signature(member, getattr(thing, member))}\n```"
        yield description(text, partial(to, f"{path}.{member}"))


def render_index() -> str:
    """Return the Markdown of the overview: a list of all names, by page."""
    blocks = ["# Reference", INTRODUCTION.strip()]
    for folder, described in FOLDERS.items():
        blocks += [f"## {described['heading']}", described["text"]]
        for page in folders()[folder]:
            title, lead, to = title_of(page, "index.md")
            items = [f"**[{title}]({page.path})**. {lead}\n"]
            for path, thing in page.names.items():
                name = to(path, path, f"`{path.rpartition('.')[2]}`")
                summary = (inspect.getdoc(thing) or "").partition("\n")[0]
                items.append(f"- {name}: {in_line(summary, partial(to, path))}")
            blocks.append("\n".join(items))
    return "\n\n".join(filter(None, blocks)) + "\n"


def title_of(page: Page, seen_from: str) -> tuple[str, str, Callable[[str, str, str], str]]:
    """Return the title and the lead of a page for another one, and what makes its links."""
    title, lead, _, _ = titles(page.modules[0])
    to = partial(link, seen_from)
    in_page = partial(to, page.modules[0].__name__)
    return in_line(title, in_page), in_line(lead, in_page), to


def render_folder(folder: str) -> str:
    """Return the Markdown of the first page of a folder: a list of its pages."""
    items = []
    for page in folders()[folder]:
        title, lead, to = title_of(page, f"{folder}/index.md")
        name = page.modules[0].__name__
        items.append(f"- {to(name, name, title)}: {lead}")
    blocks = [f"# {FOLDERS[folder]['heading']}", FOLDERS[folder]["text"], "\n".join(items)]
    return "\n\n".join(filter(None, blocks)) + "\n"


def contents() -> dict[str, str]:
    """Return the text of each file of the reference, by its path within the folder."""
    files = {"index.md": render_index()}
    files |= {f"{folder}/index.md": render_folder(folder) for folder in FOLDERS}
    files |= {page.path: render(page) for page in pages()}
    return files


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
