"""Commands: list units and cases, begin and judge one, examine any code, and train."""

import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from textwrap import wrap
from types import SimpleNamespace
from typing import Any

from common.errors import UserError
from coursework.grader import Finding
from coursework.isolation import in_process
from coursework.progress import POINTS, Progress
from coursework.units import UNITS


def resolve(text: str, names: Sequence[str], kind: str) -> str:
    """Return the name of a unit, a case or an exhibit, given its name or number.

    Raises:
        UserError: If there is none.
    """
    if text.isdecimal() and 1 <= int(text) <= len(names):
        return names[int(text) - 1]
    name = text.replace("-", "_")
    if name not in names:
        known = get_close_matches(name, names, n=1) or names
        raise UserError(f"the {kind} must be 1 to {len(names)} or {', '.join(known)}, got {text!r}")
    return name


def say(text: str, indent: str = "") -> None:
    """Print a paragraph, indented by these spaces; or an item of a list, which begins with some."""
    hanging = "      " if text.startswith(" ") else indent
    print(*wrap(text, 80, initial_indent=indent, subsequent_indent=hanging), sep="\n")


def status(folder: Path) -> bool:
    """Say how many units and cases are solved, with how many points."""
    for kind in ("unit", "case"):
        count, *following = Progress(folder).summary(find_tasks(kind))
        print(f"{kind}s: {count}", *following, sep="\n")
    return True


def find_tasks(kind: str) -> Mapping[str, Any]:
    """Return the units or the cases by their names."""
    if kind == "unit":
        return UNITS
    from coursework.debug import cases

    return cases()


def work(kind: str, name: str | None, folder: Path, *, hint: bool = False) -> bool:
    """List units or cases, or give a hint, or begin or judge one or all.

    Returns:
        Whether what is judged is right; a unit or case that begins is not.
    """
    tasks = find_tasks(kind)
    if name is None:
        for line in Progress(folder).listed(tasks):
            say(line)
        return True
    names = list(tasks) if name == "all" else [resolve(name, list(tasks), kind)]
    folder.mkdir(parents=True, exist_ok=True)
    results = [(give_hint if hint else advance)(kind, tasks[each], folder) for each in names]
    return all(results)


def give_hint(kind: str, task: Any, folder: Path) -> bool:
    """Give the next hint; the last one again if there is no other."""
    progress = Progress(folder)
    taken = min(progress.of(task)["hints"] + 1, len(task.hints))
    if not progress.is_solved(task):  # then it costs nothing
        progress.add(task, {"hints": taken})
    say(f"Hint {taken} of {len(task.hints)}: {task.hints[taken - 1]}")
    return True


def advance(kind: str, task: Any, folder: Path) -> bool:
    """Begin a unit or a case, or judge it; return whether it is solved."""
    progress, path = Progress(folder), task.path(folder)
    if not path.exists():
        for line in task.begin(folder):
            say(line)
        return False
    found: Any = in_process(path.name, judge, kind, task.name, folder)
    if isinstance(found, str):
        print(found)
        return False
    wrong = {each.of for each in found}
    progress.add(task, {part: int(part not in wrong) for part in task.parts})
    for part in task.parts:
        print(f"{part}: {'wrong' if part in wrong else 'right'}")
        tell([each for each in found if each.of == part])
    needed = [name for name in task.needs if not progress.is_solved(UNITS[name])]
    if found and needed:
        say(f"{task.name} needs units that are not solved yet: {', '.join(needed)}.")
    if not found:
        print(f"Solved: {progress.points(task)} of {POINTS} points.", *task.story, sep="\n")
        print(*progress.summary(find_tasks(kind)), sep="\n")
    return not found


def tell(findings: Sequence[Finding]) -> None:
    """Print what does not hold: the first in full, with a known mistake that gives the same."""
    for first in findings[:1]:
        say(f"{first.title}: {first.difference}".removesuffix(": "), "  ")
        if cause := next((each.cause for each in findings if each.cause), None):
            say(f"A known mistake gives the same: {cause.name}.", "  ")
            if cause.exhibit:
                say(f"See python examples/course.py museum {cause.exhibit}", "  ")
    if others := [each.title for each in findings[1:]]:
        more = [f"and {len(others) - 3} more"] * (len(others) > 3)
        say(f"Also violated: {'; '.join([*others[:3], *more])}.", "  ")


def judge(kind: str, name: str, folder: Path) -> list[Finding]:
    """Judge a unit or a case."""
    found: list[Finding] = find_tasks(kind)[name].judge(folder)
    return found


def museum(name: str | None) -> bool:
    """List the exhibits by theme, numbered, or show one."""
    from coursework.museum.exhibit import exhibits, show

    found, theme = exhibits(), ""
    if name is not None:
        print("\n".join(show(found[resolve(name, list(found), "exhibit")])))
        return True
    for number, each in enumerate(found.values(), 1):
        if each.theme != theme:
            theme = each.theme
            print(theme.capitalize())
        print(f"  {number:3}. {each.name} ({each.found_by})\n       {each.title}")
    return True


def examine_file(target: str, *, causal: bool = False) -> bool:
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
    say(f"{path} is executed, in a process of its own; nothing of it leaves this machine.")
    sys.stdout.flush()
    found = in_process(path.name, examine, path, name, causal)
    lines = [found] if isinstance(found, str) else found
    for line in lines:
        say(line)
    return lines is found and not any("violated:" in x or "VIOLATED" in x for x in lines)


def train(
    folder: Path, corpus: Mapping[str, Sequence[tuple[str, str]]], *, updates: int, page: Path
) -> bool:
    """Train a translator of the reader's modules, and write the page with its attention."""
    from coursework import training

    if not work("unit", "all", folder):
        return False
    mine = SimpleNamespace(**{name: unit.load(folder) for name, unit in UNITS.items()})
    _, shown = training.train(mine, corpus["train"], corpus["test"][:200], updates=updates)
    shown.save(page)
    print(f"{page} shows its attention; open it in a browser")
    return True
