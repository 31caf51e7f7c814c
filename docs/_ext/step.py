"""A step of the ladder: its docstring, its code, what it prints, and its picture.

``.. step:: step1_one_query`` runs ``examples/ladder/step1_one_query.py`` as a person would, unless
nothing has changed since it was run last, so a page never shows an output that its code does not
have.
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
    """The directive; its argument is the name of the script."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Run the script and lay out what it is and says."""
        script = LADDER / f"{self.arguments[0]}.py"
        self.env.note_dependency(str(script))
        source = script.read_text(encoding="utf-8")
        docstring = inspect.cleandoc(ast.get_docstring(ast.parse(source)) or "")
        _, command, *paragraphs = docstring.split("\n\n")
        code = source.split('"""', 2)[2].strip()
        printed, picture = output_of(script)
        text = "\n\n".join(
            (
                *paragraphs,
                block("console", f"$ {command.strip()}\n{printed}"),
                f".. image:: /{picture.relative_to(ROOT / 'docs')}\n   :alt: the picture it draws",
                ".. rubric:: The code\n   :heading-level: 2",
                block("python", code),
            )
        )
        return self.parse_text_to_nodes(StringList(text.splitlines(), str(script)))


def block(language: str, text: str) -> str:
    """Set text as it is."""
    return f".. code-block:: {language}\n\n{indent(text, '   ')}"


def output_of(script: Path) -> tuple[str, Path]:
    """Run a script where its code or the library's has changed; give its output and picture."""
    digest = hashlib.sha256()
    for path in (*LADDER.glob("*.py"), *sorted((ROOT / "src").rglob("*.py"))):
        if path.parent != LADDER or path in (script, LADDER / "drawing.py"):
            digest.update(path.read_bytes())
    folder = OUTPUTS / script.stem / digest.hexdigest()[:16]
    number = script.stem.removeprefix("step").partition("_")[0]
    printed, picture = folder / "printed.txt", folder / "runs" / "ladder" / f"step{number}.png"
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
    return printed.read_text(encoding="utf-8").rstrip(), picture


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("step", Step)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
