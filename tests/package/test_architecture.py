"""The structure of the package, read from its source: levels, chapters, and what a chapter is."""

import ast
import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.public import EXPORTS, PUBLIC

import reference_pages
import transformer_blocks

ROOT = Path(transformer_blocks.__file__).parent
LEVELS = {
    "_alteration": 0,
    "_contracts": 0,
    "_contexts": 0,
    "_version": 0,
    "files": 0,
    "_tables": 0,
    "fast.caching": 0,
    "fast.dropout": 1,
    "fast.top_k": 1,
    "masks": 1,
    "embedding": 1,
    "cache": 1,
    "loss": 1,
    "schedule": 1,
    "attention": 2,
    "fast.cross_entropy": 2,
    "feed_forward": 2,
    "residual": 2,
    "fast.intervals": 2,
    "fast.attention": 3,
    "variants.explicit": 3,
    "variants.gated_feed_forward": 3,
    "variants.routing": 3,
    "variants.mixture_of_experts": 4,
    "variants.sinks": 4,
    "variants.gated_attention": 5,
    "variants.alternate": 1,
    "variants.latent_attention": 6,
    "variants.lora": 1,
    "variants.pooling": 1,
    "fast.sliding_window": 4,
    "variants.additive": 4,
    "variants.alibi": 4,
    "variants.relative_bias": 4,
    "multi_head": 4,
    "variants.rotary": 5,
    "variants.rotary_scaling": 1,
    "variants.sandwich_norm": 3,
    "variants.query_key_norm": 5,
    "encoder": 5,
    "decoder": 5,
    "encoder_decoder": 6,
    "builders": 6,
    "generation": 6,
    "models": 7,
    "interop": 7,
    "pretrained": 8,
    "inspection": 8,
    "explorer": 9,
    "inference": 10,  # the highest level: nothing imports it
}
WITHOUT_CHAPTER = {"_alteration", "_contracts", "_contexts", "_version", "_tables"}
WITHOUT_CHAPTER |= {"files", "variants.explicit"}
OF_FILES = {"fast", "variants"}  # packages whose files have levels of their own
SOURCES = {
    path.relative_to(ROOT): ast.parse(path.read_text("utf-8")) for path in ROOT.rglob("*.py")
}
CHAPTERS = reference_pages.CHAPTERS
FLAT_CHAPTERS = [Path(f"{name}.py") for name in CHAPTERS if Path(f"{name}.py") in SOURCES]


def level_of(path: Path) -> str:
    """Name what has a level: a flat file, a file of ``fast`` or ``variants``, or a package."""
    parts = [part.removesuffix(".py") for part in path.parts]
    return ".".join(parts[: 2 if parts[0] in OF_FILES else 1])


def imports(tree: ast.Module) -> Iterator[str]:
    """Yield the dotted name of everything imported, also inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def nodes(*kinds: type[ast.AST]) -> Iterator[tuple[Path, Any]]:
    """Yield the parts of these kinds of all files."""
    for path, tree in SOURCES.items():
        yield from ((path, node) for node in ast.walk(tree) if isinstance(node, kinds))


INITS = {Path("__init__.py"), *(Path(name) / "__init__.py" for name in OF_FILES)}
every_file = pytest.mark.parametrize(
    "path", [path for path in SOURCES if path not in INITS], ids=str
)


@every_file
def test_a_file_imports_only_from_lower_levels(path: Path) -> None:
    own = level_of(path)
    assert own in LEVELS, f"give {own} a level"
    for name in imports(SOURCES[path]):
        package, _, rest = name.partition(".")
        assert package, f"{path} imports relatively: {name}"
        if package == "transformer_blocks":
            assert rest, f"{path} imports from __init__"
            parts = rest.split(".")
            other = ".".join(parts[: 2 if parts[0] in OF_FILES else 1])
            is_own_package = own == other and own not in OF_FILES
            assert is_own_package or LEVELS[other] < LEVELS[own], name


INSPECTION = {"changes": 0, "comparison": 0, "explain": 1, "patterns": 1}
INSPECTION |= {"record": 1, "soundness": 1, "compare": 2}


def test_a_folder_of_inspection_imports_only_from_lower_ones() -> None:
    for path, tree in SOURCES.items():
        if path.parts[0] == "inspection" and path.parts[1] != "__init__.py":
            own = path.parts[1].removesuffix(".py")
            for name in imports(tree):
                if name.startswith("transformer_blocks.inspection."):
                    other = name.split(".")[2]
                    assert own == other or INSPECTION[other] < INSPECTION[own], (path, name)


@pytest.mark.parametrize("package", sorted(OF_FILES))
def test_a_package_of_single_files_imports_nothing_itself(package: str) -> None:
    assert not list(imports(SOURCES[Path(package, "__init__.py")]))


@every_file
def test_the_blocks_need_torch_alone(path: Path) -> None:
    allowed = {"torch", "transformer_blocks", *sys.stdlib_module_names}
    if level_of(path) == "explorer":
        allowed |= {"matplotlib", "fontTools"}  # only where a figure is made
    if path == Path("inspection", "record", "values.py"):
        allowed |= {"safetensors"}  # only where values are saved, or loaded
    assert {name.split(".")[0] for name in imports(SOURCES[path])} <= allowed


def test_every_file_has_a_level() -> None:
    assert {level_of(path) for path in SOURCES if path not in INITS} == LEVELS.keys()


@pytest.mark.parametrize("path", FLAT_CHAPTERS, ids=str)
def test_a_chapter_holds_nothing_that_is_there_for_speed_alone(path: Path) -> None:
    tree = SOURCES[path]
    for node in tree.body:  # a measured threshold is a number with a name of its own
        if isinstance(node, ast.Assign | ast.AnnAssign):
            value = node.value
            numbers = [] if value is None else list(ast.walk(value))
            assert not any(
                isinstance(each, ast.Constant) and type(each.value) in (int, float)
                for each in numbers
            ), f"{path}: {ast.unparse(node)}"
    attributes = [each for each in ast.walk(tree) if isinstance(each, ast.Attribute)]
    names = {ast.unparse(each) for each in attributes}
    assert not names & {"torch.compiler", "torch.autograd.Function"}
    assert not {each.attr for each in attributes} & {"_modules", "_parameters", "_buffers"}
    imported = {
        alias.name for each in tree.body if isinstance(each, ast.ImportFrom) for alias in each.names
    }
    assert "has_values" not in imported


def test_no_file_imports_a_private_name_of_another() -> None:
    for path, node in nodes(ast.ImportFrom):
        if str(node.module).startswith("transformer_blocks"):
            assert not [each.name for each in node.names if re.match("_[^_]", each.name)], path


def test_every_fast_form_names_the_torch_call_that_it_equals() -> None:
    for path, tree in SOURCES.items():
        if level_of(path).startswith("fast.") and path not in INITS:
            docstring = ast.get_docstring(tree) or ""
            assert re.search(r"Equals ``torch\.[\w.]+\(", docstring), path


def test_a_mask_is_inverted_in_one_line_where_torch_s_fused_kernel_needs_it() -> None:
    inversions, uses = [], []
    for path, function in nodes(ast.FunctionDef):
        if level_of(path) == "inspection":  # which explains masks
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
                inversions.append((level_of(path), function.name, ast.unparse(node.operand)))
            if isinstance(node, ast.keyword) and node.arg == "attn_mask":
                uses.append((level_of(path), function.name))
    of_masks = [each for each in inversions if each[2] != "fully_masked"]
    assert of_masks == [("fast.attention", "fused_attention", "mask")]
    assert set(uses) == {("fast.attention", "fused_attention")}
    for path in SOURCES:
        text = (ROOT / path).read_text("utf-8")
        assert not re.search(r"logical_not|bitwise_not|mask == (0|False)\b(?!`)", text), path


def test_no_number_stands_for_infinity() -> None:
    for path, node in nodes(ast.Constant):
        assert not isinstance(node.value, int | float) or abs(node.value) <= 1e5, path


WRITERS = {
    "src/transformer_blocks/files.py": "the function that all others call",
    "src/transformer_blocks/explorer/figure.py": "into memory",
    "src/transformer_blocks/inference/program.py": "in a temporary folder",
    "benchmarks/survey/run.py": "lines, of which the last may be lost",
    "examples/common/plots.py": "into memory",
    "examples/common/files.py": "nothing: files are opened again to reach the disk",
    "benchmarks/harness.py": "a switch of the kernel",
}
"""The files that write to the disk without ``files.open_atomically``, and what they write."""
WRITING = {"write_text", "write_bytes", "savefig", "save_file", "tofile", "copyfile", "copy2"}


def writes(call: ast.Call) -> bool:
    """Return whether a call is one of those that write to a file."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    values = [str(each.value) for each in ast.walk(call) if isinstance(each, ast.Constant)]
    modes = [each for each in values if re.fullmatch(r"[rwxabt+]{1,4}", each)]
    opens = re.search("open|ZipFile|File$", name) and any(set(mode) & set("wxa+") for mode in modes)
    is_torch = ast.unparse(call.func) in ("torch.save", "np.save", "np.savez")
    return name in WRITING or bool(opens) or is_torch


def test_all_files_are_written_by_one_function() -> None:
    root = ROOT.parents[1]
    found = {
        path.relative_to(root).as_posix()
        for folder in ("src", "examples", "benchmarks")
        for path in (root / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and writes(node)
    }
    assert found == WRITERS.keys()


def test_errors_are_raised_and_not_asserted() -> None:
    assert [path for path, _ in nodes(ast.Assert)] == []


def test_no_block_accepts_unknown_arguments() -> None:
    for path, function in nodes(ast.FunctionDef):
        # Checks report the names of their arguments; inspection forwards the calls of others.
        if level_of(path) not in ("_contracts", "inspection"):
            options = function.args.kwarg
            is_forwarded = options is not None and ast.unparse(options.annotation or options) in (
                "Inputs.kwargs",  # a decorator, whose function takes what the decorated one takes
                "Options.kwargs",  # of a search
            )
            assert options is None or is_forwarded, (path, function.name)


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_has_a_summary_line(name: str) -> None:
    thing: Any = PUBLIC[name]
    first_line = (thing.__doc__ or "").strip().splitlines()[0]
    assert len(first_line) > 15
    assert first_line.endswith(".")
    assert len(re.sub(r":\w+:|[`~]", "", first_line)) <= 88  # one line of the table of names
    assert thing.__module__.startswith("transformer_blocks.")


def test_public_names_are_exported_in_the_order_of_the_chapters() -> None:
    chapters = []
    for thing in EXPORTS.values():
        parts = str(getattr(thing, "__module__", "")).split(".")[1:]
        names = [".".join(parts[: end + 1]) for end in range(len(parts))]
        home = [name for name in names if name in CHAPTERS][-1]
        chapters.append(CHAPTERS.index(home))
    assert chapters == sorted(chapters)


def test_every_file_is_a_chapter_or_a_part_of_one() -> None:
    assert len(CHAPTERS) == len(set(CHAPTERS))
    parts = WITHOUT_CHAPTER | {name for name in LEVELS if name.startswith("fast.")}
    assert set(CHAPTERS) == (LEVELS.keys() - parts) | OF_FILES


@pytest.mark.parametrize("chapter", CHAPTERS)
def test_every_chapter_ends_with_the_next_one(chapter: str) -> None:
    text = (importlib.import_module(f"transformer_blocks.{chapter}").__doc__ or "").strip()
    end = " ".join(text.split("\n\n")[-1].split())
    if chapter == CHAPTERS[-1]:
        assert "``examples/translation/transformer.py``" in end
        assert "Next chapter" not in text
    else:
        following = CHAPTERS[CHAPTERS.index(chapter) + 1].replace(".", r"\.")
        assert re.fullmatch(rf"Next: :mod:`transformer_blocks\.{following}`, [^.]+\.", end)


def test_a_star_import_gives_the_public_names_alone() -> None:
    names: dict[str, object] = {}
    exec("from transformer_blocks import *", names)
    del names["__builtins__"]
    assert names == EXPORTS
    assert sorted(names) == transformer_blocks.__all__


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "py.typed").exists()
