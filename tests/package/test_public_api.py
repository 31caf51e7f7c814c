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
    places = [place for place in reference_pages.places().values() if "#" in place]
    assert len(places) == len({*places})


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
