"""The pytest plugin: its fixture, the table in the report of a failing test, and what it costs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import transformer_blocks

pytest_plugins = ["pytester"]
SOURCE = Path(transformer_blocks.__file__).parent.parent
PLUGIN = "transformer_blocks_pytest"
TESTS = """
import torch
from torch import nn

def test_sound(assert_sound):
    soundness = assert_sound(nn.LSTM(8, 8, batch_first=True), torch.randn(2, 5, 8))
    assert soundness.kind == "causal"

def test_broken(assert_sound):
    assert_sound(nn.LSTM(8, 8), torch.randn(2, 5, 8))

def test_seed(assert_sound):
    assert torch.initial_seed() == 0
"""


def run(arguments: list[str], folder: Path) -> str:
    """Run pytest in a process of its own, which finds the entry points in a folder."""
    paths = os.pathsep.join((str(SOURCE), str(folder)))
    result = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    return result.stdout + result.stderr


def test_a_failing_test_shows_the_table(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess("-p", PLUGIN)
    result.assert_outcomes(passed=2, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*assert_sound(nn.LSTM(8, 8), torch.randn(2, 5, 8))",
            "E*AssertionError: violated: batch",
            "*soundness of LSTM*",
            "kind: position-wise",
            "check*result*details",
            "determinism*holds",
            "batch*VIOLATED*",
        ]
    )
    assert result.stdout.str().count("kind: ") == 1


@pytest.mark.slow
def test_an_installed_package_needs_no_option(tmp_path: Path) -> None:
    pyproject = (SOURCE.parent / "pyproject.toml").read_text(encoding="utf-8")
    assert f'\n{PLUGIN} = "{PLUGIN}"' in pyproject
    installed = tmp_path / "installed-1.0.dist-info"  # as an installer makes it of pyproject.toml
    installed.mkdir()
    (installed / "METADATA").write_text("Metadata-Version: 2.1\nName: installed\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(f"[pytest11]\n{PLUGIN} = {PLUGIN}\n")
    (tmp_path / "test_it.py").write_text(
        "import sys\n"
        "def test_torch_is_not_imported(request):\n"
        "    assert 'torch' not in sys.modules\n"
        "    assert 'transformer_blocks' not in sys.modules\n"
        "def test_the_fixture_is_there(request):\n"
        "    manager = request.session._fixturemanager\n"
        "    assert manager.getfixturedefs('assert_sound', request.node)\n"
    )
    for options in ([], ["-p", PLUGIN]):
        assert "2 passed" in run(options, tmp_path)


PROJECT = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(10, 8), nn.LSTM(8, 8, batch_first=True)

    def forward(self, tokens):
        x = self.lstm(self.embedding(tokens))[0] @ self.embedding.weight.T
        return x + LEAK * x.roll(-1, 1)

build_model = Model

def training_step(tokens):
    return Model()(tokens[:, :-1]), tokens[:, 1:]
"""


@pytest.mark.parametrize("leak", [0, 1])
def test_the_recipe_of_the_page_passes_or_stops_a_change_that_leaks(
    pytester: pytest.Pytester, leak: int
) -> None:
    page = (SOURCE.parent / "docs" / "howto" / "check_for_leaks.md").read_text(encoding="utf-8")
    recipe = page.split("```py\n")[1].split("```")[0]
    pytester.makepyfile(test_sound=recipe, my_project=f"LEAK = {leak}{PROJECT}")
    (command,) = (
        line.partition("-m pytest ")[2]
        for line in page.splitlines()
        if line.startswith("- run: python -m pytest ")
    )
    result = pytester.runpytest_inprocess("-p", PLUGIN, *command.split())
    result.assert_outcomes(passed=2 - 2 * leak, failed=2 * leak)
    report = (pytester.path / "soundness.xml").read_text(encoding="utf-8")
    assert f'failures="{2 * leak}"' in report
    assert ("violated: causality" in report) == bool(leak)
    assert ("violated: labels" in report) == bool(leak)
