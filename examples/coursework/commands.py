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
from collections.abc import Callable, Mapping, Sequence
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


def debug(number: str | None, folder: Path, *, hint: bool = False) -> bool:
    """List the cases, begin one, give a hint, or judge what the learner has written."""
    from coursework.debug import COST, POINTS, Progress, cases, figures, grade, template

    progress = Progress(folder)
    if number is None:
        list_cases(progress)
        return True
    case = cases()[int(resolve(number, [str(each.number) for each in cases()], "case")) - 1]
    known, path = progress.of(case.number), folder / f"case_{case.number:02}.py"
    if not path.exists():
        folder.mkdir(exist_ok=True)
        write_atomically(path, template(case).encode())
        say(case.symptom)
        print("\n".join(figures(case)))
        say(
            f"\nThe model is in {path}. Write its check() and mend it, then run this again; "
            f"it executes the file. A hint (--hint) costs {COST} of {POINTS} points."
        )
        return True
    if hint:
        taken = min(known["hints"] + 1, 3)
        if not all_solved(known):  # afterwards it costs nothing
            known["hints"] = taken
            progress.save()
        say(f"Hint {taken}: {case.hints[taken - 1]}")
        return True
    found = in_process(path.name, grade, case.number, path)
    if isinstance(found, str):
        print(found)
        return False
    for name, problems in zip(("check", "model"), found, strict=True):
        known[name] = int(not problems)
        print(f"{name}: {'wrong' if problems else 'right'}")
        for each in problems:
            say(each, "  ")
    progress.save()
    if all_solved(known):
        points = f"{progress.points(case.number)} of {POINTS} points"
        print(f"Solved: {points}. It was: {case.exhibit.title}.\n{case.exhibit.source}")
        print(f"The story: python examples/course.py museum {case.exhibit.name}")
    return all_solved(known)


def list_cases(progress: Any) -> None:
    """List the cases by level: the symptom, or the points of a solved one."""
    from coursework.debug import LEVELS, cases

    level = 0
    for case in cases():
        if case.level != level:
            level = case.level
            print(f"Level {level}: {LEVELS[level - 1]}")
        is_solved = all_solved(progress.of(case.number))
        state = f"solved, {progress.points(case.number)} points" if is_solved else case.symptom
        say(f"{case.number}. {state}", "  ")
    print(progress.summary())


def say(text: str, indent: str = "") -> None:
    """Print a paragraph; an indented one has its further lines indented more."""
    lines = wrap(text.strip(), 96, initial_indent=indent, subsequent_indent=2 * indent)
    print("\n" * text.startswith("\n") + "\n".join(lines))


def all_solved(known: Mapping[str, int]) -> bool:
    """Return whether the check and the model of a case are right."""
    return bool(known["check"] and known["model"])


def examine_file(target: str) -> bool:
    """Examine a class or a function of any file; return whether all laws hold.

    Raises:
        UserError: If there is no such file, or no name after its colon.
    """
    from coursework.examine import examine

    file, _, name = target.rpartition(":")
    path = Path(file)
    if not path.is_file() or not name.isidentifier():
        raise UserError(
            f"the target must be FILE:CLASS, such as model.py:Attention, got {target!r}"
        )
    print(
        f"{path} is executed, in a process of its own; nothing of it leaves this machine.",
        flush=True,
    )
    found = in_process(path.name, examine, path, name)
    lines = [found] if isinstance(found, str) else found
    print("\n".join(lines))
    marks = "violated:", "VIOLATED", "cannot be examined"
    return lines is found and not any(mark in line for line in lines for mark in marks)


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
    """Check a unit in a process of its own.

    Returns:
        What does not hold, or why the check was not finished.
    """
    check_file(name, folder)
    found = in_process(f"{name}.py", check_unit, name, folder)
    laws = {law.title: law for law in UNITS[name].laws}
    return found if isinstance(found, str) else [Finding(laws[of], *rest) for of, *rest in found]


def check_unit(name: str, folder: Path) -> list[tuple[Any, ...]] | str:
    """Check a unit; return what does not hold, with the titles of the laws, or why it fails."""
    try:
        module = load(name, folder)
    except (Exception, SystemExit) as error:  # whatever the reader's code raises
        return f"{name}.py cannot be imported: {type(error).__name__}{place(error)}: {error}"
    return [(law.title, *rest) for law, *rest in check(UNITS[name], module)]


def in_process(file: str, work: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in a process of its own, which the reader's code may end, or never end.

    Args:
        file: The name of the reader's file.
        work: The function; its result is sent back.
        arguments: Its arguments.

    Returns:
        Its result, or why there is none: the exit status of the process, or where it was after
        :data:`LIMIT` seconds.

    Raises:
        KeyboardInterrupt: If it is interrupted; it names the law and the line.
    """
    receiver, sender = PROCESSES.Pipe(duplex=False)
    given = file, work, arguments, sender
    process = PROCESSES.Process(target=_send_result, args=given, daemon=True)

    def receive() -> Any:
        with suppress(EOFError):
            return receiver.recv() if receiver.poll(1) else None

    with warnings.catch_warnings():  # that other threads end in the child, as Python 3.12 says
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    sender.close()
    try:
        if receiver.poll(LIMIT):
            return receiver.recv()
        os.kill(process.pid or 0, signal.SIGINT)
        return f"{receive() or f'{file} is stopped'}: it takes more than {LIMIT:g} seconds"
    except EOFError:
        process.join()
        return f"{file} ends its process, with the exit status {process.exitcode}"
    except KeyboardInterrupt:
        stopped = receive() or ""
        raise KeyboardInterrupt(str(stopped).partition(" is stopped ")[2]) from None
    finally:
        process.kill()
        process.join()
        receiver.close()


def _end_with_parent() -> None:
    """End this process as soon as its parent has ended; the work of a thread."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _send_result(
    file: str, work: Callable[..., Any], arguments: tuple[Any, ...], sender: Connection
) -> None:
    """Call a function, and send its result, or where it is interrupted."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    torch.set_num_threads(1)  # threads do not survive a fork
    try:
        found = work(*arguments)
    except KeyboardInterrupt as stop:
        found = f"{file} is stopped {stop.args[0] if stop.args else place(stop)[1:]}"
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


def status(folder: Path, cases: Path) -> bool:
    """Count the solved cases; list the units, and whether the reader's answers pass.

    Raises:
        UserError: If there is no such folder.
    """
    from coursework.debug import Progress

    progress = Progress(cases)
    if progress.path.is_file():
        print(progress.summary())
    if not folder.is_dir():
        if progress.path.is_file():
            return True
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
