"""The public API: recorded in a file, and its changes described."""

import pkgutil
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import Any

import pytest
from tests.public import PUBLIC
from typing_extensions import deprecated

import public_api
import reference_pages
import transformer_blocks


def test_the_public_api_is_the_recorded_one() -> None:
    written = public_api.FILE.read_text("utf-8").splitlines()
    assert written == public_api.api_lines(), "run `make api`, and review what changes"


def test_the_reference_is_made_from_the_docstrings() -> None:
    folder = reference_pages.FOLDER
    written = {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in folder.rglob("*.md")
    }
    assert written == reference_pages.contents(), "run `make api`"


def test_every_public_name_has_one_place_in_the_reference() -> None:
    things = [thing for page in reference_pages.pages() for thing in page.names.values()]
    for name, thing in PUBLIC.items():
        assert sum(thing is each for each in things) == 1, name
    for page in reference_pages.pages():
        titles = [place.title.replace(".", "").lower() for place in reference_pages.places(page)]
        assert len(titles) == len(set(titles)), page.path


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
        ("=== ====\na   b|cd\n=== ====", "|   |   |\n| --- | --- |\n| a | b\\|cd |"),
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


def test_what_markdown_cannot_show_is_refused() -> None:
    with pytest.raises(ValueError, match="drop a backslash"):
        reference_pages.in_line(r":math:`\{x\}`", to)
    with pytest.raises(ValueError, match="transformer_blocks links to nothing_here"):
        reference_pages.link("index.md", "transformer_blocks", "nothing_here", "x")


def test_all_of_a_sub_package_lists_its_public_names() -> None:
    for info in pkgutil.walk_packages(transformer_blocks.__path__, "transformer_blocks."):
        if info.ispkg:
            package = import_module(info.name)
            names = [name for name in vars(package) if not name.startswith("_")]
            names = [name for name in names if not isinstance(getattr(package, name), ModuleType)]
            assert getattr(package, "__all__", []) == sorted(names), info.name


BEFORE = [
    *("p.f(x: int) -> int", "p.C: class", "p.C.go(self) -> None", "p.old(x) -> int"),
    *("p.E: class", "p.E.__init__(self) -> None"),
]
AFTER = [
    *("p.f(x: int, y: int) -> int", "p.C: class", "p.C.go(self, n: int) -> None"),
    *("p.E: class", "p.E.__init__(self, n: int) -> None"),
    *("p.D: class", "p.D.run(self) -> None"),
]


@pytest.mark.parametrize(
    ("newest", "missing"),
    [
        ("", ["p.C.go", "p.D", "p.E.__init__", "p.f", "p.old"]),
        ("- `f` has an argument y; `old` is gone", ["p.C.go", "p.D", "p.E.__init__"]),
        ("- `C.go` counts, `D` is new, `E` too, `f`, `old`", []),
        ("- f, old, C.go, D, E: no code", ["p.C.go", "p.D", "p.E.__init__", "p.f", "p.old"]),
        ("- `C` and `f`, `D`, `old`", ["p.C.go", "p.E.__init__"]),
    ],
)
def test_a_change_must_be_named_in_the_newest_section(newest: str, missing: list[str]) -> None:
    changelog = f"# Changelog\n\n`f`\n\n## 2\n\n{newest}\n\n## 1\n\n- `f`, `old`, `C.go` and `D`\n"
    assert public_api.undescribed(BEFORE, AFTER, changelog) == missing
    assert not public_api.undescribed(AFTER, AFTER, "")
    assert not public_api.undescribed(BEFORE, AFTER, "# Changelog\n\n## 1\n")  # the first version


@deprecated("use new; removed in 0.3")
def old(x: int) -> int:
    return x


def test_a_deprecated_name_warns_and_is_removed_in_the_version_that_it_names() -> None:
    with pytest.deprecated_call(match=r"^use new; removed in 0\.3$"):
        old(1)
    function: Any = old
    line = f"p.old{public_api._signature(function)}"
    assert line == "p.old(x: int) -> int deprecated('use new; removed in 0.3')"
    assert not public_api.overdue([line], "0.2.9")
    assert public_api.overdue([line], "0.3.0") == public_api.overdue([line], "1.0.0") == ["p.old"]
    assert public_api.overdue(["p.old(x) -> int deprecated('use new')"], "0.1.0") == ["p.old"]
    assert not public_api.overdue(public_api.api_lines(), transformer_blocks.__version__)


def test_nothing_is_written_while_a_change_is_not_described(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(public_api, "FILE", tmp_path / "api.txt")
    monkeypatch.setattr(public_api, "CHANGELOG", tmp_path / "CHANGELOG.md")
    changelog = "# Changelog\n\n## 2\n\n- `C.go`, `old`, {} and `D`\n\n## 1\n"
    public_api.FILE.write_text("".join(f"{line}\n" for line in BEFORE))
    public_api.CHANGELOG.write_text(changelog.format("`E`"))
    monkeypatch.setattr(public_api, "api_lines", lambda: AFTER)
    with pytest.raises(SystemExit, match=r"must name p\.f$"):
        public_api.main()
    assert public_api.FILE.read_text().splitlines() == BEFORE
    public_api.CHANGELOG.write_text(changelog.format("`E`, `f`"))
    public_api.main()
    assert public_api.FILE.read_text().splitlines() == AFTER


def test_the_version_of_the_package_is_that_of_its_distribution_and_of_the_changelog() -> None:
    assert transformer_blocks.__version__ == version("transformer-blocks")
    changelog = public_api.CHANGELOG.read_text("utf-8")
    assert changelog.split("\n## ")[1].split()[0] == transformer_blocks.__version__
