"""Running: examine each case in a process of its own, and keep one line of JSON for each.

A crash, a hang or too much memory ends one process and one line, not the run. A run that was
interrupted continues with the cases that have no line of this version of their library yet.
"""

import importlib.metadata
import json
import math
import multiprocessing
import os
import signal
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from survey.cases import Build, Case, NotDrivenError, describe_error
from transformer_blocks.inspection import check_soundness, record_attention
from transformer_blocks.inspection.comparison import find_output, find_tensors, measure_changes

Row = dict[str, Any]
START = 120.0  # seconds in which a process must start
PATIENCE = 10  # by the clock, a case may take so many times its processor time
TIME_IS_UP = getattr(signal, "SIGXCPU", math.inf)
BEGIN: Row = {"stage": "start", "seconds": 0.0}
IMPORTED = {"transformers": "transformers.modeling_utils"}  # once, instead of in each process


def survey(
    cases: Mapping[str, Build],
    lines: Path,
    *,
    seconds: float = 60.0,
    memory: int = 4 << 30,
    report: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Examine all cases that have no line yet; return the rows of all.

    Args:
        cases: Functions that build a case, by library and name, as of :func:`find_cases`. Another
            process calls them, so that they can be pickled.
        lines: File of results, one JSON object a line; it is made, or continued.
        seconds: Limit of a case's processor time, where the system has such limits, so that other
            programs on the machine do not decide what is stopped. By the clock, ten times as long.
        memory: Limit of the memory that a case may add, in bytes, where the system has such limits.
        report: Called with each new row.
    """
    versions = {name: find_version(name.split()[0]) for name in cases}
    rows = {row["name"]: row for row in read_rows(lines)}
    rows = {name: row for name, row in rows.items() if row["version"] == versions.get(name)}
    methods = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("forkserver" if "forkserver" in methods else "spawn")
    libraries = dict.fromkeys(name.split()[0] for name in cases)
    context.set_forkserver_preload([__name__, *(IMPORTED.get(each, each) for each in libraries)])
    for name, build in cases.items():
        if name in rows:
            continue
        row: Row = {"name": name, "version": versions[name]} | BEGIN
        receiver, sender = context.Pipe(duplex=False)
        given = (build, sender, math.ceil(seconds), memory)
        process = context.Process(target=_examine_alone, args=given, daemon=True)
        process.start()
        sender.close()
        deadline = time.monotonic() + START
        while row["stage"] != "done":
            if not receiver.poll(max(0.0, deadline - time.monotonic())):
                row["error"] = f"stopped after {PATIENCE * seconds:g} seconds"
                break
            try:
                found = receiver.recv()
            except EOFError:
                process.join()
                row["error"] = f"the process ended with exit code {process.exitcode}"
                if process.exitcode == -TIME_IS_UP:
                    row["error"] = f"stopped after {seconds:g} seconds of processor time"
                    row["seconds"] = seconds
                break
            if row["stage"] == "start":
                deadline = time.monotonic() + PATIENCE * seconds
            row |= found
        process.kill()
        process.join()
        row["date"] = datetime.now(UTC).date().isoformat()
        rows[name] = row
        with lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        report(row)
    return [rows[name] for name in cases]


def read_rows(lines: Path) -> Iterator[Row]:
    """Read the results; a last line that was not written whole is left out."""
    if lines.exists():
        for line in lines.read_text(encoding="utf-8").splitlines():
            with suppress(json.JSONDecodeError):
                yield json.loads(line)


def find_version(library: str) -> str:
    """Find the version of an installed library; empty if it is none."""
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _examine_alone(build: Build, sender: Connection, seconds: int, memory: int) -> None:
    """Examine a case in a process of its own; send what is known after each stage."""
    with suppress(ImportError, ValueError, OSError):  # no such limits, or lower ones
        resource = importlib.import_module("resource")
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + memory, used + memory))
    for stream in (1, 2):  # the messages of the libraries
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for row in examine(build):
        sender.send(row | {"seconds": round(time.process_time(), 1)})


def examine(build: Build) -> Iterator[Row]:
    """Build a case, check it and record its attention; yield what each stage found."""
    yield {"stage": "build"}
    try:
        case = build()
    except NotDrivenError as error:
        yield {"stage": "done", "not_driven": str(error)}
        return
    except Exception as error:
        yield {"stage": "done", "not_built": describe_error(error)}
        return
    yield {
        "stage": "soundness",
        "parameters": sum(each.numel() for each in case.model.parameters()),
        "inputs": list(case.example) if isinstance(case.example, Mapping) else [],
    }
    try:
        soundness = check_soundness(case.model, case.example, causal=case.causal)
    except Exception as error:
        yield {"stage": "done", "not_driven": describe_error(error)}
        return
    reports = {each.title: [each.not_tried, *each.problems] for each in soundness.reports}
    yield {"stage": "recording", "kind": soundness.kind, "reports": reports}
    try:
        yield {"stage": "done"} | find_recording(case)
    except Exception as error:
        yield {"stage": "done", "recording_error": describe_error(error)}


def find_recording(case: Case) -> Row:
    """Record the attention of a case, and compare it with what the model itself returns."""
    with warnings.catch_warnings(record=True) as caught, record_attention(case.model) as maps:
        warnings.simplefilter("always")
        watched = _call(case)
    recorded = [weights for each in maps.values() for weights in each]
    pairs = zip(find_tensors(_call(case)), find_tensors(watched), strict=True)
    row: Row = {
        "recorded": len(maps),
        "is_changed": not all(torch.equal(a.nan_to_num(), b.nan_to_num()) for a, b in pairs),
        "warnings": [str(each.message) for each in caught if each.category is UserWarning],
    }
    try:
        model: Any = case.model
        model.set_attn_implementation("eager")
        output = _call(case, output_attentions=True)
        returned = [*find_tensors([output[key] for key in output if key.endswith("attentions")])]
    except Exception:  # the model returns no weights
        return row
    missing = [tuple(a.shape) for a in returned if not any(_is_equal(a, b) for b in recorded)]
    main = [find_output(each) for each in (watched, output)]
    if main[0] is not None and main[1] is not None and main[0].shape == main[1].shape:
        changes = measure_changes(main[0][0], main[1][0], 1e-3)
        row["change"] = float(changes.max())
    return row | {"returned": len(returned), "not_recorded": missing}


def _is_equal(returned: Tensor, recorded: Tensor) -> bool:
    """Compare the weights of the first row, which has no padding."""
    if returned.shape != recorded.shape:  # of shape (B * H, 1, L, S)
        if returned.shape[-2:] != recorded.shape[-2:] or returned.numel() != recorded.numel():
            return False
        recorded = recorded.view(returned.shape)
    return returned[0].allclose(recorded[0], atol=1e-4)


def _call(case: Case, **options: Any) -> Any:
    torch.manual_seed(0)
    args, kwargs = (
        ((), case.example) if isinstance(case.example, Mapping) else ((case.example,), {})
    )
    with torch.no_grad():
        return case.model(*args, **kwargs, **options)
