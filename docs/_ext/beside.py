"""Beside: a function of the explorer's page beside the Python code that computes the same.

``{beside} preNorm transformer_blocks.PreNorm.forward`` is a section with the function ``preNorm``
of ``blocks.js`` on the left and the named Python code on the right, one below the other on a
telephone. Both are quoted from their files when the page is built. The content says how they
differ. A function without Python code has its content alone.
"""

import inspect
import pkgutil
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from chapter import without_docstrings
from cover import SCRIPTS, javascript


class Beside(SphinxDirective):
    """The directive ``beside``: the name of a function, and the paths of Python code."""

    required_arguments = 1
    optional_arguments = 20
    has_content = True

    def run(self) -> list[nodes.Node]:
        """Return the section of the function."""
        name, *paths = self.arguments
        script = SCRIPTS / "blocks.js"
        self.env.note_dependency(str(script))
        code = javascript(script.name, name)
        place = nodes.paragraph("", "JavaScript", classes=["place"])
        halves = [[place, nodes.literal_block(code, code, language="javascript")], []]
        for path in paths:
            found = pkgutil.resolve_name(path)
            file = Path(inspect.getsourcefile(found) or "")
            self.env.note_dependency(str(file))
            code = without_docstrings(inspect.getsource(found))
            name_in_file = path.removeprefix("transformer_blocks.").removeprefix(f"{file.stem}.")
            place = nodes.paragraph("", f"{file.name}: {name_in_file}", classes=["place"])
            halves[1] += [place, nodes.literal_block(code, code, language="python")]
        boxes = [nodes.container("", *half) for half in halves if half]
        pair = nodes.container("", *boxes, classes=["halves"] if paths else [])
        title = nodes.title("", "", nodes.literal(name, name))
        return [nodes.section("", title, *self.parse_content_to_nodes(), pair, ids=[name.lower()])]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("beside", Beside)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
