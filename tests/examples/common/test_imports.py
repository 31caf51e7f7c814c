"""How the example programs stand to each other, read from their imports."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[3] / "examples"
PACKAGES = ("common", "translation", "classification", "text", "coursework")
PROGRAMS = {
    "translate": {"common", "translation"},
    "ablate": {"common", "translation"},
    "classify": {"common", "classification"},
    "generate_text": {"common", "text"},
    "course": {"common", "coursework", "translation"},  # the toy corpus
    "train_minimal": set[str](),
    "pretrain_encoder": set[str](),
    "pretrained": {"common"},
    "vision_transformer": set[str](),
}
"""What each program may import, besides the library."""
FILES = sorted(path for package in PACKAGES for path in (EXAMPLES / package).glob("*.py"))


def imports(path: Path) -> Iterator[str]:
    """Yield the dotted name of every module that a file imports, also inside functions."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            yield from (
                [f"{module}.{a.name}" for a in node.names] if module in PACKAGES else [module]
            )


def imported_packages(path: Path) -> set[str]:
    """Return the example packages that a file imports."""
    return {name.partition(".")[0] for name in imports(path)} & {*PACKAGES, *PROGRAMS}


def imported_files(path: Path, found: set[Path]) -> set[Path]:
    """Add a file and all example files that it imports, directly or not, to ``found``."""
    if path not in found:
        found.add(path)
        packages = [EXAMPLES / package / "__init__.py" for package in imported_packages(path)]
        modules = [EXAMPLES / f"{name.replace('.', '/')}.py" for name in imports(path)]
        for each in (*packages, *modules):
            if each.is_file():
                imported_files(each, found)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_package_imports_common_and_the_library_only(path: Path) -> None:
    package = path.parent.name
    assert imported_packages(path) <= {package, "common"}


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_program_imports_common_and_its_own_package_only(program: str) -> None:
    assert imported_packages(EXAMPLES / f"{program}.py") <= PROGRAMS[program]


def test_the_list_of_programs_is_complete() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == PROGRAMS.keys()


def test_no_program_starts_torch_distributed_or_matplotlib_for_a_published_model() -> None:
    files = imported_files(EXAMPLES / "pretrained.py", set())
    names = {name.partition(".")[0] for path in files for name in imports(path)}
    assert "matplotlib" not in names
    assert not {path.stem for path in files} & {"distributed", "plots", "training", "toy"}
