"""The pages on a code host, which shows them as they are: plain Markdown, and complete."""

import re
from pathlib import Path

from cells import chapter_files, read_cells
from coursework.museum.exhibit import exhibits

DOCS = Path(__file__).parents[2] / "docs"
MADE = re.compile(r"museum/(?!index)|learn/../\d|_build|_static")  # by a build


def shown(page: str) -> str:
    """Return what a code host shows of a page: no comments."""
    return re.sub(r"<!--.*?-->", "", (DOCS / page).read_text("utf-8"), flags=re.S)


def test_no_directive_or_role_is_shown_and_every_link_leads_to_a_file() -> None:
    names = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    pages = [name for name in names if not MADE.match(name)]
    assert len(pages) > 80
    for page in pages:
        text = shown(page)
        assert re.findall(r"^(?:`{3,}|:{3,}) *\{.*|\{[a-z:]+\}`", text, re.M) == [], page
        links = re.findall(
            r"\]\(([^)#:\s]+)(?:#[^)\s]+)?\)", re.sub(r"```.*?```|`.*?`", "", text, flags=re.S)
        )
        missing = [each for each in links if not (DOCS / page).parent.joinpath(each).exists()]
        assert missing == [], page


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
