"""The survey: other libraries' models are made small, examined alone, and listed on a page."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.benchmarks.survey_cases import (
    crashing,
    hanging,
    leaking,
    sound,
    spinning,
    too_large,
    undriven,
)
from tests.docs.test_howto import ROOT, blocks, run

from survey.page import find_status, holds
from survey.run import Row, examine, find_version, survey

PAGE = ROOT / "docs" / "field_report.md"


def last(build: Any) -> Row:
    row: Row = {"name": "library model"}
    for found in examine(build):
        row |= found
    return row


def test_a_violation_is_found_and_a_sound_model_is_sound() -> None:
    broken, good = last(leaking), last(sound)
    assert find_status(broken) == "violation"
    assert not holds(broken, ["causality"])
    assert not holds(broken, ["batch"])
    assert find_status(good) == "sound"
    assert holds(good, ["causality"])
    assert not holds(good, ["padding"])  # which could not be tried
    assert find_status(last(undriven)) == "not driven"


def test_a_crash_a_hang_or_too_much_memory_ends_one_row_and_not_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = {
        "torch crashing": crashing,
        "torch too_large": too_large,
        "torch leaking": leaking,
    }
    lines, reported = tmp_path / "lines", list[Row]()
    slow = {"torch hanging": hanging, "torch spinning": spinning}
    survey({"torch hanging": hanging}, lines, seconds=0.1, report=reported.append)
    monkeypatch.setattr("survey.run.PATIENCE", 600)  # on a busy machine, too
    survey(slow, lines, seconds=1.0, report=reported.append)
    rows = survey(slow | cases, lines, memory=2**30, report=reported.append)
    assert rows == reported == [json.loads(line) for line in lines.read_text("utf-8").splitlines()]
    hang, spin, crash, large, leak = rows
    assert (crash["stage"], crash["error"]) == ("build", "the process ended with exit code 7")
    assert hang["stage"] == "build"
    assert hang["error"] == "stopped after 1 seconds"
    if sys.platform != "win32":
        assert spin["error"] == "stopped after 1 seconds of processor time"
    if sys.platform == "linux":
        assert "memory" in large["not_built"]
    assert find_status(leak) == "violation"

    with lines.open("a", encoding="utf-8") as file:  # a run that was interrupted while it wrote
        file.write('{"name": "torch so')
    cases = {row["name"]: sound for row in rows} | {"torch sound": sound}
    again = survey(cases, lines, report=reported.append)
    assert again[: len(rows)] == rows
    assert [row["name"] for row in reported[len(rows) :]] == ["torch sound"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # of the libraries
@pytest.mark.parametrize("number", range(len(blocks(PAGE, "python"))))
def test_each_reproduction_of_the_field_report_needs_the_other_library_alone(number: int) -> None:
    text = PAGE.read_text("utf-8")
    for library in ("torch", "x_transformers", "transformers"):
        version = find_version(library)
        if f"### {library} {version}" not in text:
            pytest.skip(f"the page is of another version of {library} than {version}")
    code = blocks(PAGE, "python")[number]
    assert "transformer_blocks" not in code
    assert len([line for line in code.splitlines() if line.startswith((">>>", "..."))]) <= 15
    run(code, {}, PAGE)
