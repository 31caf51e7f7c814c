"""The figures of the book: each is drawn from the present code, and used."""

import json
import re
from pathlib import Path

import pytest

import draw
import explorer_page
import readme_picture
import style

NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
TOLERANCE = 0.5  # of a point: libraries of other versions may round differently

NAMES = draw.load()


def differences(drawn: str, stored: str) -> list[str]:
    """List how two drawings differ, apart from small differences between their numbers."""
    if NUMBER.sub("#", drawn) != NUMBER.sub("#", stored):
        return ["other shapes or words"]
    pairs = zip(NUMBER.findall(drawn), NUMBER.findall(stored), strict=True)
    return [f"{new} for {old}" for new, old in pairs if abs(float(new) - float(old)) > TOLERANCE]


@pytest.mark.parametrize("name", NAMES)
def test_a_figure_is_up_to_date(name: str) -> None:
    stored = (draw.FIGURES / f"{name}.svg").read_text(encoding="utf-8")
    found = differences(style.as_svg(name), stored)
    assert found == [], f"`make pictures` draws {name}.svg again"


def test_a_moved_shape_and_another_word_are_differences() -> None:
    assert differences("<text x='1.2'>cat</text>", "<text x='1.4'>cat</text>") == []
    assert differences("<text x='1.2'>cat</text>", "<text x='3.4'>cat</text>") == ["1.2 for 3.4"]
    assert differences("<text>cat</text>", "<text>dog</text>") == ["other shapes or words"]


def test_every_file_is_drawn_and_shown() -> None:
    assert sorted(path.stem for path in draw.FIGURES.glob("*.svg")) == sorted(NAMES)
    text = "".join(
        path.read_text(encoding="utf-8") for path in Path(draw.HERE.parent).rglob("*.py")
    )
    assert [name for name in NAMES if f"figures/{name}.svg" not in text] == []


def test_a_figure_has_no_color_that_vanishes_on_a_dark_page() -> None:
    for path in draw.FIGURES.glob("*.svg"):
        text = path.read_text(encoding="utf-8").replace("#000000; stroke-opacity: 0;", "")
        colors = set(re.findall(r"#(?:[0-9a-f]{6}|[0-9a-f]{3})\b", text))
        fallbacks = set(re.findall(r"#[0-9a-f]{6}", "".join(style.VARIABLES.values())))
        outside = {color for color in colors - fallbacks if color not in (*style.COLORS, "#ffffff")}
        assert outside == set(), path.name


def test_the_explorer_of_chapter_14_is_up_to_date(tmp_path: Path) -> None:
    explorer_page.save_page(tmp_path / "page.html")
    drawn = (tmp_path / "page.html").read_text(encoding="utf-8")
    stored = explorer_page.PAGE.read_text(encoding="utf-8")
    data = re.compile(r'<script type="application/json".*?</script>', re.DOTALL)
    assert data.sub("", drawn) == data.sub("", stored), "`make pictures` makes the page again"
    assert len(data.findall(stored)) == 1


def test_the_picture_of_the_readme_is_up_to_date() -> None:
    record = json.loads(readme_picture.RECORD.read_text(encoding="utf-8"))
    assert record["explorer"] == readme_picture.explorer_hash(), "`make pictures` takes it again"
    assert record["sentence"] in (draw.HERE.parents[1] / "README.md").read_text(encoding="utf-8")
