"""Execution: run the chapters of the book, and write their notebooks with what they print.

    python docs/_ext/execution.py
    python docs/_ext/execution.py 14 --record
    python docs/_ext/execution.py --without-solutions FOLDER

The second command runs chapter 14 with its long computations; the first keeps their outputs as they
were recorded. The third writes notebooks for students. A check of an exercise runs twice: it must
fail after the stub, and pass after the solution.
"""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import cyclopts
import nbformat
import torch
from nbclient import NotebookClient

from cells import LEARN, Cell, chapter_files, make_notebook, read_cells

# Warnings are errors, except while torch itself is imported.
PROLOGUE = """import torch, warnings
torch.set_num_threads(1)  # several chapters run at once
torch.manual_seed(0)  # what a chapter draws before it sets a seed of its own
for category in (UserWarning, DeprecationWarning, FutureWarning, RuntimeWarning):
    warnings.simplefilter("error", category)"""


def execute(path: Path, *, with_recorded: bool = False) -> list[Cell]:
    """Run the cells of a chapter in a new kernel.

    Args:
        path: A chapter.
        with_recorded: Run the long computations, too.

    Returns:
        The cells with their outputs; a text, and a cell that is not run, as it is.

    Raises:
        nbclient.exceptions.CellExecutionError: If a cell fails.
        ValueError: If a check passes before its exercise is solved or needs another exercise, or
            the output of a long computation is not recorded.
    """
    cells, codes = read_cells(path), [nbformat.v4.new_code_cell(PROLOGUE)]
    for number, cell in enumerate(cells):
        is_run = cell.kind == "code" and (with_recorded or cell.role != "recorded")
        source = cell.source if is_run else ""
        if cell.role == "solution":  # with its check; what follows must not need it
            solved = f"{source}\n{cells[number - 1].source}"
            source = f"exec({solved!r}, {{**globals()}})"
        tags = ["raises-exception"] if cell.role == "check" else []
        codes.append(nbformat.v4.new_code_cell(source, metadata={"tags": tags}))
    client = NotebookClient(
        nbformat.v4.new_notebook(cells=codes),
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        timeout=None if with_recorded else 120,
    )
    client.execute(cwd=str(LEARN))
    return [*map(with_output, cells, codes[1:])]


def with_output(cell: Cell, code: Any) -> Cell:
    """Return a cell with its output, and how long it took if that is recorded."""
    errors = [each.ename for each in code.outputs if each.output_type == "error"]
    if cell.role == "check" and (not errors or "NameError" in errors):
        raise ValueError(f"the check passes unsolved, or needs another exercise:\n{cell.source}")
    if cell.role == "recorded" and not code.source and not cell.recorded:
        raise ValueError(
            "the output of a long computation is not recorded, or belongs to an earlier code; run "
            f"execution.py with --record:\n{cell.source}"
        )
    if not code.source or errors:
        return cell
    output = "".join(map(text_of, code.outputs)).rstrip()
    return replace(cell, output=output, recorded=made_with(code) if cell.role == "recorded" else "")


def text_of(output: Any) -> str:
    """Return the text of an output."""
    if output.output_type == "stream":
        return output.text
    return output.data["text/plain"] + "\n" if "data" in output else ""


def made_with(cell: Any) -> str:
    """Return how long a cell ran, and with which torch."""
    start, end = (
        datetime.fromisoformat(cell.metadata.execution[key])
        for key in ("iopub.execute_input", "shell.execute_reply")
    )
    return f"{(end - start).seconds} s, torch {torch.__version__}"


def write_notebook(path: Path, *, with_recorded: bool = False) -> None:
    """Run a chapter, and write its notebook."""
    notebook = make_notebook(execute(path, with_recorded=with_recorded))
    path.with_suffix(".ipynb").write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    print(f"{path.stem}.ipynb is written")


def main(*numbers: str, record: bool = False, without_solutions: Path | None = None) -> None:
    """Run chapters of the book, and write their notebooks.

    Args:
        numbers: The chapters, such as 07; all by default.
        record: Run the long computations, too.
        without_solutions: Write notebooks for students into this folder, and run nothing.
    """
    paths = [each for each in chapter_files() if each.stem[:2] in numbers or not numbers]
    if without_solutions:
        without_solutions.mkdir(parents=True, exist_ok=True)
        for path in paths:
            cells = [Cell(each.kind, each.source, each.role) for each in read_cells(path)]
            notebook = make_notebook([each for each in cells if each.role != "solution"])
            nbformat.write(notebook, without_solutions / f"{path.stem}.ipynb")
        return
    with ThreadPoolExecutor(2) as pool:
        [*pool.map(partial(write_notebook, with_recorded=record), paths)]


if __name__ == "__main__":
    cyclopts.run(main)
