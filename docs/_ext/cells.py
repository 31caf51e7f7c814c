"""Cells: the source of a chapter of the book, and its notebook.

A chapter is one Python file in the percent format (https://jupytext.readthedocs.io): cells begin
with ``# %%``, text cells with ``# %% [markdown]``. Tags give a cell its role:

==================  =============================================================================
``formula``         text: equations that are shown beside the implementation that follows
``implementation``  code: the idea in at most 15 lines
``proof``           code: asserts that the implementation equals the library's
``broken``          code: makes a mistake on purpose, and finds it with one of the library's checks
``stub``            code: the beginning of an exercise, which fails its check
``check``           code: the check of the exercise
``solution``        code: a solution, which passes the check
``recorded``        code: a long computation, whose output is recorded instead of computed each time
==================  =============================================================================

An exercise is a text, then a stub, a check and a solution, in this order.

The notebook, ``NN_name.ipynb``, has the same cells, but its solutions are folded text. It begins
with a cell that installs what is missing. It holds its figures, and what the code prints, also that
of long computations, which are seldom computed again (see ``execution.py``); the pages show the
same.
"""

import base64
import json
import re
import sys
from collections.abc import Sequence
from contextlib import chdir
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jupytext
import nbformat
from nbformat import NotebookNode

LEARN = Path(__file__).parents[1] / "learn"
sys.path.append(str(LEARN))  # a chapter may import what lies beside it, as a notebook
SOLUTION = '<details class="solution"><summary>Solution</summary>'

INSTALL = """\
# What can be changed by hand on the pages that `make docs` writes is a still picture here.
#
# Installs the library if it is missing. A notebook that lies elsewhere, as in Colab, needs
# the repository, too: unpack it, and name its folder here.
repository = "../.."

import importlib.util, os

if not importlib.util.find_spec("transformer_blocks"):
    if not os.path.isfile(f"{repository}/pyproject.toml"):
        raise ModuleNotFoundError("no transformer_blocks here: name the folder of its repository")
    %pip install -q "{repository}[book]"
if os.path.isdir(f"{repository}/docs/learn"):
    os.chdir(f"{repository}/docs/learn")  # beside the programs that some chapters import
"""
UNSOLVED = "# Raises an error, shown in red, until the exercise above is solved.\n"
LONG = "# This cell takes some minutes.\n"


@dataclass(frozen=True)
class Cell:
    """A cell of a chapter.

    Attributes:
        kind: "markdown" or "code".
        source: The text or code.
        role: Its tag, or an empty string.
        output: What the code prints.
        recorded: How a long computation was recorded: "84 s, torch 2.13.0".
    """

    kind: str
    source: str
    role: str = ""
    output: str = ""
    recorded: str = ""


def chapter_files() -> list[Path]:
    """List the chapters in their order."""
    return sorted(LEARN.glob("[0-9][0-9]_*.py"))


def read_cells(path: Path) -> list[Cell]:
    """Read the cells of a chapter, with the outputs that its notebook has for the same code."""
    outputs = stored_outputs(path.with_suffix(".ipynb"))
    return [
        Cell(
            *(cell.cell_type, cell.source, "".join(cell.metadata.get("tags", []))),
            *outputs.get(cell.source, ()),
        )
        for cell in jupytext.read(path, fmt="py:percent").cells
    ]


def prose(path: Path) -> str:
    """Return the texts of a chapter."""
    return "\n\n".join(cell.source for cell in read_cells(path) if cell.kind == "markdown")


def stored_outputs(path: Path) -> dict[str, tuple[str, str]]:
    """Return what the code of a notebook prints, and how that was recorded, by the code."""
    found = {}
    for cell in json.loads(path.read_text("utf-8"))["cells"] if path.is_file() else ():
        source = "".join(cell["source"]).removeprefix(LONG)
        texts = ["".join(each["text"]) for each in cell.get("outputs", ())]
        if source.startswith(SOLUTION):
            source, *texts = re.findall(r"^```\w+\n(.*?)\n```$", source, re.M | re.S)
        found[source] = "".join(texts), cell["metadata"].get("recorded", "")
    return found


def make_notebook(cells: Sequence[Cell]) -> NotebookNode:
    """Make the notebook of a chapter.

    The check of an exercise may fail without stopping the notebook, since the reader has not solved
    it yet. The ids of the cells are their numbers, so that the file changes only with its content.
    """
    made = [nbformat.v4.new_code_cell(INSTALL.strip(), id="install")]
    for number, cell in enumerate(cells):
        metadata: dict[str, Any] = {"tags": ["raises-exception"]} if cell.role == "check" else {}
        metadata |= {"recorded": cell.recorded} if cell.recorded else {}
        if cell.kind == "markdown":
            made.append(nbformat.v4.new_markdown_cell(with_figures(cell.source)))
        elif cell.role == "solution":
            made.append(nbformat.v4.new_markdown_cell(folded(cell)))
        else:
            comment = {"recorded": LONG, "check": UNSOLVED}.get(cell.role, "")
            made.append(nbformat.v4.new_code_cell(comment + cell.source))
            if cell.output:
                printed = nbformat.v4.new_output("stream", name="stdout", text=cell.output)
                made[-1].outputs = [printed]
        made[-1].update(id=f"cell-{number}", metadata=NotebookNode(metadata))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    return nbformat.v4.new_notebook(cells=made, metadata=metadata)


def folded(cell: Cell) -> str:
    """Return the Markdown of a solution and of what it prints, which is shown after a click."""
    printed = f"\n\n```text\n{cell.output}\n```" if cell.output else ""
    return f"{SOLUTION}\n\n```python\n{cell.source}\n```{printed}\n\n</details>"


def with_figures(text: str) -> str:
    """Put the figures of a text into it, so that a copied notebook shows them, too."""

    def embedded(found: re.Match[str]) -> str:
        data = base64.b64encode((LEARN / found[0]).read_bytes()).decode()
        return f"data:image/svg+xml;base64,{data}"

    return re.sub(r"(?<=\]\()figures/\w+\.svg(?=\))", embedded, text)


def definitions(name: str, *, until: str = "") -> dict[str, Any]:
    """Run the code of a chapter, and return what it defines.

    Args:
        name: Name of the chapter's file, without suffix.
        until: The last cell to run is the first whose code contains this text; if empty, the cell
            before the first proof.
    """
    defined: dict[str, Any] = {"print": lambda *_, **__: None}
    with chdir(LEARN):  # as a notebook
        for cell in read_cells(LEARN / f"{name}.py"):
            if cell.role == "proof" and not until:
                break
            if cell.kind == "code" and cell.role not in ("recorded", "stub", "check"):
                exec(cell.source, defined)
                if until and until in cell.source:
                    break
    return defined
