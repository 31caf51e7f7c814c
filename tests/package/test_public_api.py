"""The public API: documented, and its version that of the changelog."""

import pkgutil
import re
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import pytest
from tests.public import PUBLIC

import reference_pages
import transformer_blocks

ROOT = Path(__file__).parents[2]


def test_the_reference_is_made_from_the_docstrings() -> None:
    folder = reference_pages.FOLDER
    written = {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in folder.rglob("*.md")
    }
    assert written == reference_pages.contents(), "run `make api`"
    text = re.sub(r"(?ms)^```.*?^```$|`[^`\n]*`", "", "\n".join(written.values()))
    formulas = re.findall(r"(?<!\\)\$([^$]+)\$", text)
    assert len(formulas) > 50
    assert [each for each in formulas if re.search(r"\\[^a-zA-Z]", each)] == []  # Markdown drops it


def test_every_public_name_has_one_place_in_the_reference() -> None:
    things = [thing for page in reference_pages.pages() for thing in page.names.values()]
    for name, thing in PUBLIC.items():
        assert sum(thing is each for each in things) == 1, name
    places = [place for place in reference_pages.targets().values() if place[1]]
    anchors = [(page, heading.replace(".", "").lower()) for page, heading in places]
    assert len(anchors) == len({*anchors})


def to(target: str, text: str) -> str:
    return f"[{text}](#{target})"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("``a | b``, *often*", "`a | b`, *often*"),
        (":func:`~p.f` and :math:`x_i`", "[`f`](#p.f) and $x_i$"),
        (":class:`p.C` < $1", r"[`p.C`](#p.C) \< \$1"),
        ("see https://a.org/b.", "see <https://a.org/b>."),
        ("`text <https://a.org>`_", "[text](https://a.org)"),
        (".. math:: a = b", "```math\na = b\n```"),
        (
            ".. math::\n\n   a &= b \\\\\n   c &= d\n\nafter",
            "```math\n\\begin{aligned}\na &= b \\\\\nc &= d\n\\end{aligned}\n```\n\nafter",
        ),
        ("a folder::\n\n    x\n      y\n\nafter", "a folder:\n\n```text\nx\n  y\n```\n\nafter"),
        (">>> f()\n1\n\nafter", "```python\n>>> f()\n1\n```\n\nafter"),
        (".. code-block:: text\n\n   a  b\n\nafter", "```text\na  b\n```\n\nafter"),
    ],
)
def test_a_docstring_becomes_markdown(written: str, shown: str) -> None:
    assert reference_pages.markdown(written, to) == shown


def test_the_sections_of_a_docstring_become_lists() -> None:
    text = (
        "Do.\n\nArgs:\n    x: A number\n        that is: large.\n    y: z.\n\nReturns:\n    It.\n"
    )
    lists = "**Arguments**\n\n- `x`: A number\n  that is: large.\n- `y`: z.\n\n**Returns**\n\nIt."
    assert reference_pages.description(text, to) == f"Do.\n\n{lists}"


def test_every_name_that_a_docstring_links_to_has_a_place() -> None:
    with pytest.raises(ValueError, match="transformer_blocks links to nothing_here"):
        reference_pages.link("index.md", "transformer_blocks", "nothing_here", "x")


def test_all_of_a_sub_package_lists_its_public_names() -> None:
    for info in pkgutil.walk_packages(transformer_blocks.__path__, "transformer_blocks."):
        if info.ispkg:
            package = import_module(info.name)
            names = [name for name in vars(package) if not name.startswith("_")]
            names = [name for name in names if not isinstance(getattr(package, name), ModuleType)]
            assert getattr(package, "__all__", []) == sorted(names), info.name


def test_the_version_of_the_package_is_that_of_its_distribution_and_of_the_changelog() -> None:
    assert transformer_blocks.__version__ == version("transformer-blocks")
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    assert changelog.split("\n## ")[1].split()[0] == transformer_blocks.__version__
