"""The page that shows the explorer's forward pass beside its Python code."""

import pkgutil
import re
from pathlib import Path

import pytest
from tests.public import PUBLIC

from transformer_blocks.explorer.page import read_script

cover = pytest.importorskip("cover")  # needs the extra docs
PAGE = Path(__file__).parents[2] / "docs" / "paper" / "javascript.md"
FOUND = re.findall(r"(?ms)^:::\{beside\} (\w+)(.*?)\n(.*?)^:::$", PAGE.read_text("utf-8"))


def test_the_page_shows_all_code_of_the_forward_pass_in_its_order() -> None:
    rest = read_script("blocks")
    for name, _, _ in FOUND:
        before, code, rest = rest.partition(cover.javascript("blocks.js", name))
        assert code, f"{name} stands in another place of the file"
        assert all(line.startswith("//") for line in filter(None, before.splitlines())), before
    assert not rest.strip()


@pytest.mark.parametrize(("name", "paths", "text"), FOUND, ids=[name for name, *_ in FOUND])
def test_a_function_has_the_python_code_of_its_name_or_is_said_to_have_none(
    name: str, paths: str, text: str
) -> None:
    partners = [each for each in PUBLIC if same(each.rpartition(".")[2], name)]
    shown = [each for path in paths.split() for each in path.split(".")]
    for path in paths.split():
        pkgutil.resolve_name(path)
    assert text.strip().endswith(".")
    has_partner = any(same(each.strip("_"), name) for each in shown)
    assert has_partner != text.startswith("Without a partner")
    assert has_partner or not partners


def same(python: str, name: str) -> bool:
    """Return whether two languages write a name in their own way."""
    return python.replace("_", "").lower() == name.lower()
