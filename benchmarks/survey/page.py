"""The page: what was found in each library, and in which models, with its version and the date."""

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from survey.run import Row
from transformer_blocks.files import write_atomically
from transformer_blocks.inspection.comparison import describe as describe_change

BEGIN, END = "<!-- begin: written by the program -->", "<!-- end -->"
PROPERTIES = {
    "causality": ("causality",),
    "padding": ("mask polarity", "padding", "padding amount", "padding side"),
    "batch": ("batch",),
    "cache": ("cache",),
    "others": ("determinism", "order", "dtype", "device", "initialisation", "loading"),
}
STATUSES = ("violation", "sound", "not driven", "not built", "stopped")


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


def holds(row: Row, titles: Iterable[str]) -> bool:
    """Return whether one of the properties could be tried, and none is violated."""
    reports = [row["reports"][title] for title in titles if title in row.get("reports", {})]
    is_violated = any(problems for _, *problems in reports)
    return not is_violated and any(not reason for reason, *_ in reports)


def describe_recording(row: Row) -> str:
    """Say whether weights were recorded, and whether the model returns the same ones."""
    if not row.get("recorded"):
        return ""
    returned, missing = row.get("returned", 0), len(row.get("not_recorded", ()))
    equal = f"{missing} of {returned} differ from" if missing else "equal to"
    return "weights recorded" + (f", {equal} those it returns" if returned else "")


def find_group(row: Row) -> str:
    """Return what a row has in common with others that have the same finding: no numbers."""
    words = re.sub(r"(Error: )\w+ .*have the same dtype.*", r"\1dtypes differ", describe(row))
    return re.sub(r"\b\d[\w.+-]*", "#", words)


def describe_kind(row: Row) -> str:
    """Say what kind of model a row is of, and which properties hold."""
    holding = [title for title, names in PROPERTIES.items() if holds(row, names)]
    parts = [row["kind"]] if "kind" in row else []
    parts += [f"holds: {', '.join(holding)}"] if holding else []
    return "; ".join(filter(None, [*parts, describe_recording(row)]))


def format_findings(rows: Iterable[Row]) -> str:
    """Format what was found as Markdown: a summary, and one part a library.

    A finding is said once, with all its models; those of each status are folded.
    """
    libraries: dict[str, list[Row]] = _grouped(rows, lambda row: row["name"].split()[0])
    dates = sorted(row["date"] for own in libraries.values() for row in own)
    minutes = sum(row["seconds"] for own in libraries.values() for row in own) / 60
    days = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    lines = [f"Examined on {days}, in {minutes:.0f} minutes of processor time.", ""]
    lines += [_format_line("models", *libraries), _format_line(*["---"] * (1 + len(libraries)))]
    counts = [Counter(map(find_status, own)) for own in libraries.values()]
    for status in STATUSES:
        lines.append(_format_line(status, *(str(count[status]) for count in counts)))
    for library, own in libraries.items():
        lines += ["", f"### {library} {own[0]['version']}"]
        by_status = _grouped(own, find_status)
        for status in sorted(by_status, key=STATUSES.index):
            lines += ["", *_format_status(status, by_status[status])]
    return "\n".join(lines)


def _format_status(status: str, rows: list[Row]) -> Iterator[str]:
    yield f"<details><summary>{status}: {len(rows)}</summary>\n"
    for group in sorted(_grouped(rows, find_group).values(), key=len, reverse=True):
        if words := describe(group[0]).replace("`", "'"):
            yield f"- `{words}`" + (f" ({len(group)} models)" if len(group) > 1 else "")
        for kind, models in _grouped(group, describe_kind).items():
            names = ", ".join(f"`{row['name'].partition(' ')[2]}`" for row in models)
            yield ("  " if words else "") + f"- {names}" + (f": {kind}" if kind else "")
    yield "\n</details>"


def _grouped(rows: Iterable[Row], key: Callable[[Row], str]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def _format_line(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def write_page(page: Path, rows: Iterable[Row]) -> None:
    """Write what was found into a page, between two comments; what stands around is kept."""
    text = page.read_text(encoding="utf-8") if page.exists() else f"{BEGIN}\n{END}\n"
    before, _, rest = text.partition(BEGIN)
    after = rest.partition(END)[2]
    found = format_findings(rows)
    write_atomically(page, f"{before}{BEGIN}\n\n{found}\n\n{END}{after}".encode())
