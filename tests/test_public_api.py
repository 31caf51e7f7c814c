"""The public API: recorded in a file, and its changes described."""

import pkgutil
import re
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import Any

import pytest
from tests.public import PUBLIC
from typing_extensions import deprecated

import public_api
import transformer_blocks


def test_the_public_api_is_the_recorded_one() -> None:
    written = public_api.FILE.read_text("utf-8").splitlines()
    assert written == public_api.api_lines(), "run `make api`, and review what changes"


def test_help_names_every_public_name_beside_the_chapter_that_holds_it() -> None:
    found = {}
    items = r"^\d+\. :mod:`~([\w.]+)`: (.+(?:\n +.+)*)"
    for chapter, text in re.findall(items, transformer_blocks.__doc__ or "", re.M):
        for name in re.findall(r"\w+", text):
            if name in PUBLIC:
                assert PUBLIC[name].__module__.startswith(chapter)
                found[name] = chapter
            else:  # another name, or a word
                assert hasattr(import_module(chapter), name) or re.fullmatch("[a-z]+", name), name
    assert found.keys() == PUBLIC.keys()


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
    (tmp_path / "api.txt").write_text("".join(f"{line}\n" for line in BEFORE))
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## 2\n\n- `C.go`, `old`, `E` and `D`\n\n## 1\n"
    )
    monkeypatch.setattr(public_api, "api_lines", lambda: AFTER)
    with pytest.raises(SystemExit, match=r"must name p\.f$"):
        public_api.main()
    assert (tmp_path / "api.txt").read_text().splitlines() == BEFORE
    (tmp_path / "CHANGELOG.md").write_text(
        "# Changelog\n\n## 2\n\n- `C.go`, `old`, `f`, `E` and `D`\n\n## 1\n"
    )
    public_api.main()
    assert (tmp_path / "api.txt").read_text().splitlines() == AFTER


def test_the_version_of_the_package_is_that_of_its_distribution_and_of_the_changelog() -> None:
    assert transformer_blocks.__version__ == version("transformer-blocks")
    changelog = public_api.CHANGELOG.read_text("utf-8")
    assert changelog.split("\n## ")[1].split()[0] == transformer_blocks.__version__
