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
with a cell that installs what is missing. It holds its figures, and the outputs that the chapter's
page shows, also those of long computations, which are seldom computed again (see ``execution.py``).
"""

import base64
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
SOLUTION = "<details><summary>Solution</summary>"

INSTALL = """\
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
    """

    kind: str
    source: str
    role: str = ""


def chapter_files() -> list[Path]:
    """List the chapters in their order."""
    return sorted(LEARN.glob("[0-9][0-9]_*.py"))


def read_cells(path: Path) -> list[Cell]:
    """Read the cells of a chapter."""
    return [
        Cell(cell.cell_type, cell.source, "".join(cell.metadata.get("tags", [])))
        for cell in jupytext.read(path, fmt="py:percent").cells
    ]


def prose(path: Path) -> str:
    """Return the texts of a chapter."""
    return "\n\n".join(cell.source for cell in read_cells(path) if cell.kind == "markdown")


@dataclass(frozen=True)
class Output:
    """What a cell prints, and how a long computation was recorded: "84 s, torch 2.13.0"."""

    text: str = ""
    recorded: str = ""


def make_notebook(path: Path, outputs: Sequence[Output] = ()) -> NotebookNode:
    """Make the notebook of a chapter.

    The check of an exercise may fail without stopping the notebook, since the reader has not solved
    it yet. The ids of the cells are their numbers, so that the file changes only with its content.

    Args:
        path: The chapter.
        outputs: The output of each cell of the chapter; without them, the notebook has none.
    """
    cells = read_cells(path)
    made = [nbformat.v4.new_code_cell(INSTALL.strip(), id="install")]
    for number, (cell, output) in enumerate(
        zip(cells, outputs or [Output()] * len(cells), strict=True)
    ):
        metadata: dict[str, Any] = {"tags": ["raises-exception"]} if cell.role == "check" else {}
        metadata |= {"recorded": output.recorded} if output.recorded else {}
        if cell.kind == "markdown":
            text = with_figures(plain_markdown(cell.source, path.stem))
            made.append(nbformat.v4.new_markdown_cell(text))
        elif cell.role == "solution":
            printed = f"\n\n```text\n{output.text}\n```" if output.text else ""
            folded = f"```python\n{cell.source}\n```{printed}"
            folded = f"{SOLUTION}\n\n{folded}\n\n</details>"
            made.append(nbformat.v4.new_markdown_cell(folded))
        else:
            comment = {"recorded": LONG, "check": UNSOLVED}.get(cell.role, "")
            made.append(nbformat.v4.new_code_cell(comment + cell.source))
            if output.text:
                printed = nbformat.v4.new_output("stream", name="stdout", text=output.text)
                made[-1].outputs = [printed]
        made[-1].update(id=f"cell-{number}", metadata=NotebookNode(metadata))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    metadata = {"kernelspec": kernel, "language_info": {"name": "python"}}
    notebook = nbformat.v4.new_notebook(cells=made, metadata=metadata)
    nbformat.validate(notebook)
    return notebook


def stored_outputs(path: Path) -> list[Output]:
    """Return what the notebook of a chapter shows below each cell of the chapter."""
    _, *cells = nbformat.read(path.with_suffix(".ipynb"), as_version=4).cells
    outputs = []
    for cell in cells:
        text = "".join(each.text for each in cell.get("outputs", ()))
        if cell.source.startswith(SOLUTION):
            text = "".join(re.findall(r"```text\n(.*)\n```", cell.source, re.S))
        outputs.append(Output(text, cell.metadata.get("recorded", "")))
    return outputs


def plain_markdown(text: str, chapter: str = "") -> str:
    """Replace what only Sphinx knows: links to the API become code, widgets links to pages."""
    text = re.sub(r"\{[a-z:]+\}`~?(?:[\w.]*\.)?(\w+)`", r"`\1`", text)
    link = f"*Interactive on the page of this chapter, `docs/_build/html/learn/{chapter}.html`, "
    link += "which `make docs` writes.*"
    widget = r"^```\{widget\} (\w+)\n(!.*\n)?(?:.*\n)*?```$"
    text = re.sub(widget, rf"\2\n{link}", text, flags=re.M)
    text = re.sub(r"^(`{3,}|:{3,})\{\w+\}.*?^\1$", "", text, flags=re.M | re.S)
    text = re.sub(r"\]\((\d\d_\w+)\.py(#[\w-]+)?\)", r"](\1.ipynb)", text)
    exhibit = r"\]\(\.\./museum/(?!index)(\w+)\.md\)"  # its page is made with the others
    text = re.sub(exhibit, r"](../../examples/coursework/museum/\1.py)", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def with_figures(text: str) -> str:
    """Put the figures of a text into it, so that a copied notebook shows them, too."""
    return re.sub(r"(?<=\]\()figures/\w+\.svg(?=\))", lambda found: embedded(found[0]), text)


def embedded(figure: str) -> str:
    """Return the address of a figure that holds the figure."""
    data = base64.b64encode((LEARN / figure).read_bytes()).decode()
    return f"data:image/svg+xml;base64,{data}"


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
