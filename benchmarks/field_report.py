"""Examine the models of other libraries: ``python benchmarks/field_report.py``."""

import argparse
import re
from pathlib import Path

from survey.cases import find_cases
from survey.page import describe, find_status, write_page
from survey.run import Row, survey


def show(row: Row) -> None:
    """Print one line for a model."""
    print(
        f"{row['seconds']:6.1f} s  {find_status(row):10}  {row['name']}  {describe(row)}",
        flush=True,
    )


def main(arguments: list[str] | None = None) -> None:
    """Examine what has no result yet, and write the page."""
    parser = argparse.ArgumentParser(
        allow_abbrev=False,
        description="Check the models of torch.nn, x-transformers and transformers for soundness.",
    )
    parser.add_argument(
        "results",
        type=Path,
        help="file of results, one line of JSON a model; a run that was interrupted is continued",
    )
    parser.add_argument("--page", type=Path, help="Markdown page into which tables are written")
    parser.add_argument("--only", default="", help="regular expression of the models' names")
    parser.add_argument("--seconds", type=float, default=180.0, help="processor time of a model")
    given = parser.parse_args(arguments)
    cases = {name: build for name, build in find_cases().items() if re.search(given.only, name)}
    rows = survey(cases, given.results, seconds=given.seconds, report=show)
    if given.page:
        write_page(given.page, rows)


if __name__ == "__main__":
    main()
