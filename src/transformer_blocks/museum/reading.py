"""Reading: the story, the code and the reports of an exhibit as text."""

import difflib
import inspect
import re
import textwrap
import types
from collections.abc import Iterator
from typing import Any

from transformer_blocks.inspection import Report, Soundness
from transformer_blocks.museum.exhibit import Found, reports

FAULT = re.compile(r"#\s*the fault\b", re.IGNORECASE)
SHOWN = 3  # violations of a property that are listed


def story(module: types.ModuleType) -> list[str]:
    """Read the story of an exhibit: its docstring without the title.

    Args:
        module: The module of the exhibit.

    Returns:
        The paragraphs, each of one line.
    """
    _, *paragraphs = re.split(r"\n\s*\n", inspect.cleandoc(module.__doc__ or ""))
    return [" ".join(paragraph.split()) for paragraph in paragraphs]


def code(module: types.ModuleType) -> str:
    """Read the code of an exhibit: its file without the docstring.

    Args:
        module: The module of the exhibit.

    Returns:
        The source.
    """
    source = inspect.getsource(module)
    _, _, rest = source.partition('"""')
    return rest.partition('"""')[2].strip("\n") + "\n"


def difference(module: types.ModuleType) -> str:
    """Compare the broken and the mended code.

    Args:
        module: The module of the exhibit.

    Returns:
        A unified difference of each class or function that was mended, without file names. If no
        pair is found, the lines that are marked as the fault.
    """
    parts = []
    for broken, mended in _pairs(module):
        before, after = (
            inspect.cleandoc(f"\n{inspect.getsource(each)}") for each in (broken, mended)
        )
        if _neutral(before) == _neutral(after):
            continue
        lines = [*difflib.unified_diff(before.splitlines(), after.splitlines(), n=100, lineterm="")]
        parts.append("\n".join(line for line in lines if not line.startswith(("---", "+++", "@@"))))
    if not parts:
        lines = code(module).splitlines()
        marked = [number for number, line in enumerate(lines) if FAULT.search(line)]
        parts = ["\n".join(lines[number : number + 2]) for number in marked]
    return "\n\n".join(parts)


def _neutral(source: str) -> str:
    """Remove from a source what names it broken or mended."""
    return re.sub("broken|mended", "", source, flags=re.IGNORECASE)


def _pairs(module: types.ModuleType) -> Iterator[tuple[Any, Any]]:
    """Yield the broken and the mended form of each class, method and function."""
    own = {
        name: each
        for name, each in vars(module).items()
        if (inspect.isclass(each) or inspect.isfunction(each))
        and (each.__module__, each.__name__) == (module.__name__, name)
    }
    for name, mended in own.items():
        if "mended" not in name.lower():
            continue
        same = [
            other
            for key, other in own.items()
            if "broken" in key.lower() and _neutral(key) == _neutral(name)
        ]
        if inspect.isclass(mended):
            bases = same + [base for base in mended.__mro__[1:] if base in own.values()]
            for key, method in vars(mended).items():
                broken = next((vars(base)[key] for base in bases if key in vars(base)), None)
                if _is_written(method, module) and _is_written(broken, module):
                    yield broken, method
        elif same:
            yield same[0], mended


def _is_written(method: Any, module: types.ModuleType) -> bool:
    """Return whether a method has its source in a module, unlike those of a dataclass."""
    return inspect.isfunction(method) and inspect.unwrap(method).__code__.co_filename == (
        module.__file__
    )


def format_result(result: Found, columns: int = 80) -> str:
    """Format what a check returned as a table: the check, the result, and the details.

    Args:
        result: What the check returned.
        columns: The length of the longest line.

    Returns:
        The lines of the table.
    """
    lines = [f"kind of model: {result.kind}"] if isinstance(result, Soundness) else []
    found = reports(result)
    first = max(len(report.title) for report in found)
    second = max(len(_outcome(report)) for report in found)
    for report in found:
        more = len(report.problems) - SHOWN
        details = [report.not_tried, *report.problems[:SHOWN]]
        details += [f"and {more} more"] if more > 0 else []
        start = f"{report.title:{first}}  {_outcome(report):{second}}  "
        parts = [
            part for each in details for part in textwrap.wrap(each, max(columns - len(start), 20))
        ]
        lines.append((start + (parts[0] if parts else "")).rstrip())
        lines += [" " * len(start) + part for part in parts[1:]]
    return "\n".join(lines)


def _outcome(report: Report) -> str:
    """Name the outcome of a check."""
    return "VIOLATED" if report.problems else "not tried" if report.not_tried else "holds"
