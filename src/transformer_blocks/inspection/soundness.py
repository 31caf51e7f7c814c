"""Soundness: one call that runs all checks on a model and an example of its inputs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from transformer_blocks.generation import StepModel
from transformer_blocks.inspection.checks import SHOWN, Report


@dataclass(frozen=True)
class Soundness:
    """The reports of all checks of a model; true if no violation was found.

    Attributes:
        kind: The kind of model that was found, such as ``"encoder"`` or ``"causal"``.
        reports: A report for each property, in the order of the table.
    """

    kind: str
    reports: tuple[Report, ...]

    @property
    def violated(self) -> tuple[str, ...]:
        """Titles of the properties that do not hold."""
        return tuple(report.title for report in self.reports if report.problems)

    @property
    def not_tried(self) -> tuple[str, ...]:
        """Titles of the properties that could not be checked."""
        return tuple(report.title for report in self.reports if report.not_tried)

    def __bool__(self) -> bool:
        return not self.violated

    def __getitem__(self, title: str) -> Report:
        for report in self.reports:
            if report.title == title:
                return report
        known = ", ".join(report.title for report in self.reports)
        raise KeyError(f"title must be one of {known}, got {title!r}")

    def __repr__(self) -> str:
        """Format the reports as a table."""
        rows = [("check", "result", "details")]
        for report in self.reports:
            if report.not_tried:
                rows.append((report.title, "not tried", report.not_tried))
            elif not report.problems:
                rows.append((report.title, "holds", ""))
            else:
                shown = report.problems[:SHOWN]
                count = len(report.problems) - len(shown)
                rows.append((report.title, "VIOLATED", shown[0]))
                rows += [("", "", problem) for problem in shown[1:]]
                rows += [("", "", f"and {count} more")] if count else []
        widths = [max(len(row[column]) for row in rows) for column in (0, 1)]
        lines = [f"{a:{widths[0]}}  {b:{widths[1]}}  {c}".rstrip() for a, b, c in rows]
        return "\n".join((f"kind: {self.kind}", *lines))


def check_soundness(
    model: Callable[..., Any],
    example: Any,
    *,
    causal: bool | None = None,
    padding_id: int | None = None,
    new_step_model: Callable[[], StepModel] | None = None,
    tolerance: float | None = None,
) -> Soundness:
    """Run every check on a model and an example of its inputs."""
    raise NotImplementedError


def assert_sound(
    model: Callable[..., Any],
    example: Any,
    *,
    causal: bool | None = None,
    padding_id: int | None = None,
    new_step_model: Callable[[], StepModel] | None = None,
    tolerance: float | None = None,
) -> Soundness:
    """Raise an ``AssertionError`` with the table of reports if a property does not hold."""
    soundness = check_soundness(
        model,
        example,
        causal=causal,
        padding_id=padding_id,
        new_step_model=new_step_model,
        tolerance=tolerance,
    )
    if not soundness:
        raise AssertionError(f"the model is not sound\n{soundness!r}")
    return soundness
