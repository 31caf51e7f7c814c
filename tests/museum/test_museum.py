"""The museum: every published fault is found by the check that should, and no mended model is."""

import importlib
import io
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tests.browser import in_browser
from torch import Tensor, nn

from transformer_blocks.inspection import Report
from transformer_blocks.museum import Exhibit, __main__, examine, exhibit, exhibits, reading
from transformer_blocks.museum.exhibit import THEMES, modules

EXHIBITS = exhibits()
FOLDER = Path(exhibit.__file__).parent
PUBLIC_DOMAINS = ("github.com", "discuss.pytorch.org", "discuss.huggingface.co", "arxiv.org")
every_exhibit = pytest.mark.parametrize("name", EXHIBITS)


@every_exhibit
def test_the_fault_is_found_by_the_check_that_should_and_the_mended_model_is_not_accused(
    name: str,
) -> None:
    examination = examine(EXHIBITS[name])
    assert examination.found, examination.broken
    assert not examination.accused, examination.mended


@every_exhibit
def test_an_exhibit_does_not_depend_on_the_state_of_the_generator(name: str) -> None:
    def outputs() -> list[Tensor]:
        made = EXHIBITS[name].broken()
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
    shown, module = EXHIBITS[name], modules()[name]
    docstring, code = module.__doc__ or "", reading.code(module)
    assert docstring.splitlines()[0] == f"{shown.title}."
    assert not reading.story(module)[0].startswith(shown.title)
    assert re.search(r"\b20[12]\d\b", docstring), "the story names the year"
    assert re.fullmatch(rf"https://({'|'.join(PUBLIC_DOMAINS)})/\S+", shown.source)
    assert reading.FAULT.search(code)
    assert not code.startswith('"')
    assert len(code.splitlines()) < 130
    assert {"-", "+"} <= {line[:1] for line in reading.difference(module).splitlines()}


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


def make(**others: Any) -> Exhibit:
    """Make an exhibit whose broken model is found."""
    given: dict[str, Any] = {
        "title": "A fault",
        "theme": "masks",
        "source": "https://github.com",
        "found_by": "causality",
        "broken": lambda: "wrong",
        "mended": lambda: "",
        "examine": lambda model: Report("causality", (model,) if model else ()),
    }
    return Exhibit(**given | others)


def test_a_fault_counts_as_found_only_by_the_check_that_should_find_it() -> None:
    assert examine(make()).found
    assert not examine(make()).accused
    assert not examine(make(found_by="padding")).found
    assert not examine(make(broken=lambda: "")).found
    assert examine(make(mended=lambda: "wrong")).accused


@pytest.mark.parametrize(
    ("argument", "invalid"),
    [
        ("theme", "mask"),
        *((name, 1) for name in ("theme", "title", "source", "found_by")),
        *((name, "x") for name in ("broken", "mended", "examine")),
    ],
)
def test_an_invalid_argument_of_an_exhibit_is_refused_by_name(argument: str, invalid: Any) -> None:
    with pytest.raises((TypeError, ValueError), match=rf"^{argument} must "):
        make(**{argument: invalid})
    with pytest.raises(TypeError, match=r"^exhibit must "):
        examine(invalid)


def test_the_program_lists_the_exhibits_with_numbers(capsys: pytest.CaptureFixture[str]) -> None:
    assert __main__.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    for number, (name, shown) in enumerate(EXHIBITS.items(), 1):
        assert f"  {number:3}. {name} ({shown.found_by})" in lines
    assert max(map(len, lines)) <= 80
    assert "python -m transformer_blocks.museum" in " ".join(lines[-2:])


NUMBER = 1 + [*EXHIBITS].index("mean_over_padding")


@pytest.mark.parametrize("chosen", ["mean_over_padding", "mean-over-padding", str(NUMBER)])
def test_the_program_shows_one_exhibit(chosen: str, capsys: pytest.CaptureFixture[str]) -> None:
    name = "mean_over_padding"
    assert __main__.main([chosen]) == 0
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


class Terminal(io.StringIO):
    """A terminal, whose width the environment gives."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_its_width_and_colours_that_can_be_switched_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def shown(*arguments: str, **environment: str) -> list[str]:
        with monkeypatch.context() as patch:
            for name, value in {"TERM": "xterm", "NO_COLOR": "", **environment}.items():
                patch.setenv(name, value)
            screen = Terminal()
            patch.setattr(sys, "stdout", screen)
            assert __main__.main(arguments) == 0
            return screen.getvalue().splitlines()

    lines = shown("mean_over_padding", COLUMNS="60")
    bold, red, green, end = "\033[1m", "\033[31m", "\033[32m", "\033[0m"
    assert {f"{bold}What is mended{end}", f"{red}  -    return x.mean(dim=1){end}"} <= {*lines}
    for part in (f"{green}  +", f"{red}VIOLATED{end}", f"  {green}holds{end}"):
        assert any(part in line for line in lines), part
    plain = [re.sub(r"\033\[\d+m", "", line) for line in lines]
    for switch in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
        assert shown("mean_over_padding", COLUMNS="60", **switch) == plain
    for columns in (70, 120):
        lines = shown("mean_over_padding", COLUMNS=str(columns), NO_COLOR="1")
        story = lines[: lines.index("The code")]
        assert columns - 20 < max(map(len, story)) <= columns
        assert max(map(len, shown(COLUMNS=str(columns), NO_COLOR="1"))) <= columns
    assert "    1. \033[1m" in "".join(shown(COLUMNS="80"))


def fail(model: Any) -> Report:
    raise RuntimeError("no such thing")


@pytest.mark.parametrize(
    ("first", "result"),
    [
        ({}, "found"),
        ({"broken": lambda: ""}, "NOT FOUND"),
        ({"mended": lambda: "wrong"}, "found, BUT THE MENDED MODEL FAILS A CHECK"),
        ({"examine": fail}, "FAILED: no such thing"),
    ],
)
def test_the_program_examines_all_prints_the_score_and_exits_with_1_if_one_is_not_right(
    first: dict[str, Any],
    result: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(__main__, "exhibits", lambda: {"one": make(**first), "two": make()})
    is_right = result == "found"
    assert __main__.main(["--all"]) == int(not is_right)
    one, two, score = re.split(r"\n(?! )", capsys.readouterr().out.strip())
    assert " ".join(one.split()) == f"one causality {result}"
    assert re.fullmatch(r"two +causality +found", two)
    assert re.fullmatch(rf"{1 + is_right} of 2 found in \d+\.\d s", score)


@pytest.mark.parametrize(
    ("line", "hint"),
    [
        ("nothing", "museum lists the names and numbers"),
        ("-1", f"exhibits have the numbers 1 to {len(EXHIBITS)}, got '-1'"),
        ("9" * 5000, f"exhibits have the numbers 1 to {len(EXHIBITS)}, got '999"),
        ("mean over paddin", r"\(did you mean mean_over_padding\?\)"),
        ("Layuot and mode", "'layout and modes' is a theme; its exhibits are .*view_instead"),
        ("--all;1", "--all takes no exhibit"),
        ("--al", r"unknown argument --al \(did you mean --all\?\)"),
    ],
)
def test_the_program_refuses_what_it_does_not_know_in_one_line_with_a_hint(
    line: str, hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        __main__.main(line.split(";"))
    assert caught.value.code == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert re.fullmatch(rf"error: .*{hint}.*\n", error)
    assert len(error) < 800


@pytest.mark.parametrize("arguments", [[], ["--help"], ["--version"]])
def test_the_program_fails_in_one_line_if_its_output_cannot_be_written(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        with pytest.raises(SystemExit) as caught:
            __main__.main(arguments)
    assert caught.value.code == 2
    message = "error: cannot write standard output: No space left on device\n"
    assert capfd.readouterr().err == message


@pytest.mark.slow
def test_the_program_is_quiet_when_its_reader_ends() -> None:
    command = [sys.executable, "-m", "transformer_blocks.museum", "--all"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(next(iter(EXHIBITS)))
        process.stdout.close()
        _, error = process.communicate()
    assert (process.returncode, error) == (0, "")


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
    museum.write_pages(SimpleNamespace(srcdir=tmp_path))
    assert {path.stem for path in folder.glob("*.md")} == EXHIBITS.keys() | {"index"}
    for name, shown in EXHIBITS.items():
        assert (folder / f"{name}.md").read_text("utf-8").startswith(f"# {shown.title}\n")
    assert museum.FURTHER.keys() == set(THEMES)
    docs = Path(museum.__file__).parents[1]
    for chapter, page in map(str.split, museum.FURTHER.values()):
        assert (docs / "learn" / f"{chapter}.py").is_file()
        assert (docs / "reference" / f"{page}.md").is_file()


@every_exhibit
def test_a_page_highlights_the_statement_of_the_fault(name: str) -> None:
    source = reading.code(modules()[name])
    numbers = extension().fault_lines(source)
    lines = [source.splitlines()[number - 1].strip() for number in numbers]
    assert any(reading.FAULT.search(line) for line in lines)
    assert any(line and not line.startswith("#") for line in lines)
    assert len(lines) <= 20
    assert source.rstrip().endswith(")")
    assert "\nEXHIBIT = Exhibit(" in source


@every_exhibit
def test_a_card_shows_what_was_mended_and_where_the_fault_was_published(name: str) -> None:
    museum, shown = extension(), EXHIBITS[name]
    made = museum.card(name, shown, modules()[name])
    assert f'href="{name}.html"' in made
    assert f"<b>{shown.found_by}</b>" in made
    assert f"/{museum.library(shown)}/" in shown.source
    assert museum.library(shown) != "github.com"
    assert 1 <= made.count('<span class="gi">+ ') <= 2
    assert made.count('<span class="gd">- ') <= 2


@pytest.mark.slow
@in_browser
def test_the_filters_leave_the_cards_of_a_library_and_of_a_check(
    browser: Any, tmp_path: Path
) -> None:
    museum = extension()
    script = Path(museum.__file__).parents[1] / "_static" / "widgets" / "museum.js"
    cards = "".join(museum.card(name, each, modules()[name]) for name, each in EXHIBITS.items())
    page_file = tmp_path / "page.html"
    page_file.write_text(
        f'<div id="widget-museum"></div><script>{script.read_text("utf-8")}</script>'
        f'<ol class="exhibits">{cards}</ol>',
        encoding="utf-8",
    )
    page = browser.new_page()
    page.goto(page_file.as_uri())
    assert page.locator("li:visible").count() == len(EXHIBITS)
    for library, check in (("pytorch/pytorch", "cache"), ("", "mask polarity"), ("", "")):
        page.select_option("select[name=library]", library)
        page.select_option("select[name=check]", check)
        expected = [
            each.title
            for each in EXHIBITS.values()
            if museum.library(each).startswith(library) and each.found_by.startswith(check)
        ]
        assert page.locator("li:visible strong").all_inner_texts() == expected
        status = f"{len(expected)} of {len(EXHIBITS)} exhibits"
        assert page.inner_text("[role=status]") == status
    page.close()
