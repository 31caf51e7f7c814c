"""Commands: write the empty package, check a unit, list the units, and train a translator."""

import importlib
import importlib.util
import multiprocessing
import os
import shutil
import signal
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from multiprocessing.connection import Connection
from pathlib import Path
from textwrap import wrap
from types import SimpleNamespace
from typing import Any
from xml.etree.ElementTree import Element, SubElement, tostring

import torch

from common.errors import UserError
from common.files import write_atomically
from coursework.grader import Finding, check, place
from coursework.units import UNITS

TEMPLATE = Path(__file__).parent / "template"
LIMIT = 60.0
"""Seconds after which the check of a unit is stopped; the slowest one takes about one."""
PROCESSES: Any = multiprocessing.get_context("fork" if sys.platform == "linux" else "spawn")
"""How processes start: a fork has imported all modules already, but is not safe elsewhere."""


def check_units(unit: str, folder: Path, *, junit_file: Path | None = None) -> bool:
    """Check a unit, or all; return whether what is checked is right."""
    names = list(UNITS) if unit == "all" else [resolve(unit, list(UNITS))]
    results = {name: findings_of(name, folder) for name in names}
    if junit_file:
        write_atomically(junit_file, junit(results))
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


def resolve(text: str, names: Sequence[str], kind: str = "unit") -> str:
    """Return the name of a unit or of another kind of thing, given its name or number.

    Raises:
        UserError: If there is none.
    """
    if text.isdecimal() and 1 <= int(text) <= len(names):
        return names[int(text) - 1]
    name = text.replace("-", "_")
    if name not in names:
        found = get_close_matches(name, names, n=1)
        hint = f": use 1 to {len(names)}, or {', '.join(names)}"
        hint = f" (did you mean {found[0]}?)" if found else hint
        raise UserError(f"no {kind} is called {text!r}{hint}")
    return name


def museum(name: str | None) -> bool:
    """List the exhibits by theme, numbered, or show one."""
    from coursework.museum.exhibit import exhibits, show

    found = exhibits()
    if name is not None:
        print("\n".join(show(found[resolve(name, list(found), "exhibit")])))
        return True
    theme = ""
    for number, each in enumerate(found.values(), 1):
        if each.theme != theme:
            theme = each.theme
            print(theme.capitalize())
        print(f"  {number:3}. {each.name} ({each.found_by})\n       {each.title}")
    return True


def load(name: str, folder: Path) -> Any:
    """Import the reader's file of a unit.

    Raises:
        UserError: If there is no such file, or another module has the name of the package.
    """
    check_file(name, folder)
    return importlib.import_module(f"{folder.name}.{name}")


def check_file(name: str, folder: Path) -> None:
    """Raise unless the reader's file of a unit exists and can be imported under its name.

    Raises:
        UserError: If there is no such file, or another module has the name of the package.
    """
    if not (folder / f"{name}.py").is_file():
        raise UserError(f"there is no file {folder / name}.py: `course.py new {folder}` writes it")
    parent = str(folder.absolute().parent)
    if parent not in sys.path:
        sys.path.insert(0, parent)
    found = importlib.util.find_spec(folder.name)
    places = map(Path, (found and found.submodule_search_locations) or ())
    if folder.resolve() not in (place.resolve() for place in places):
        raise UserError(f"another module is called {folder.name!r}; rename the folder")


def findings_of(name: str, folder: Path) -> list[Finding] | str:
    """Check a unit in a process of its own, which the reader's code may end, or never end.

    Returns:
        What does not hold, or why the check was not finished: the error with which the import
        fails, the exit status of the process, or where it was after :data:`LIMIT` seconds.

    Raises:
        KeyboardInterrupt: If the check is interrupted; it names the law and the line.
    """
    check_file(name, folder)
    receiver, sender = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(target=_send_findings, args=(name, folder, sender), daemon=True)

    def receive() -> Any:
        with suppress(EOFError):
            return receiver.recv() if receiver.poll(1) else None

    with warnings.catch_warnings():  # that other threads end in the child, as Python 3.12 says
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    sender.close()
    try:
        if receiver.poll(LIMIT):
            found = receiver.recv()
        else:
            os.kill(process.pid or 0, signal.SIGINT)
            stopped = receive() or f"{name}.py is stopped"
            return f"{stopped}: it takes more than {LIMIT:g} seconds"
    except EOFError:
        process.join()
        return f"{name}.py ends its process, with the exit status {process.exitcode}"
    except KeyboardInterrupt:
        stopped = receive() or ""
        raise KeyboardInterrupt(str(stopped).partition(" is stopped ")[2]) from None
    finally:
        process.kill()
        process.join()
        receiver.close()
    laws = {law.title: law for law in UNITS[name].laws}
    return found if isinstance(found, str) else [Finding(laws[of], *rest) for of, *rest in found]


def _end_with_parent() -> None:
    """End this process as soon as its parent has ended; the work of a thread."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _send_findings(name: str, folder: Path, sender: Connection) -> None:
    """Check a unit, and send what does not hold, or a text that says why nothing is known."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)  # threads do not survive a fork
    found: Any
    try:
        try:
            module = load(name, folder)
        except (Exception, SystemExit) as error:  # whatever the reader's code raises
            found = f"{name}.py cannot be imported: {type(error).__name__}{place(error)}: {error}"
        else:
            found = [(law.title, *rest) for law, *rest in check(UNITS[name], module)]
    except KeyboardInterrupt as stop:
        found = (
            f"{name}.py is stopped {stop}" if stop.args else f"{name}.py is stopped{place(stop)}"
        )
    sys.stdout.flush()  # what it printed, before this process is killed
    sender.send(found)


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
                lines.append(f"See python examples/course.py museum {cause.exhibit}")
        if others:
            lines.append(f"Also violated: {'; '.join(each.law.title for each in others)}.")
        for line in lines:
            print("\n".join(wrap(line, 96, initial_indent="  ", subsequent_indent="  ")))
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
            result = findings.removeprefix(f"{name}.py ").partition(":")[0]
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


def train(
    folder: Path, corpus: Mapping[str, Sequence[tuple[str, str]]], *, updates: int, page: Path
) -> bool:
    """Train a translator of the reader's modules, and write the page with its attention."""
    from coursework import training

    for name in UNITS:
        if findings := findings_of(name, folder):
            return show(name, findings, folder)
    mine = SimpleNamespace(**{name: load(name, folder) for name in UNITS})
    result = training.train(mine, corpus["train"], corpus["test"][:200], updates=updates)
    result.page.save(page)
    print(f"{page} shows its attention; open it in a browser")
    return True
