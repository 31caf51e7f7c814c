"""A step of the ladder: its docstring, its printed output, its figure, and its code.

``.. step:: step1_one_query`` runs ``examples/ladder/step1_one_query.py`` as a script. The output is
stored with a hash of the code and of the library, and computed again when one of them changes. So a
page always shows the output of its code.
"""

import ast
import hashlib
import inspect
import subprocess
import sys
from pathlib import Path
from textwrap import indent

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

ROOT = Path(__file__).parents[2]
LADDER = ROOT / "examples" / "ladder"
OUTPUTS = ROOT / "docs" / "_build" / "ladder"


class Step(SphinxDirective):
    """The directive ``step``; its argument is the name of the script."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Run the script, and generate the page's content."""
        script = LADDER / f"{self.arguments[0]}.py"
        self.env.note_dependency(str(script))
        source = script.read_text(encoding="utf-8")
        docstring = inspect.cleandoc(ast.get_docstring(ast.parse(source)) or "")
        _, command, *paragraphs = docstring.split("\n\n")
        code = source.split('"""', 2)[2].strip()
        printed, figure = output_of(script)
        text = "\n\n".join(
            (
                *paragraphs,
                block("console", f"$ {command.strip()}\n{printed}"),
                f".. image:: /{figure.relative_to(ROOT / 'docs')}\n   :alt: figure of this step",
                ".. rubric:: The code\n   :heading-level: 2",
                block("python", code),
            )
        )
        return self.parse_text_to_nodes(StringList(text.splitlines(), str(script)))


def block(language: str, text: str) -> str:
    """Return a code block of a text."""
    return f".. code-block:: {language}\n\n{indent(text, '   ')}"


def output_of(script: Path) -> tuple[str, Path]:
    """Return the printed output and the figure's path of a script, run again after a change."""
    digest = hashlib.sha256()
    for path in (*LADDER.glob("*.py"), *sorted((ROOT / "src").rglob("*.py"))):
        if path.parent != LADDER or path in (script, LADDER / "drawing.py"):
            digest.update(path.read_bytes())
    folder = OUTPUTS / script.stem / digest.hexdigest()[:16]
    number = script.stem.removeprefix("step").partition("_")[0]
    printed, figure = folder / "printed.txt", folder / "runs" / "ladder" / f"step{number}.png"
    if not printed.is_file():
        folder.mkdir(parents=True, exist_ok=True)
        result = subprocess.run(
            [sys.executable, str(script)],
            cwd=folder,
            capture_output=True,
            encoding="utf-8",
            check=True,
        )
        printed.write_text(result.stdout, encoding="utf-8")
    return printed.read_text(encoding="utf-8").rstrip(), figure


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("step", Step)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
