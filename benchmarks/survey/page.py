"""The page: a table of all rows, with the versions of the libraries and the date."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from pathlib import Path

from survey.run import Row
from transformer_blocks.files import write_atomically
from transformer_blocks.inspection.comparison import describe as describe_change

BEGIN, END = "<!-- begin: written by the program -->", "<!-- end -->"
COLUMNS = {
    "causality": ("causality",),
    "padding": ("mask polarity", "padding", "padding amount", "padding side"),
    "batch": ("batch",),
    "cache": ("cache",),
    "others": ("determinism", "order", "dtype", "device", "initialisation", "loading"),
}
STATUSES = ("sound", "violation", "not driven", "not built", "stopped")


def find_status(row: Row) -> str:
    """Name what became of a model: one of :data:`STATUSES`."""
    for key in ("not_driven", "not_built"):
        if key in row:
            return key.replace("_", " ")
    if "error" in row:
        return "stopped"
    return "violation" if find_violations(row) else "sound"


def find_violations(row: Row) -> dict[str, str]:
    """Describe the largest violation of each property that does not hold."""
    found = {
        title: max(problems, key=_measure)
        for title, (_, *problems) in row.get("reports", {}).items()
        if problems
    }
    if row.get("is_changed"):
        found["recording"] = "the outputs change while attention is recorded"
    if row.get("change"):
        found["weights"] = (
            f"with eager attention that returns its weights, the output of the row without padding "
            f"differs, {describe_change(row['change'])}"
        )
    return found


def _measure(problem: str) -> float:
    found = re.findall(r"by ([\d.e+-]+) standard", problem)
    return float(found[-1]) if found else float("inf")


def describe(row: Row) -> str:
    """Say in one line why a model has its status."""
    reason = row.get("not_driven") or row.get("not_built")
    if reason is None and "error" in row:
        reason = f"{row['error']}, at the stage {row['stage']}"
    violations = [f"{title}: {problem}" for title, problem in find_violations(row).items()]
    return reason or "; ".join(violations)


def find_mark(row: Row, titles: Iterable[str]) -> str:
    """Say whether properties hold; a dash if none of them could be tried."""
    reports = [row["reports"][title] for title in titles if title in row.get("reports", {})]
    if any(problems for _, *problems in reports):
        return "**violated**"
    return "holds" if any(not reason for reason, *_ in reports) else "–"


def describe_recording(row: Row) -> str:
    """Say how many modules were recorded, and whether the model returns the same weights."""
    if "recorded" not in row:
        return "–"
    returned, missing = row.get("returned", 0), len(row.get("not_recorded", ()))
    parts = [str(row["recorded"])]
    if returned:
        parts.append(f"{missing} of {returned} differ" if missing else f"all {returned} equal")
    return ", ".join(parts)


def format_tables(rows: Iterable[Row]) -> str:
    """Format the tables of the page in Markdown: a summary, and one table a library."""
    libraries: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        libraries[row["name"].split()[0]].append(row)
    dates = sorted(row["date"] for own in libraries.values() for row in own)
    minutes = sum(row["seconds"] for own in libraries.values() for row in own) / 60
    days = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    lines = [f"Examined on {days}, in {minutes:.0f} minutes of processor time.", ""]
    lines += _format_line("library", "version", "models", *STATUSES) + _format_line(*["---"] * 8)
    for library, own in libraries.items():
        count = Counter(map(find_status, own))
        numbers = [str(count[each]) for each in STATUSES]
        lines += _format_line(library, own[0]["version"], str(len(own)), *numbers)
    for library, own in libraries.items():
        lines += ["", f"### {library} {own[0]['version']}", ""]
        titles = ("model", "status", "input", "kind", *COLUMNS, "recorded", "details")
        lines += _format_line(*titles) + _format_line(*["---"] * len(titles))
        for row in own:
            lines += _format_line(
                f"`{row['name'].partition(' ')[2]}`",
                find_status(row),
                ", ".join(row.get("inputs", [])[:1]) or "–",
                row.get("kind", "–"),
                *(find_mark(row, titles) for titles in COLUMNS.values()),
                describe_recording(row),
                f"`{details}`" if (details := describe(row).replace("`", "'")) else "",
            )
    return "\n".join(lines)


def _format_line(*cells: str) -> list[str]:
    return [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"]


def write_page(page: Path, rows: Iterable[Row]) -> None:
    """Write the tables into a page, between two comments; what stands around them is kept."""
    text = page.read_text(encoding="utf-8") if page.exists() else f"{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    tables = format_tables(rows)
    write_atomically(page, f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}".encode())
