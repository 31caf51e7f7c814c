"""The public API in one file: every name that users import, with its signature.

``make api`` writes ``docs/api.txt``. It refuses while a name whose line changed is not in the first
section of ``CHANGELOG.md``; a test compares the file with the code. Every change of the API is
therefore seen in a review, and described for users.
"""

import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

ROOT = Path(__file__).parents[2]
FILE, CHANGELOG = ROOT / "docs/api.txt", ROOT / "CHANGELOG.md"
PACKAGE = "transformer_blocks"
SUB_PACKAGES = "generation", "inspection", "interop", "inference", "explorer", "museum"


def api_lines() -> list[str]:
    """Return a line for each public name: a class, its fields and methods, a function or value."""
    lines: dict[str, None] = {}
    package = importlib.import_module(PACKAGE)
    for name, thing in vars(package).items():
        if not name.startswith("_") and not isinstance(thing, ModuleType):
            lines.update(dict.fromkeys(_describe(f"{PACKAGE}.{name}", thing)))
    for part in SUB_PACKAGES:
        module = importlib.import_module(f"{PACKAGE}.{part}")
        for name in module.__all__:
            thing = getattr(module, name)
            if getattr(package, name, None) is not thing:
                lines.update(dict.fromkeys(_describe(f"{module.__name__}.{name}", thing)))
    return list(lines)


def _describe(name: str, thing: Any) -> Iterator[str]:
    if not isinstance(thing, type):
        yield name + (_signature(thing) if isinstance(thing, FunctionType) else "")
        return
    bases = ", ".join(base.__qualname__ for base in thing.__bases__ if base is not object)
    yield f"{name}: class" + (f" of {bases}" if bases else "")
    own = [each for each in thing.__mro__ if each.__module__.partition(".")[0] == PACKAGE]
    members = {name: text for owner in reversed(own) for name, text in _members(owner)}
    members.pop("extra_repr", None)  # for repr alone
    yield from (f"{name}.{member}{text}" for member, text in members.items())


def _members(owner: type) -> Iterator[tuple[str, str]]:
    """Yield the public members that a class defines, as its source has them."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(owner))).body
    assert isinstance(tree, ast.ClassDef)
    for node in tree.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            default = "" if node.value is None else f" = {ast.unparse(node.value)}"
            if not node.target.id.startswith("_"):
                yield node.target.id, f": {ast.unparse(node.annotation)}{default}"
        elif isinstance(node, ast.FunctionDef) and (
            node.name in ("__init__", "__call__") or not node.name.startswith("_")
        ):
            yield node.name, _format(node)


def _signature(function: FunctionType) -> str:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body
    assert isinstance(tree, ast.FunctionDef)
    return _format(tree)


def _format(node: ast.FunctionDef) -> str:
    """Format arguments and result; a property is shown as a field."""
    decorators = [ast.unparse(each) for each in node.decorator_list]
    result = "" if node.returns is None else ast.unparse(node.returns)
    if "property" in decorators:
        return f": {result}"
    kind = next((f"@{each} " for each in ("classmethod", "staticmethod") if each in decorators), "")
    deprecated = next((f" {each}" for each in decorators if each.startswith("deprecated")), "")
    return f"{kind}({ast.unparse(node.args)}) -> {result}{deprecated}"


def overdue(lines: list[str], version: str) -> list[str]:
    """Return the deprecated names that this version should not have any more.

    Args:
        lines: Lines of the API.
        version: The present version, such as "0.2.0".

    Returns:
        The names whose message does not end with "removed in X.Y", or that were to be removed in
        this version or before.
    """
    found = []
    for line in lines:
        if " deprecated(" in line:
            limit = re.search(r"removed in (\d+)\.(\d+)'\)$", line)
            present = [int(number) for number in version.split(".")[:2]]
            if limit is None or present >= [int(number) for number in limit.groups()]:
                found.append(_name(line))
    return found


def undescribed(before: list[str], after: list[str], changelog: str) -> list[str]:
    """Return the names whose lines differ and that the newest section of the changelog omits.

    Args:
        before: Lines of the API as it was.
        after: Lines of the API as it is.
        changelog: Text of the changelog; its sections begin with ``## ``, the newest is the first.

    Returns:
        The names. A constructor counts as described if its class is named, and so does any member
        when the whole class is new or removed.
    """
    if changelog.count("\n## ") < 2:
        return []  # the first version changes nothing
    newest = "".join(changelog.split("\n## ")[1:2])
    named = set(re.findall(r"`([\w.]+)`", newest))
    classes = {_name(line) for line in {*before} ^ {*after} if ": class" in line}
    missing = []
    for line in sorted({*before} ^ {*after}):
        name = _name(line)
        if name.rpartition(".")[0] in classes:
            continue
        short = name.rpartition(".")[2]
        owner = name.split(".")[-2]
        called = owner if short == "__init__" else short  # a constructor is called by its class
        if not {called, f"{owner}.{short}", name} & named:
            missing.append(name)
    return list(dict.fromkeys(missing))


def _name(line: str) -> str:
    found = re.match(r"[\w.]+", line)
    assert found is not None
    return found[0].rstrip(".")


def main() -> None:
    """Write the file, if the changelog names every change."""
    after = api_lines()
    before = FILE.read_text("utf-8").splitlines() if FILE.exists() else after
    missing = undescribed(before, after, CHANGELOG.read_text("utf-8"))
    if missing:
        sys.exit(f"error: the first section of {CHANGELOG.name} must name {', '.join(missing)}")
    FILE.write_text("".join(f"{line}\n" for line in after), "utf-8")


if __name__ == "__main__":
    main()
