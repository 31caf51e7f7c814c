"""Execution: run the chapters of the book, and write their notebooks with what they print.

    python docs/_ext/execution.py
    python docs/_ext/execution.py --record 14
    python docs/_ext/execution.py --without-solutions FOLDER

The second command runs chapter 14 with its long computations; the first keeps their outputs as they
were recorded. The third writes notebooks for students. A check of an exercise runs twice: it must
fail after the stub, and pass after the solution.
"""

import argparse
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import nbformat
import torch
from nbclient import NotebookClient

from cells import (
    LEARN,
    LONG,
    SOLUTION,
    Output,
    chapter_files,
    make_notebook,
    read_cells,
    stored_outputs,
)

# Warnings are errors, except while torch itself is imported.
PROLOGUE = """import torch, warnings
torch.set_num_threads(1)  # several chapters run at once
torch.manual_seed(0)  # what a chapter draws before it sets a seed of its own
for category in (UserWarning, DeprecationWarning, FutureWarning, RuntimeWarning):
    warnings.simplefilter("error", category)"""


def execute(path: Path, *, with_recorded: bool = False) -> list[Output]:
    """Run the cells of a chapter in a new kernel.

    Args:
        path: A chapter.
        with_recorded: Run the long computations, too.

    Returns:
        The output of each cell; empty for a text and for a cell that is not run.

    Raises:
        nbclient.exceptions.CellExecutionError: If a cell fails.
        ValueError: If a check passes before its exercise is solved, or the output of a long
            computation is not recorded.
    """
    cells = read_cells(path)
    made: list[list[Any]] = []
    for number, cell in enumerate(cells):
        is_run = cell.kind == "code" and (with_recorded or cell.role != "recorded")
        sources = [cell.source] if is_run else []
        sources += [cells[number - 1].source] if cell.role == "solution" else []
        tags = ["raises-exception"] if cell.role == "check" else []
        made.append([nbformat.v4.new_code_cell(each, metadata={"tags": tags}) for each in sources])
    prologue = nbformat.v4.new_code_cell(PROLOGUE)
    client = NotebookClient(
        nbformat.v4.new_notebook(cells=[prologue, *(each for pair in made for each in pair)]),
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        timeout=None if with_recorded else 120,
    )
    client.execute(cwd=str(LEARN))
    before, outputs = recorded(path), []
    for cell, ran in zip(cells, made, strict=True):
        printed = [output for each in ran for output in each.outputs]
        if cell.role == "check" and not any(each.output_type == "error" for each in printed):
            raise ValueError(f"the check passes before the exercise is solved:\n{cell.source}")
        if cell.role == "recorded" and not ran:
            if cell.source not in before:
                raise ValueError(
                    f"the output of a long computation of {path.name} is not recorded, or belongs "
                    f"to an earlier code; run execution.py --record {path.stem[:2]}"
                )
            outputs.append(before[cell.source])
            continue
        text = "" if cell.role == "check" else "".join(map(text_of, printed)).rstrip()
        outputs.append(Output(text, made_with(ran[0]) if cell.role == "recorded" else ""))
    return outputs


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


def recorded(path: Path) -> dict[str, Output]:
    """Return the recorded outputs of a chapter's notebook, by the code that computes them."""
    file = path.with_suffix(".ipynb")
    if not file.is_file():
        return {}
    _, *cells = nbformat.read(file, as_version=4).cells
    pairs = zip(cells, stored_outputs(path), strict=True)
    return {cell.source.removeprefix(LONG): output for cell, output in pairs if output.recorded}


def write_notebook(path: Path, *, with_recorded: bool = False) -> None:
    """Run a chapter, and write its notebook."""
    notebook = make_notebook(path, execute(path, with_recorded=with_recorded))
    path.with_suffix(".ipynb").write_text(nbformat.writes(notebook) + "\n", encoding="utf-8")
    print(f"{path.stem}.ipynb is written")


def main(words: Sequence[str] | None = None) -> None:
    """Write the notebooks of the chosen chapters."""
    parser = argparse.ArgumentParser(allow_abbrev=False, description=(__doc__ or "").split("\n")[0])
    parser.add_argument("numbers", nargs="*", metavar="NN", help="chapters to run (default: all)")
    parser.add_argument("--record", action="store_true", help="run the long computations, too")
    text = "write notebooks for students into this folder, and run nothing"
    parser.add_argument("--without-solutions", type=Path, metavar="FOLDER", help=text)
    chosen = parser.parse_args(words)
    paths = [
        each for each in chapter_files() if each.stem[:2] in chosen.numbers or not chosen.numbers
    ]
    if chosen.without_solutions:
        chosen.without_solutions.mkdir(parents=True, exist_ok=True)
        for path in paths:
            notebook = make_notebook(path)
            kept = [cell for cell in notebook.cells if not cell.source.startswith(SOLUTION)]
            notebook.cells = kept
            nbformat.write(notebook, chosen.without_solutions / f"{path.stem}.ipynb")
        return
    with ThreadPoolExecutor(2) as pool:
        [*pool.map(partial(write_notebook, with_recorded=chosen.record), paths)]


if __name__ == "__main__":
    main()
