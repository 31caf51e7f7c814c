"""The page that shows the explorer's forward pass beside its Python code."""

import re
from pathlib import Path

import pytest

from transformer_blocks.explorer.page import read_script

cover = pytest.importorskip("cover")  # needs the extra docs
PAGE = Path(__file__).parents[2] / "docs" / "paper" / "javascript.md"


def test_the_page_shows_all_code_of_the_forward_pass_in_its_order() -> None:
    rest = read_script("blocks")
    for name in re.findall(r"(?m)^:::\{beside\} (\w+)", PAGE.read_text("utf-8")):
        before, code, rest = rest.partition(cover.javascript("blocks.js", name))
        assert code, f"{name} stands in another place of the file"
        assert all(line.startswith("//") for line in filter(None, before.splitlines())), before
    assert not rest.strip()
