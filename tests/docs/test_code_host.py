"""The pages that are opened first on a code host: plain Markdown, and complete."""

import re
from pathlib import Path

import pytest

from cells import chapter_files, read_cells
from coursework.museum.exhibit import exhibits

DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("index.md", "learn/README.md", "museum/index.md", "howto/index.md")


def shown(page: str) -> str:
    """Return what a code host shows of a page: no comments."""
    return re.sub(r"<!--.*?-->", "", (DOCS / page).read_text("utf-8"), flags=re.S)


@pytest.mark.parametrize("page", PAGES)
def test_no_directive_is_shown_and_every_link_leads_to_a_file(page: str) -> None:
    text = shown(page)
    assert re.findall(r"^(?:`{3,}|:{3,}) *\{.*", text, re.M) == []
    links = re.findall(r"\]\(([^)#:]+)(?:#[\w-]+)?\)", text)
    assert len(links) > 5
    assert [link for link in links if not (DOCS / page).parent.joinpath(link).is_file()] == []


def test_every_chapter_is_listed_with_its_title() -> None:
    titles = {path: read_cells(path)[0].source.splitlines()[0][2:] for path in chapter_files()}
    expected = [f"- [{title}]({path.stem}.ipynb)" for path, title in titles.items()]
    assert [each for each in shown("learn/README.md").splitlines() if ".ipynb)" in each] == expected


def test_every_exhibit_and_every_how_to_is_listed_with_its_title() -> None:
    folder = "../../examples/coursework/museum"
    expected = {f"- [{each.title}]({folder}/{name}.py)" for name, each in exhibits().items()}
    assert {line for line in shown("museum/index.md").splitlines() if folder in line} == expected
    listed = re.findall(r"^- \[(.*?)\]\((.*?)\)", shown("howto/index.md"), re.M)
    pages = [path for path in DOCS.glob("howto/*.md") if path.name != "index.md"]
    titles = {(path.read_text("utf-8").split("\n")[0][2:], path.name) for path in pages}
    assert sorted(listed) == sorted(titles)
