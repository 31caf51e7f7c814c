"""Reports: what the check of a property found, and the table of several of them."""

from dataclasses import dataclass
from textwrap import wrap

from transformer_blocks._tables import find_width, html_table, text_table

SHOWN = 5  # violations that a printed report lists


@dataclass(frozen=True)
class Report:
    """The result of the check of one property; true if no violation was found.

    Attributes:
        title: Name of the property.
        problems: A sentence for each violation.
        not_tried: Why the property could not be checked; empty if it was.
        advice: What to do next, if there is a violation.
        note: What the check may have missed, if it was limited.
    """

    title: str
    problems: tuple[str, ...] = ()
    not_tried: str = ""
    advice: str = ""
    note: str = ""

    def __bool__(self) -> bool:
        return not self.problems

    @property
    def result(self) -> str:
        """The result in a word or two."""
        return "not tried" if self.not_tried else "VIOLATED" if self.problems else "holds"

    @property
    def details(self) -> list[str]:
        """The first violations and what to do, or why the property was not tried."""
        more = len(self.problems) - SHOWN
        others = f"and {more} more" if more > 0 else ""
        advice = self.advice and f"next: {self.advice}"
        texts = (*self.problems[:SHOWN], others, self.not_tried, self.note, advice)
        return [text for text in texts if text]

    def __repr__(self) -> str:
        """List the first violations."""
        count = len(self.problems)
        found = f"{count} violation{'s' if count > 1 else ''}" if count else "no violation"
        title = f"{self.title}: " + (self.result if self.not_tried else f"{found} found")
        if self.problems:
            return "\n  ".join((title, *self.details))
        return ": ".join((title, *self.details))


@dataclass(frozen=True)
class Soundness:
    """The reports of several properties; true if some were tried and all of these hold.

    Attributes:
        kind: The kind of model that was found: ``"encoder"``, ``"causal"``, ``"encoder-decoder"``,
            ``"position-wise"``, ``"sequence to vector"``, ``"sequence to sequence of another
            length"``, ``"rows of a fixed size"`` or ``"unknown"``.
        reports: A report for each property, in the order of the table.
        note: Why it was taken for this kind, where that is not certain.
    """

    kind: str
    reports: tuple[Report, ...]
    note: str = ""

    @property
    def violated(self) -> tuple[str, ...]:
        """Titles of the properties that do not hold."""
        return tuple(report.title for report in self.reports if report.problems)

    @property
    def not_tried(self) -> tuple[str, ...]:
        """Titles of the properties that could not be checked."""
        return tuple(report.title for report in self.reports if report.not_tried)

    def __bool__(self) -> bool:
        return not self.violated and len(self.not_tried) < len(self.reports)

    def __getitem__(self, title: str) -> Report:
        return {report.title: report for report in self.reports}[title]

    @property
    def _summary(self) -> str:
        return f"kind: {self.kind}" + (f" ({self.note})" if self.note else "")

    def _rows(self) -> list[tuple[str, str, str]]:
        rows = [("check", "result", "details")]
        for report in self.reports:
            first, *others = report.details or [""]
            rows += [(report.title, report.result, first), *(("", "", each) for each in others)]
        return rows

    def __repr__(self) -> str:
        """Format the reports as a table, as wide as the terminal."""
        width = find_width()
        return "\n".join([*wrap(self._summary, width), *text_table(self._rows(), width)])

    def _repr_html_(self) -> str:
        """Format the reports as a table in a notebook."""
        return html_table(self._summary, self._rows())
