"""Execution: run the cells of a chapter in a Jupyter kernel, and keep their outputs.

The outputs are stored in ``docs/_build/learn`` under a hash of the chapter, of all the code that it
can import and of the CPU's instruction set, so that a chapter runs again only after a change. A
check of an exercise runs twice: it must fail after the stub, and pass after the solution.

    python docs/_ext/execution.py --record 12

runs chapter 12 with its long computations and records their output in ``docs/learn/recorded``.
"""

import argparse
import hashlib
import json
import platform
import re
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import nbformat
import torch
from nbclient import NotebookClient

from cells import LEARN, Cell, chapter_files, read_cells

ROOT = LEARN.parents[1]
OUTPUTS = ROOT / "docs" / "_build" / "learn"
RECORDED = LEARN / "recorded"

# Warnings are errors, except while torch itself is imported.
PROLOGUE = """import torch, warnings
torch.set_num_threads(1)  # several chapters run at once
torch.manual_seed(0)  # what a chapter draws before it sets a seed of its own
for category in (UserWarning, DeprecationWarning, FutureWarning, RuntimeWarning):
    warnings.simplefilter("error", category)"""


class ChapterError(Exception):
    """A cell of a chapter failed, or a check did not fail when it should have."""


def outputs_of(path: Path) -> list[str]:
    """Return the text that each cell of a chapter prints, from the store if it is unchanged.

    Args:
        path: A chapter.

    Returns:
        A text for each cell; empty where a cell prints nothing or is not run.

    Raises:
        ChapterError: If a cell fails, if a check passes before its exercise is solved, or if the
            recorded output belongs to another code than the chapter's.
    """
    stored = OUTPUTS / f"{path.stem}-{fingerprint(path)}.json"
    if not stored.is_file():
        outputs = execute(path)
        OUTPUTS.mkdir(parents=True, exist_ok=True)
        stored.write_text(json.dumps(outputs, ensure_ascii=False), encoding="utf-8")
    outputs = json.loads(stored.read_text(encoding="utf-8"))
    for number, cell in enumerate(read_cells(path)):
        if cell.role == "recorded":
            outputs[number] = recorded(path, cell)["output"]
    return outputs


def fingerprint(path: Path) -> str:
    """Hash a chapter, the code and results that it can read, and how this machine computes."""
    digest = hashlib.sha256(path.read_bytes())
    digest.update(torch.__config__.show().encode())  # torch's version and the instruction set
    for pattern in ("src/**/*.py", "examples/**/*.py", "docs/experiments/results/*.json"):
        for file in sorted(ROOT.glob(pattern)):
            digest.update(file.read_bytes())
    digest.update(Path(__file__).read_bytes())
    return digest.hexdigest()[:16]


def execute(path: Path, *, with_recorded: bool = False) -> list[str]:
    """Run the cells of a chapter in a new kernel; see :func:`outputs_of`."""
    cells = read_cells(path)
    client = NotebookClient(
        nbformat.v4.new_notebook(),
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        timeout=None if with_recorded else 120,
    )
    outputs = [""] * len(cells)
    with client.setup_kernel(cwd=str(LEARN)):
        run_cell(client, PROLOGUE, path)
        for number, cell in enumerate(cells):
            if cell.kind == "markdown" or (cell.role == "recorded" and not with_recorded):
                continue
            if cell.role == "check":
                if not fails(client, cell.source):
                    raise ChapterError(
                        f"the check passes before the exercise is solved:\n{cell.source}"
                    )
                continue
            start = time.perf_counter()
            outputs[number] = run_cell(client, cell.source, path)
            if cell.role == "recorded":
                record(path, cell, outputs[number], time.perf_counter() - start)
            if cell.role == "solution":
                outputs[number] += run_cell(client, cells[number - 1].source, path)
    return outputs


def run_cell(client: NotebookClient, source: str, path: Path) -> str:
    """Run one cell, and return what it prints and its last value."""
    cell = nbformat.v4.new_code_cell(source)
    client.nb.cells = [cell]
    try:
        client.execute_cell(cell, 0)
    except Exception as error:
        message = re.sub(r"\x1b\[[\d;]*m", "", str(error))  # without colours
        raise ChapterError(f"a cell of {path.name} fails:\n{message}") from None
    return "".join(text_of(output) for output in cell.outputs).rstrip()


def fails(client: NotebookClient, source: str) -> bool:
    """Return whether a cell raises an exception."""
    cell = nbformat.v4.new_code_cell(source, metadata={"tags": ["raises-exception"]})
    client.nb.cells = [cell]
    client.execute_cell(cell, 0)
    return any(output.output_type == "error" for output in cell.outputs)


def text_of(output: Any) -> str:
    """Return the text of an output."""
    if output.output_type == "stream":
        return output.text
    return output.data["text/plain"] + "\n" if "data" in output else ""


def record(path: Path, cell: Cell, output: str, seconds: float) -> None:
    """Store the output of a long computation, with what is needed to compute it again."""
    RECORDED.mkdir(exist_ok=True)
    file = RECORDED / f"{path.stem}.json"
    entries = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    entries[cell_hash(cell)] = {
        "output": output,
        "seconds": round(seconds),
        "python": platform.python_version(),
        "torch": torch.__version__,
    }
    used = {cell_hash(each) for each in read_cells(path) if each.role == "recorded"}
    entries = {key: entry for key, entry in entries.items() if key in used}
    file.write_text(json.dumps(entries, ensure_ascii=False, indent=1) + "\n", encoding="utf-8")


def recorded(path: Path, cell: Cell) -> dict[str, Any]:
    """Return the record of a long computation."""
    file = RECORDED / f"{path.stem}.json"
    entries = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    if cell_hash(cell) not in entries:
        number = path.stem[:2]
        raise ChapterError(
            f"the recorded output of a cell of {path.name} is missing or belongs to an earlier "
            f"code; run: python docs/_ext/execution.py --record {number}"
        )
    return entries[cell_hash(cell)]


def cell_hash(cell: Cell) -> str:
    """Hash the code of a cell."""
    return hashlib.sha256(cell.source.encode()).hexdigest()[:16]


def execute_all(processes: int = 2) -> dict[str, list[str]]:
    """Return the outputs of all chapters, by the names of their files without suffix."""
    files = chapter_files()
    with ThreadPoolExecutor(processes) as pool:
        return dict(zip([file.stem for file in files], pool.map(outputs_of, files), strict=True))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        allow_abbrev=False, description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("numbers", nargs="*", metavar="NN", help="chapters to run (default: all)")
    parser.add_argument("--record", action="store_true", help="run the long computations, too")
    arguments = parser.parse_args()
    for chapter in chapter_files():
        if not arguments.numbers or chapter.stem[:2] in arguments.numbers:
            made = execute(chapter, with_recorded=True) if arguments.record else outputs_of(chapter)
            print(f"{chapter.name}: {sum(map(bool, made))} cells with output")
