"""The committed pictures: each is what the present code makes, and shown by some page."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import chapter_07
import draw
import explorer_page
import pictures
import style
from pictures import IMAGES, PICTURES
from transformer_blocks import build_decoder, build_encoder
from transformer_blocks.explorer import AttentionMaps, Explorer

ROOT = Path(__file__).parents[2]
FIGURE_1 = ROOT / "docs" / "_static" / "architecture.svg"
"""The paper's, drawn by hand."""


QUICK = (
    *("temperature", "padding_mask_weights", "rotary_scores", "learning_rate", "overfitting"),
    "explorer",  # whose sources are compared, not its pixels
)
"""Pictures of each kind that take a quarter of a second at most: shapes, weights and curves."""


@pytest.mark.parametrize(
    "picture",
    [
        pytest.param(each, marks=() if each.path.stem in QUICK else (pytest.mark.slow,))
        for each in PICTURES
    ],
    ids=lambda picture: picture.path.name,
)
def test_a_picture_is_up_to_date(picture: pictures.Picture) -> None:
    again = f"`make pictures` makes {picture.path.name} again"
    assert picture.difference() == "", again


@pytest.mark.parametrize("build", [build_encoder, build_decoder])
def test_figure_1_shows_the_sublayers_of_a_layer_and_links_to_chapters(build: Any) -> None:
    side = build.__name__.removeprefix("build_")
    text = FIGURE_1.read_text("utf-8")
    boxes = re.findall(rf'<a href="learn/(\w+)\.html" .*aria-label="(.+), {side}"', text)
    assert all((ROOT / f"docs/learn/{chapter}.py").is_file() for chapter, _ in boxes)
    shown = [name.lower().replace("-", "_").rpartition("head ")[2] for _, name in boxes[::2]]
    (layer,) = build(num_layers=1, d_model=4, num_heads=1, d_ff=4).layers
    parts = [name for name, _ in layer.named_children()]
    assert parts == [name for each in shown for name in (each, f"{each}_residual")]
    assert [name for _, name in boxes[1::2]] == ["Add &amp; norm"] * len(shown)
    masked = [name for _, name in boxes if name.startswith("Masked")]
    assert len(masked) == (build is build_decoder)


def test_every_picture_is_made_and_shown() -> None:
    files = [file for folder in (draw.FIGURES, IMAGES) for file in folder.iterdir()]
    pictures_there = {file for file in files if file.suffix not in ("", ".json")}
    by_hand = {draw.FIGURES / f"{name}.svg" for name in draw.BY_HAND}
    assert pictures_there == {picture.path for picture in PICTURES} | by_hand
    assert by_hand.isdisjoint(picture.path for picture in PICTURES)
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "docs").rglob("*.py")]
    text = "".join(page.read_text(encoding="utf-8") for page in pages if "_build" not in page.parts)
    shown = {path: f"{path.parent.name}/{path.name})" for path in pictures_there}
    assert [path.name for path, link in shown.items() if link not in text] == []


def test_recorded_numbers_are_used_and_say_where_they_are_from() -> None:
    images = {picture.data for picture in PICTURES if isinstance(picture, pictures.DataFigure)}
    figures = {style.recorded(name) for name in style.COMPUTATIONS}
    assert set(pictures.DATA.iterdir()) == images | figures
    for file in images | figures:
        data = json.loads(file.read_text(encoding="utf-8"))
        assert (ROOT / data["command"].split()[1]).is_file()
        assert data["origin"]


def agrees(found: Any, stored: Any) -> bool:
    """Return whether numbers agree as far as CPUs do.

    Where a curve is steep, another CPU is there a recorded time earlier or later: a number of a
    row may be any between those of the rows beside it.
    """
    if isinstance(stored, dict):
        return list(found) == list(stored) and agrees([*found.values()], [*stored.values()])
    if not isinstance(stored, list):
        return bool(found == (stored if isinstance(stored, str) else approximately(stored)))
    times: list[Any] = [row[0] if isinstance(row, list) and row else None for row in stored]
    is_curve = all(isinstance(time, int) for time in times) and times == sorted({*times})
    if not is_curve:
        return len(found) == len(stored) and all(map(agrees, found, stored))
    if [row[0] for row in found] != times:
        return False
    for i, row in enumerate(found):
        for column in range(1, len(row)):
            beside = [each[column] for each in stored[max(0, i - 1) : i + 2]]
            nearest = min(max(row[column], min(beside)), max(beside))
            if row[column] != approximately(nearest):
                return False
    return True


def approximately(number: float) -> Any:
    return pytest.approx(number, abs=0.2, rel=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("name", style.COMPUTATIONS)
def test_recorded_numbers_are_those_of_the_present_code_as_far_as_cpus_agree(name: str) -> None:
    stored = json.loads(style.recorded(name).read_text(encoding="utf-8"))["numbers"]
    found = json.loads(json.dumps(style.COMPUTATIONS[name]()))
    if name == "word_map":  # of a whole training, which no two CPUs compute alike
        check_map(**found)
        check_map(**stored)
        return
    if name == "layer_gradients":  # the gradient without normalisation grows with its rounding
        now, before = (numbers["norms"].pop("residual only") for numbers in (found, stored))
        assert now == pytest.approx(before, abs=1.5)
        assert min(now[:3]) > max(now[-3:]) + 1
    assert agrees(found, stored)


def check_map(points: list[list[float]], lines: list[list[list[float]]]) -> None:
    """Check what the map of words says: groups lie together, past tenses on one side."""
    sizes = [len(group.split()) for group in chapter_07.GROUPS.values()]
    groups = torch.tensor(points).split(sizes)
    centres = torch.stack([group.mean(dim=0) for group in groups])
    nearest = torch.cdist(torch.tensor(points), centres).argmin(dim=1)
    own = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    assert (nearest == own).float().mean() > 0.8
    assert all(end[0] > start[0] + 0.4 for start, end in lines)


def test_a_figure_has_no_color_that_vanishes_on_a_dark_page() -> None:
    for path in draw.FIGURES.glob("*.svg"):
        text = path.read_text(encoding="utf-8").replace("#000000; stroke-opacity: 0;", "")
        colors = set(re.findall(r"#(?:[0-9a-f]{6}|[0-9a-f]{3})\b", text))
        fallbacks = set(re.findall(r"#[0-9a-f]{6}", "".join(style.VARIABLES.values())))
        outside = {color for color in colors - fallbacks if color not in (*style.COLORS, "#ffffff")}
        assert outside == set(), path.name


def test_the_page_of_the_book_has_the_present_scripts() -> None:
    small = Explorer([AttentionMaps("maps", torch.ones(1, 1, 1, 1), ["a"])]).html
    scripts = [
        re.findall(r"script-src [^;]*", page)
        for page in (small, explorer_page.PAGE.read_text(encoding="utf-8"))
    ]
    assert len(scripts[0]) == 1
    assert scripts[0] == scripts[1], "`make pictures` makes the page again"


@pytest.mark.slow
def test_the_explorer_of_chapter_14_is_up_to_date(tmp_path: Path) -> None:
    explorer_page.save_page(tmp_path / "page.html")
    drawn = (tmp_path / "page.html").read_text(encoding="utf-8")
    stored = explorer_page.PAGE.read_text(encoding="utf-8")
    data = re.compile(r'<script type="application/json".*?</script>', re.DOTALL)
    assert data.sub("", drawn) == data.sub("", stored), "`make pictures` makes the page again"
    assert len(data.findall(stored)) == 1
