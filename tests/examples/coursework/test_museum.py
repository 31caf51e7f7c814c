"""The museum: every published fault is found by the check that should, and no mended model is."""

import importlib
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import course
from coursework.museum import exhibit
from coursework.museum.exhibit import FAULT, THEMES, code, difference, exhibits, violated

EXHIBITS = exhibits()
FOLDER = Path(exhibit.__file__).parent
PUBLIC_DOMAINS = ("github.com", "discuss.pytorch.org", "discuss.huggingface.co", "arxiv.org")
every_exhibit = pytest.mark.parametrize("name", EXHIBITS)


@every_exhibit
def test_the_fault_is_found_by_the_check_that_should_and_the_mended_model_is_not_accused(
    name: str,
) -> None:
    shown = EXHIBITS[name]
    broken, mended = (shown.examine(shown.make(state)) for state in ("broken", "mended"))
    assert shown.found_by in violated(broken), broken
    assert not violated(mended), mended


@every_exhibit
def test_an_exhibit_does_not_depend_on_the_state_of_the_generator(name: str) -> None:
    def outputs() -> list[Tensor]:
        made = EXHIBITS[name].make("broken")
        return list(made.state_dict().values()) if isinstance(made, nn.Module) else []

    before = torch.get_rng_state()
    first = outputs()
    assert torch.equal(torch.get_rng_state(), before)
    torch.randn(3)
    assert all(map(torch.equal, first, outputs()))


@every_exhibit
def test_an_exhibit_says_what_was_published_where_and_shows_the_fault_and_its_mending(
    name: str,
) -> None:
    shown = EXHIBITS[name]
    docstring, source = shown.module.__doc__ or "", code(shown.module)
    assert docstring.splitlines()[0] == f"{shown.title}."
    assert not shown.story[0].startswith(shown.title)
    assert re.search(r"\b20[12]\d\b", docstring), "the story names the year"
    assert re.fullmatch(rf"https://({'|'.join(PUBLIC_DOMAINS)})/\S+", shown.source)
    assert FAULT.search(source)
    assert not source.startswith('"')
    assert len(source.splitlines()) < 130
    assert {"-", "+"} <= {line[:1] for line in difference(shown.module).splitlines()}


def test_there_are_at_least_thirty_different_exhibits_of_all_themes() -> None:
    assert len(EXHIBITS) >= 30
    for attribute in ("title", "source"):
        values = [getattr(each, attribute) for each in EXHIBITS.values()]
        assert len(set(values)) == len(values)
    assert {each.theme for each in EXHIBITS.values()} == set(THEMES)
    themes = [THEMES.index(each.theme) for each in EXHIBITS.values()]
    assert themes == sorted(themes)
    files = {path.stem for path in FOLDER.glob("*.py")}
    assert files == EXHIBITS.keys() | exhibit.NOT_EXHIBITS | {"__init__"}


def test_the_program_lists_the_exhibits_with_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert course.main(["museum"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for number, (name, shown) in enumerate(EXHIBITS.items(), 1):
        assert f"  {number:3}. {name} ({shown.found_by})" in lines
    assert max(map(len, lines)) <= 88


NUMBER = 1 + [*EXHIBITS].index("mean_over_padding")


@pytest.mark.parametrize("chosen", ["mean_over_padding", "mean-over-padding", str(NUMBER)])
def test_the_program_shows_one_exhibit(chosen: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = "mean_over_padding"
    assert course.main(["museum", chosen]) == 0
    text = capsys.readouterr().out
    assert text.startswith(f"{EXHIBITS[name].title}\n===")
    headings = "The code|What is mended|The report on the broken model|The report on the mended"
    story, code, difference, broken, mended = re.split(headings, text)
    assert EXHIBITS[name].source in story
    assert "class Mended(Broken):" in code
    assert "-    return x.mean(dim=1)" in difference
    assert "VIOLATED" in broken
    assert "VIOLATED" not in mended
    assert max(map(len, (story + broken + mended).splitlines())) <= 80
    assert course.main(["museum", "mean_over_paddin"]) == 2
    assert "or mean_over_padding, got 'mean_over_paddin'" in capsys.readouterr().err


def extension() -> Any:
    """Import the extension that makes the pages."""
    pytest.importorskip("sphinx")
    return importlib.import_module("museum")


def test_every_exhibit_has_a_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    museum, folder = extension(), tmp_path / "museum"
    folder.mkdir()
    monkeypatch.setattr(museum, "PAGES", folder)
    (folder / "index.md").touch()
    (folder / "no_longer_shown.md").touch()
    museum.add_pages(SimpleNamespace(srcdir=tmp_path))
    assert {path.stem for path in folder.glob("*.md")} == EXHIBITS.keys() | {"index"}
