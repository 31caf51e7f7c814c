"""How the files stand to each other, read from the source itself."""

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.public import EXPORTS, PUBLIC

import transformer_blocks

ROOT = Path(transformer_blocks.__file__).parent
FLOORS = {
    "_checks": 0,
    "dropout": 1,
    "masks": 1,
    "embedding": 1,
    "cache": 1,
    "loss": 1,
    "schedule": 1,
    "feed_forward": 2,
    "residual": 2,
    "attention": 2,
    "kernels": 3,
    "additive": 4,
    "rotary": 4,
    "linear_bias": 4,
    "query_key_norm": 4,
    "multi_head": 4,
    "grouped_query": 5,
    "encoder": 5,
    "decoder": 5,
    "generation": 5,
    "encoder_decoder": 6,
    "builders": 6,
    "packing": 6,
    "inspection": 7,
    "interop": 7,
    "explorer": 8,
}
SOURCES = {
    path.relative_to(ROOT): ast.parse(path.read_text("utf-8")) for path in ROOT.rglob("*.py")
}
BLOCKS = {path: tree for path, tree in SOURCES.items() if path != Path("__init__.py")}
CHAPTERS = re.findall(
    r"^\d+\. :mod:`~transformer_blocks\.(\w+)`", transformer_blocks.__doc__ or "", re.M
)


def room(path: Path) -> str:
    """Name the file, or the package that a file is a part of."""
    return path.parts[0].removesuffix(".py")


def imports(tree: ast.Module) -> Iterator[str]:
    """Yield the dotted name of everything imported, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


every_block = pytest.mark.parametrize("path", BLOCKS, ids=str)


@every_block
def test_a_file_imports_only_from_lower_floors(path: Path) -> None:
    assert room(path) in FLOORS, f"give {room(path)} a floor"
    for name in imports(BLOCKS[path]):
        package, _, rest = name.partition(".")
        assert package, f"{path} imports relatively: {name}"
        if package == "transformer_blocks":
            assert rest, f"{path} imports from __init__"
            other = rest.split(".")[0]
            within_its_package = len(path.parts) > 1 and other == room(path)
            assert within_its_package or FLOORS[other] < FLOORS[room(path)], name


@every_block
def test_the_blocks_need_torch_alone(path: Path) -> None:
    allowed = {"torch", "transformer_blocks", *sys.stdlib_module_names}
    if room(path) == "explorer":
        allowed |= {"matplotlib", "fontTools"}  # only where a picture is made
    assert {name.split(".")[0] for name in imports(BLOCKS[path])} <= allowed


def test_every_floor_has_its_file() -> None:
    assert {room(path) for path in BLOCKS} == FLOORS.keys()
    tests = {path.stem for path in Path(__file__).parent.glob("test_*.py")}
    assert {f"test_{name}" for name in FLOORS if not name.startswith("_")} <= tests


def functions() -> Iterator[tuple[Path, ast.FunctionDef]]:
    for path, tree in SOURCES.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef):
                yield path, node


def test_a_mask_is_inverted_in_one_line_where_torch_s_kernel_wants_it() -> None:
    inversions, uses = [], []
    for path, function in functions():
        if room(path) == "inspection":  # which computes nothing with masks, but tells about them
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
                inversions.append((path.stem, function.name, ast.unparse(node.operand)))
            if isinstance(node, ast.keyword) and node.arg == "attn_mask":
                uses.append((path.stem, function.name))
    of_masks = [each for each in inversions if each[2] != "fully_masked"]
    assert of_masks == [("attention", "fused_attention", "hidden")]
    assert uses == [("attention", "fused_attention")]
    for path in SOURCES:
        text = (ROOT / path).read_text("utf-8")
        assert not re.search(r"logical_not|bitwise_not|mask == (0|False)\b(?!`)", text), path


def test_no_number_stands_in_for_infinity() -> None:
    for path, tree in SOURCES.items():
        numbers = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)]
        large = [n for n in numbers if isinstance(n, int | float) and abs(n) > 1e5]
        assert large == [], path


def test_errors_are_raised_and_not_asserted() -> None:
    for path, tree in SOURCES.items():
        assert not any(isinstance(node, ast.Assert) for node in ast.walk(tree)), path


def test_no_block_swallows_unknown_arguments() -> None:
    for path, function in functions():
        # Checks report the names of their arguments; inspection hands on the calls of others.
        if room(path) not in ("_checks", "inspection"):
            options = function.args.kwarg
            is_handed_on = options is not None and ast.unparse(options.annotation or options) == (
                "Inputs.kwargs"  # a decorator, whose function takes what the decorated one takes
            )
            assert options is None or is_handed_on, (path, function.name)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_can_be_imported_and_tells_what_it_does(name: str) -> None:
    thing: Any = PUBLIC[name]
    first_line = (thing.__doc__ or "").strip().splitlines()[0]
    assert len(first_line) > 15
    assert first_line.endswith((".", ":"))
    assert thing.__module__.startswith("transformer_blocks.")


def test_public_names_stand_in_the_order_of_the_chapters() -> None:
    homes = [
        CHAPTERS.index(thing.__module__.split(".")[1]) for thing in map(any_of, EXPORTS.values())
    ]
    assert homes == sorted(homes)


def any_of(thing: object) -> Any:
    return thing


def test_every_file_but_the_checks_is_a_chapter() -> None:
    assert len(CHAPTERS) == len(set(CHAPTERS))
    assert set(CHAPTERS) == FLOORS.keys() - {"_checks"}


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_chapter_names_the_next_and_the_last_one_the_whole(chapter: str) -> None:
    text = (importlib.import_module(f"transformer_blocks.{chapter}").__doc__ or "").strip()
    end = " ".join(text.split("\n\n")[-1].split())
    following = [*CHAPTERS, None][CHAPTERS.index(chapter) + 1]
    if following is None:
        assert "``examples/translation/transformer.py``" in end
        assert "Next chapter" not in text
    else:
        assert re.fullmatch(rf"Next chapter: :mod:`transformer_blocks\.{following}`, [^.]+\.", end)


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "py.typed").exists()
