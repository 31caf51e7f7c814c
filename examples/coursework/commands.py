"""Commands: write the empty package, check a unit, list the units, and train a translator."""

import argparse
import importlib
import importlib.util
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

from common.errors import UserError
from common.files import write_atomically
from common.options import nearest
from common.terminal import wrap
from coursework.grader import Finding, check
from coursework.units import UNITS

TEMPLATE = Path(__file__).parent / "template"


def run(options: argparse.Namespace) -> bool:
    """Run a command; return whether what it checks is right."""
    folder: Path = options.package
    if options.command == "new":
        return new(folder)
    if options.command == "status":
        return status(folder)
    names = list(UNITS) if options.unit == "all" else [resolve(options.unit)]
    results = {name: findings_of(name, folder) for name in names}
    if options.junit:
        write_atomically(options.junit, junit(results))
    shown = [show(name, findings, folder) for name, findings in results.items()]
    return all(shown)


def new(folder: Path) -> bool:
    """Write the empty package.

    Raises:
        UserError: If it cannot be imported under this name, or exists.
    """
    if not folder.name.isidentifier() or importlib.util.find_spec(folder.name):
        raise UserError(
            f"the name of the package must be a word of letters, digits and _ that no other module "
            f"has, got {folder.name!r}"
        )
    if folder.exists():
        raise UserError(f"{folder} exists already; nothing was changed")
    shutil.copytree(TEMPLATE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    print(f"{folder} is written. Begin with {folder / 'tokens.py'}, and check it:")
    option = "" if folder == Path("my_transformer") else f" --package {folder}"
    print(f"  python examples/course.py check tokens{option}")
    return True


def resolve(text: str) -> str:
    """Return the name of a unit, given its name or number.

    Raises:
        UserError: If there is none.
    """
    names = list(UNITS)
    if text.isdecimal() and 1 <= int(text) <= len(names):
        return names[int(text) - 1]
    if text not in names:
        hint = nearest(text, names) or f": use 1 to {len(names)}, or {', '.join(names)}"
        raise UserError(f"no unit is called {text!r}{hint}")
    return text


def load(name: str, folder: Path) -> Any:
    """Import the reader's file of a unit.

    Raises:
        UserError: If there is no such file, or another module has the name of the package.
    """
    if not (folder / f"{name}.py").is_file():
        raise UserError(f"there is no file {folder / name}.py: `course.py new {folder}` writes it")
    parent = str(folder.absolute().parent)
    if parent not in sys.path:
        sys.path.insert(0, parent)
    module = importlib.import_module(f"{folder.name}.{name}")
    if Path(module.__file__ or "").parent.resolve() != folder.resolve():
        raise UserError(f"another module is called {folder.name!r}; rename the folder")
    return module


def findings_of(name: str, folder: Path) -> list[Finding] | str:
    """Check a unit; return what does not hold, or the error with which the import fails."""
    try:
        return list(check(UNITS[name], load(name, folder)))
    except (ImportError, SyntaxError, NameError) as error:
        return f"{name}.py cannot be imported: {type(error).__name__}: {error}"


def show(name: str, findings: list[Finding] | str, folder: Path) -> bool:
    """Print which laws of a unit do not hold, where, by how much, and why."""
    unit = UNITS[name]
    if isinstance(findings, str):
        print(findings)
        return False
    print(f"{name}: {len(unit.laws) - len(findings)} of {len(unit.laws)} laws hold")
    for of in dict.fromkeys(each.law.of for each in findings):
        first, *others = (each for each in findings if each.law.of == of)
        print(f"\n{of}: {first.law.title}")
        lines = [first.difference]
        if cause := next((each.cause for each in (first, *others) if each.cause), None):
            lines.append(f"A known mistake gives the same: {cause.name}.")
            if cause.exhibit:
                lines.append(f"See python -m transformer_blocks.museum {cause.exhibit}")
        if others:
            lines.append(f"Also violated: {'; '.join(each.law.title for each in others)}.")
        for line in lines:
            print("\n".join(wrap(f"  {line}", 96)))
    if findings:
        failing = [each for each in unit.needs if findings_of(each, folder)]
        needed = f"It needs units that do not pass yet: {', '.join(failing)}."
        print(f"\n{name}: {needed}\n" if failing else "")
    return not findings


def status(folder: Path) -> bool:
    """List the units, and whether the reader's answers pass.

    Raises:
        UserError: If there is no such folder.
    """
    if not folder.is_dir():
        raise UserError(f"there is no folder {folder}: `course.py new {folder}` writes it")
    for number, (name, unit) in enumerate(UNITS.items(), 1):
        findings, result = findings_of(name, folder), "passed"
        if isinstance(findings, str):
            result = "cannot be imported"
        elif findings:
            is_empty = all(each.is_empty for each in findings)
            result = "empty" if is_empty else f"{len(findings)} of {len(unit.laws)} laws fail"
        print(f"{number:2}  {name:13} {unit.title:46} {result}")
    return True


def junit(results: dict[str, list[Finding] | str]) -> bytes:
    """Report each law of these units as a test, in the XML of JUnit."""
    suites = Element("testsuites")
    for name, findings in results.items():
        laws = UNITS[name].laws
        suite = SubElement(suites, "testsuite", name=name, tests=str(len(laws)))
        failed = {} if isinstance(findings, str) else {each.law.title: each for each in findings}
        for law in laws:
            test = SubElement(suite, "testcase", classname=f"{name}.{law.of}", name=law.title)
            if isinstance(findings, str):
                SubElement(test, "error", message=findings)
            elif law.title in failed:
                cause = failed[law.title].cause
                known = f"; a known mistake gives the same: {cause.name}" if cause else ""
                SubElement(test, "failure", message=failed[law.title].difference + known)
        suite.set("failures", str(len(suite.findall("testcase/failure"))))
        suite.set("errors", str(len(suite.findall("testcase/error"))))
    return tostring(suites, encoding="utf-8", xml_declaration=True)


def train(options: argparse.Namespace, corpus: Mapping[str, Sequence[tuple[str, str]]]) -> bool:
    """Train a translator of the reader's modules, and write the page with its attention."""
    from coursework import training

    folder: Path = options.package
    for name in UNITS:
        if findings := findings_of(name, folder):
            return show(name, findings, folder)
    mine = SimpleNamespace(**{name: load(name, folder) for name in UNITS})
    result = training.train(mine, corpus["train"], corpus["test"][:200], updates=options.updates)
    result.page.save(options.page)
    print(f"{options.page} shows its attention; open it in a browser")
    return True
