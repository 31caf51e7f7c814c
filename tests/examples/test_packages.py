"""Programs name the extra to install where a package is missing."""

import importlib
import re
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "package", ["filelock", "matplotlib", "sacrebleu", "safetensors", "sentencepiece", "tqdm"]
)
@pytest.mark.parametrize(
    "module",
    [
        "translation.commands",
        "translation.training",
        "classification.commands",
        "text.commands",
        "pretrained.bert_sentences",
    ],
)
def test_a_missing_package_is_named_with_the_extra_that_has_it(
    module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = ("translation", "common", "classification", "text", "pretrained")
    for name in [*sys.modules]:
        if name.split(".")[0] in (*ours, package):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    message = rf'^this program needs {package}, .* pip install "transformer-blocks\[examples\]"$'
    with pytest.raises(ModuleNotFoundError, match=message):
        importlib.import_module(module)


@pytest.mark.parametrize(
    "command",
    [
        ["translate", "translate", "a", "--run", "runs/nowhere"],
        ["translate", "compare", "runs/one", "runs/nowhere"],
        ["classify", "evaluate", "--run", "runs/nowhere"],
        ["generate_text", "generate", "--run", "runs/nowhere"],
        ["ablate", "runs/nowhere"],
    ],
)
def test_a_run_that_does_not_exist_is_reported_without_torch_and_those_that_do_are_listed(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("one", "two"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.json").touch()
    program, *arguments = command
    for name in [*sys.modules]:
        if name.split(".")[0] in ("translation", "common", "classification", "text", program):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert importlib.import_module(program).main(arguments) == 2
    train = program if program in ("classify", "generate_text") else "translate"
    assert re.fullmatch(
        r"error: runs/nowhere holds no run \(no config.json\); the runs in runs/ are runs/one, "
        rf"runs/two; train one with python examples/{train}.py train.*\n",
        capsys.readouterr().err,
    )
