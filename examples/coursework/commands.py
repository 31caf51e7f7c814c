"""Commands: write the empty package, check a unit, list the units, debug, examine, and train."""

import importlib
import importlib.util
import shutil
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from textwrap import wrap
from types import SimpleNamespace
from typing import Any

from common.errors import UserError
from common.files import write_atomically
from coursework.grader import Finding, check
from coursework.isolation import in_process, load, readers_code
from coursework.units import UNITS

TEMPLATE = Path(__file__).parent / "template"


def check_units(unit: str, folder: Path) -> bool:
    """Check a unit, or all; return whether what is checked is right."""
    names = list(UNITS) if unit == "all" else [resolve(unit, list(UNITS))]
    shown = [show(name, findings_of(name, folder), folder) for name in names]
    return all(shown)


def new(folder: Path) -> bool:
    """Write the empty package.

    Raises:
        UserError: If it cannot be imported under this name, or exists.
    """
    check_name(folder)
    if folder.exists():
        raise UserError(f"{folder} exists already; nothing was changed")
    shutil.copytree(TEMPLATE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    print(f"{folder} is written. Begin with {folder / 'tokens.py'}, and check it:")
    option = "" if folder == Path("my_transformer") else f" --package {folder}"
    print(f"  python examples/course.py check tokens{option}")
    return True


def check_name(folder: Path) -> None:
    """Raise if another module has the name of a package.

    Raises:
        UserError: If it has, or if the name cannot be that of a module.
    """
    name = folder.absolute().name
    found = importlib.util.find_spec(name) if name.isidentifier() else None
    is_other = found and Path(found.origin or "").parent.resolve() != folder.resolve()
    if is_other or not name.isidentifier():
        raise UserError(
            f"the name of the package must be a word of letters, digits and _ that no other module "
            f"has, got {name!r}"
        )


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
    from coursework.debug import COST, POINTS, Progress, cases, figures, grade, listed, template

    progress = Progress(folder)
    if number is None:
        for line in listed(progress):
            say(line)
        return True
    case = cases()[int(resolve(number, [str(each.number) for each in cases()], "case")) - 1]
    known, path = progress.of(case.number), folder / f"case_{case.number:02}.py"
    if not path.exists():
        shown = "\n".join(figures(case))
        folder.mkdir(exist_ok=True)
        write_atomically(path, template(case).encode())
        say(case.symptom)
        print(shown)
        say(
            f"\nThe model is in {path}. Write its check() and mend it, then run this again; "
            f"it executes the file. A hint (--hint) costs {COST} of {POINTS} points."
        )
        return True
    if hint:
        say(progress.hint(case))
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
    if progress.is_solved(case.number):
        points = f"{progress.points(case.number)} of {POINTS} points"
        print(f"Solved: {points}. It was: {case.exhibit.title}.\n{case.exhibit.source}")
        print(f"The story: python examples/course.py museum {case.exhibit.name}")
    return progress.is_solved(case.number)


def say(text: str, indent: str = "") -> None:
    """Print a paragraph, indented by these spaces or by its own; its further lines by more."""
    lines = text.strip("\n")
    indent = indent or " " * (len(lines) - len(lines.lstrip()))
    wrapped = wrap(lines.strip(), 96, initial_indent=indent, subsequent_indent=2 * indent)
    print("\n" * text.startswith("\n") + "\n".join(wrapped))


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
    return lines is found and not any("violated:" in x or "VIOLATED" in x for x in lines)


def load_unit(name: str, folder: Path) -> Any:
    """Import the reader's file of a unit."""
    package = folder.absolute().name
    if package not in sys.modules:
        load(folder / "__init__.py", package)
    with readers_code(f"{name}.py cannot be imported"):
        return importlib.import_module(f"{package}.{name}")


def findings_of(name: str, folder: Path) -> list[Finding] | str:
    """Check a unit in a process of its own.

    Returns:
        What does not hold, or why the check was not finished.

    Raises:
        UserError: If there is no such file, or another module has the name of the package.
    """
    if not (folder / f"{name}.py").is_file():
        raise UserError(f"there is no file {folder / name}.py: `course.py new {folder}` writes it")
    check_name(folder)
    found: list[Finding] | str = in_process(f"{name}.py", check_unit, name, folder)
    return found


def check_unit(name: str, folder: Path) -> list[Finding]:
    """Check a unit; return what does not hold."""
    return list(check(UNITS[name], load_unit(name, folder)))


def show(name: str, findings: list[Finding] | str, folder: Path) -> bool:
    """Print which laws of a unit do not hold, where, by how much, and why."""
    unit = UNITS[name]
    if isinstance(findings, str):
        print(findings)
        return False
    print(f"{name}: {len(unit.laws) - len(findings)} of {len(unit.laws)} laws hold")
    for of in dict.fromkeys(each.of for each in findings):
        first, *others = (each for each in findings if each.of == of)
        print(f"\n{of}: {first.title}")
        lines = [first.difference]
        if cause := next((each.cause for each in (first, *others) if each.cause), None):
            lines.append(f"A known mistake gives the same: {cause.name}.")
            if cause.exhibit:
                lines.append(f"See python examples/course.py museum {cause.exhibit}")
        if others:
            lines.append(f"Also violated: {'; '.join(each.title for each in others)}.")
        for line in lines:
            print("\n".join(wrap(line, 96, initial_indent="  ", subsequent_indent="  ")))
    failing = [each for each in unit.needs if findings and findings_of(each, folder)]
    if failing:
        print(f"\n{name}: It needs units that do not pass yet: {', '.join(failing)}.")
    return not findings


def status(folder: Path, cases: Path) -> bool:
    """Count the solved cases; list the units, and whether the reader's answers pass.

    Raises:
        UserError: If there is neither a package nor a case.
    """
    from coursework.debug import Progress

    progress = Progress(cases)
    if progress.cases:
        print(progress.summary())
    elif not folder.is_dir():
        raise UserError(f"there is no folder {folder}: `course.py new {folder}` writes it")
    for number, (name, unit) in enumerate(UNITS.items() if folder.is_dir() else (), 1):
        findings, result = findings_of(name, folder), "passed"
        if isinstance(findings, str):
            result = findings.removeprefix(f"{name}.py ").partition(":")[0]
        elif findings:
            is_empty = all(each.is_empty for each in findings)
            result = "empty" if is_empty else f"{len(findings)} of {len(unit.laws)} laws fail"
        print(f"{number:2}  {name:13} {unit.title:46} {result}")
    return True


def train(
    folder: Path, corpus: Mapping[str, Sequence[tuple[str, str]]], *, updates: int, page: Path
) -> bool:
    """Train a translator of the reader's modules, and write the page with its attention."""
    from coursework import training

    for name in UNITS:
        if findings := findings_of(name, folder):
            return show(name, findings, folder)
    mine = SimpleNamespace(**{name: load_unit(name, folder) for name in UNITS})
    _, shown = training.train(mine, corpus["train"], corpus["test"][:200], updates=updates)
    shown.save(page)
    print(f"{page} shows its attention; open it in a browser")
    return True
