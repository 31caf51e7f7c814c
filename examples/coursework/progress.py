"""Progress: which parts of the units and cases a reader has solved, in a small file."""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from common.errors import UserError
from common.files import load_json

if TYPE_CHECKING:
    from coursework.debug import Case
    from coursework.grader import Unit

POINTS, COST = 10, 2
"""Points of a unit or a case, the same for each of its parts; what each hint costs."""


class Progress:
    """What a reader has solved, and the hints that he has taken.

    Attributes:
        known: For the name of each unit or case, whether each of its parts is right, 0 or 1, and
            the number of ``hints``.

    Raises:
        UserError: If the file holds something else.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / "progress.json"
        try:
            found = load_json(self.path.read_text("utf-8")) if self.path.is_file() else {}
            self.known = {name: {k: int(v) for k, v in x.items()} for name, x in found.items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise UserError(
                f"{self.path} must hold what was solved; remove it ({error})"
            ) from error

    def of(self, task: "Unit | Case") -> dict[str, int]:
        """Return what is known of a unit or a case."""
        return dict.fromkeys((*task.parts, "hints"), 0) | self.known.get(task.name, {})

    def add(self, task: "Unit | Case", values: Mapping[str, int]) -> None:
        """Remember whether parts are right, or the number of hints."""
        self.known[task.name] = self.of(task) | {**values}
        new = self.path.with_suffix(".new")  # write_atomically() would import the whole library
        new.unlink(missing_ok=True)
        with new.open("x", encoding="utf-8") as file:  # no link is followed
            json.dump(self.known, file, indent=1)
        new.replace(self.path)

    def is_solved(self, task: "Unit | Case") -> bool:
        """Return whether all parts of a unit or a case are right."""
        return all(self.of(task)[part] for part in task.parts)

    def points(self, task: "Unit | Case") -> int:
        """Count the points; whatever the hints cost, one is left for each part that is right."""
        known = self.of(task)
        right = sum(known[part] for part in task.parts)
        return max(POINTS * right // len(task.parts) - COST * known["hints"], right)

    def listed(self, tasks: Mapping[str, Any]) -> Iterator[str]:
        """List units or cases, with the points of those that were judged; then sum them up."""
        group = ""
        for number, (name, task) in enumerate(tasks.items(), 1):
            if task.group != group:
                group = task.group
                yield group
            state = "solved" if self.is_solved(task) else "not solved yet"
            state = f" ({state}, {self.points(task)} points)" if name in self.known else ""
            label = "" if name.isdecimal() else f"{name}: "
            yield f"  {number:2}. {label}{task.title}{state}"
        yield from self.summary(tasks)

    def summary(self, tasks: Mapping[str, Any]) -> Iterator[str]:
        """Count what is solved and the points, and name the command of the next unit or case."""
        count, points = (sum(map(f, tasks.values())) for f in (self.is_solved, self.points))
        yield f"{count} of {len(tasks)} solved, {points} of {POINTS * len(tasks)} points."
        rest = (name for name, task in tasks.items() if not self.is_solved(task))
        for name in islice(rest, 1):
            yield f"Next: python examples/course.py {tasks[name].command} {name}"
