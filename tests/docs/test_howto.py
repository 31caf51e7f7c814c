"""The home page and the how-to pages: the code runs, and programs accept the commands."""

import doctest
import importlib.util
import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from transformer_blocks import Encoder, LanguageModel, build_encoder, padding_mask
from transformer_blocks.inspection import check_soundness

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "index.md", *sorted((ROOT / "docs" / "howto").glob("*.md"))]
NEEDED = {
    "export_to_onnx": ("onnxruntime", "onnxscript"),
    "see_attention_weights": ("matplotlib", "transformers"),
}
SLOW = ("export_to_onnx", "train_a_model", "your_own_loop")
FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: Path, language: str) -> list[str]:
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [code for name, code in found if name == language]


def run(code: str, names: dict[str, Any], page: Path) -> None:
    """Execute a block of code; if it is a Python session, compare what it prints."""
    if not code.startswith(">>>"):
        exec(compile(code, str(page), "exec"), names)
        return
    session = doctest.DocTestParser().get_doctest(code, names, page.name, str(page), 0)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE, verbose=False)
    messages: list[str] = []
    result = runner.run(session, out=messages.append, clear_globs=False)
    assert result.failed == 0, "".join(messages)
    names.update(session.globs)


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=pytest.mark.slow if page.stem in SLOW else (), id=page.stem)
        for page in PAGES
        if blocks(page, "python")
    ],
)
@pytest.mark.filterwarnings("ignore:.*treespec, LeafSpec:FutureWarning")  # torch's own
@pytest.mark.filterwarnings("ignore:.*is deprecated:DeprecationWarning")
def test_the_code_of_a_page_runs_from_top_to_bottom(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in NEEDED.get(page.stem, ()):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{page.name} needs {package}")
    monkeypatch.chdir(tmp_path)
    module = ModuleType(page.stem)
    monkeypatch.setitem(sys.modules, page.stem, module)  # a compiler imports it
    for code in blocks(page, "python"):
        run(code, vars(module), page)
    for name, model, example in find_models(vars(module)):
        soundness = check_soundness(model, example)
        violated = {*soundness.violated} - {"initialisation"}  # torch copies the first layer
        assert not violated, f"{name} of {page.name}: {soundness}"
        assert not {"device", "dtype"} & set(soundness.not_tried), soundness


def find_models(names: dict[str, Any]) -> Iterator[tuple[str, nn.Module, dict[str, Any]]]:
    """Find the stacks and language models of a page, and make a stack of each attention."""
    tokens = torch.tensor([[5, 6, 7, 8], [4, 3, 0, 0]])
    for name, value in names.items():
        if name.startswith("make_") and not inspect.signature(value).parameters:
            value = build_encoder(num_layers=2, d_model=16, d_ff=32, attention=value)
        if type(value) is Encoder:
            size = len(value.state_dict()["layers.0.self_attention.output_projection.weight"])
            x = torch.randn(2, 4, size)
            yield name, value, {"x": x, "mask": padding_mask(tokens), "causal": True}
        elif type(value) is LanguageModel:
            yield name, value, {"tokens": tokens.clamp(min=1)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_names_the_packages_that_its_code_needs(page: Path) -> None:
    """The index says that code needs the library alone, unless a page says otherwise."""
    ours = {"torch", "transformer_blocks", *(each.stem for each in (ROOT / "examples").iterdir())}
    code, prose = "\n".join(blocks(page, "python")), FENCE.sub("", page.read_text("utf-8"))
    imported = re.findall(r"^(?:>>> |\.\.\. )?(?:from|import) (\w+)", code, re.MULTILINE)
    others = {*imported} - ours - sys.stdlib_module_names
    assert "pip install" in prose or not {name for name in others if name not in prose}


def commands() -> list[list[str]]:
    """List the commands of all pages as words, each beginning with a program of examples/."""
    found = []
    for page in PAGES:
        for code in blocks(page, ""):
            for line in code.replace("\\\n", " ").splitlines():
                words = shlex.split(line, comments=True)
                program = next((i for i, word in enumerate(words) if word.endswith(".py")), None)
                if program is not None:
                    found.append(words[program:])
    return found


def test_the_programs_have_every_option_that_the_pages_name(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert len(commands()) > 10
    helps: dict[tuple[str, str], str] = {}
    for program, command, *words in commands():
        if (program, command) not in helps:
            assert (ROOT / program).parent.name == "examples"
            assert importlib.import_module(Path(program).stem).main([command, "--help"]) == 0
            helps[program, command] = capsys.readouterr().out
        options = {word.partition("=")[0] for word in words if word.startswith("--")}
        known = set(re.findall(r"--[a-z0-9-]+", helps[program, command]))
        assert options <= known, (program, command, options - known)


def test_the_sentences_that_the_pages_translate_belong_to_the_toy_corpus() -> None:
    """Its grammar has one word order; a translator of it makes nonsense of another one."""
    corpus = (ROOT / "examples" / "translation" / "toy_corpus").glob("*.ja")
    known = {line for each in corpus for line in each.read_text("utf-8").splitlines()}
    programs = ROOT / "examples"
    lines = [
        line
        for page in (*PAGES, programs / "README.md", programs / "translate.py")
        for line in page.read_text("utf-8").splitlines()
        if "pretrained.py" not in line  # a model of another corpus
    ]
    sentences = {found for line in lines for found in re.findall(r'"([^"]+。)"', line)}
    assert len(sentences) > 2
    assert sentences <= known


TWO = """
import sys
import torch._dynamo, torch.distributed.fsdp  # once for both
child = os.fork()
os.environ["RANK"] = "0" if child else "1"
"""
BOTH = """
leave, dist.destroy_process_group = dist.destroy_process_group, lambda: None
torch.set_default_dtype(torch.float64)
train(Path(sys.argv[1]), 5)
"""
SHARDED = """
import copy
torch.manual_seed(0)
whole = build_language_model(256, num_layers=2, d_model=8, num_heads=2, d_ff=8, dropout=0.0)
model, (batch, *_) = copy.deepcopy(whole), make_batches(0)
rank = dist.get_rank()
wrap(ModelWithLoss(model))(batch[rank::2], reduction="sum").backward()
whole.loss(batch, reduction="sum").backward()
for parameter, expected in zip(model.parameters(), whole.parameters(), strict=True):
    torch.testing.assert_close(2 * parameter.grad.full_tensor(), expected.grad)
leave()
sys.exit(os.waitpid(child, 0)[1] if child else 0)
"""


def test_a_loop_of_ones_own_is_the_same_resumed_in_two_processes_and_in_one_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, port: str
) -> None:
    page = ROOT / "docs" / "howto" / "your_own_loop.md"
    code = [block.partition("\n\n\nmodel = train(")[0] for block in blocks(page, "python")]
    monkeypatch.setattr(nn.Module, "compile", lambda *_, **__: None)  # the page's own test does it
    once, again, both, joined = (tmp_path / f"{number}.pt" for number in range(4))
    names: dict[str, Any] = {}
    run(code[0], names, page)
    torch.set_default_dtype(torch.float64)
    try:
        names["train"](again, 2)
        both.write_bytes(again.read_bytes())
        for path in (again, once):
            names["train"](path, 5)
        make_batches = names["make_batches"]
        names["make_batches"] = lambda update: make_batches(update, count=1, size=16)
        names["model"] = names["train"](joined, 5)
        run(code[1], names, page)  # compares another loss with that of the model
    finally:
        torch.set_default_dtype(torch.float32)
    program = tmp_path / "loop.py"
    program.write_text("\n".join([code[0], TWO, BOTH, code[-1], SHARDED]), "utf-8")
    told = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    subprocess.run(
        [sys.executable, str(program), str(both)],
        env=os.environ | told | {"TORCHDYNAMO_DISABLE": "1"},
        timeout=300,
        check=True,
    )
    expected = torch.load(once, weights_only=True)
    for path, tolerance in ((again, 0.0), (both, 1e-9), (joined, 1e-9)):
        found = torch.load(path, weights_only=True)
        torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


def test_a_language_model_of_characters_has_at_most_fifteen_lines() -> None:
    program = blocks(ROOT / "docs" / "howto" / "train_a_model.md", "python")[0]
    assert "model.loss(" in program
    assert ".generate(" in program
    assert sum(bool(line) for line in program.splitlines()) <= 15
