"""The structure of the package, read from its source: who imports whom, and what no file does."""

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import pytest
from tests.public import EXPORTS, PUBLIC

import reference_pages
import transformer_blocks

ROOT = Path(transformer_blocks.__file__).parent
OF_FILES = {"fast", "variants"}  # packages whose files are chapters of their own, or parts of one
NO_CHAPTER = {"_alteration", "_contracts", "_contexts", "_version", "_tables", "files"}
SOURCES = {
    path.relative_to(ROOT): ast.parse(path.read_text("utf-8")) for path in ROOT.rglob("*.py")
}
CHAPTERS = reference_pages.CHAPTERS


def unit_of(parts: Sequence[str]) -> str:
    """Name the unit that a file or a module belongs to: files of these packages are their own."""
    depth = 2 if parts[0] in OF_FILES | {"inspection"} else 1
    return ".".join(part.removesuffix(".py") for part in parts[:depth]).removesuffix(".__init__")


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


def test_units_import_each_other_in_one_direction_and_nothing_imports_inference() -> None:
    graph: dict[str, set[str]] = {}
    for path in SOURCES.keys() - INITS:
        imported = graph.setdefault(own := unit_of(path.parts), set())
        for name in imports(SOURCES[path]):
            package, _, rest = name.partition(".")
            assert package, f"{path} imports relatively: {name}"
            if package == "transformer_blocks":
                assert rest, f"{path} imports from __init__"
                imported.add(unit_of(rest.split(".")))
        imported.discard(own)
    TopologicalSorter(graph).prepare()  # raises an error that names a cycle
    assert not any("inference" in imported for imported in graph.values())


@every_file
def test_the_blocks_need_torch_alone(path: Path) -> None:
    allowed = {"torch", "transformer_blocks", *sys.stdlib_module_names}
    if path.parts[0] == "explorer":
        allowed |= {"matplotlib", "fontTools"}  # only where a figure is made
    if path.parts[0] == "pretrained":
        allowed |= {"huggingface_hub", "safetensors", "sentencepiece", "tokenizers"}
    if path == Path("inspection", "record", "values.py"):
        allowed |= {"safetensors"}  # only where values are saved, or loaded
    assert {name.split(".")[0] for name in imports(SOURCES[path])} <= allowed


def test_no_file_imports_a_private_name_of_another() -> None:
    for path, node in nodes(ast.ImportFrom):
        if str(node.module).startswith("transformer_blocks"):
            assert not [each.name for each in node.names if re.match("_[^_]", each.name)], path


def test_a_mask_is_inverted_in_one_line_where_torch_s_fused_kernel_needs_it() -> None:
    inversions, uses = [], []
    for path, function in nodes(ast.FunctionDef):
        if path.parts[0] == "inspection":  # which explains masks
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Invert):
                inversions.append((path.as_posix(), function.name, ast.unparse(node.operand)))
            if isinstance(node, ast.keyword) and node.arg == "attn_mask":
                uses.append((path.as_posix(), function.name))
    of_masks = [each for each in inversions if each[2] != "fully_masked"]
    assert of_masks == [("fast/attention.py", "fused_attention", "mask")]
    assert set(uses) == {("fast/attention.py", "fused_attention")}
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
    "examples/coursework/progress.py": "without the library, whose import takes seconds",
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
        # Checks report the names of their arguments; inspection and ModelWithLoss forward calls.
        if path.parts[0] not in ("_contracts.py", "inspection", "loss.py"):
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


def test_every_file_is_a_chapter_or_a_part_of_one() -> None:
    units = {".".join(path.with_suffix("").parts[: 1 + (path.parts[0] == "variants")])
             for path in SOURCES.keys() - INITS}  # fmt: skip
    assert len(CHAPTERS) == len(set(CHAPTERS))
    assert set(CHAPTERS) == (units - NO_CHAPTER - {"variants.explicit"}) | {"variants"}


def test_a_star_import_gives_the_public_names_alone() -> None:
    names: dict[str, object] = {}
    exec("from transformer_blocks import *", names)
    del names["__builtins__"]
    assert names == EXPORTS
    assert sorted(names) == transformer_blocks.__all__


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "py.typed").exists()
