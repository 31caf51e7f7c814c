"""Pickles of tensors are converted to safetensors; no code in a pickle is ever run."""

import os
import pickle
import warnings
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from tests.pretrained.published import one_error_line

from pretrained import convert, pickles


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_becomes_safetensors_with_the_same_numbers(
    tmp_path: Path, zipped: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    tensors = {
        f"layer.{number}": torch.randn(3, number + 1).to(dtype)
        for number, dtype in enumerate((torch.float32, torch.float16, torch.bfloat16, torch.int64))
    }
    torch.save(
        OrderedDict(tensors),
        tmp_path / "pytorch_model.bin",
        _use_new_zipfile_serialization=zipped,
    )
    assert convert.main([str(tmp_path)]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'model.safetensors'}\n"
    names = [path.name for path in sorted(tmp_path.iterdir())]
    assert names == ["model.safetensors", "pytorch_model.bin"]
    found = load_file(tmp_path / "model.safetensors")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor)


def test_a_tied_tensor_is_saved_once_and_views_are_copied(tmp_path: Path) -> None:
    table, stack = torch.randn(5, 4), torch.randn(3, 4, 4)
    content = {
        "shared": table,
        "output": table,
        "turned": table.t(),
        **{f"layer.{number}": part for number, part in enumerate(stack)},
        "empty": torch.empty(0),
        "numbers": torch.arange(5),
    }
    torch.save(content, tmp_path / "pytorch_model.bin")
    found = load_file(pickles.convert(tmp_path))
    assert found.keys() == content.keys() - {"output"}
    assert all(torch.equal(found[name], content[name]) for name in found)


class Hostile:
    def __init__(self, call: Callable[..., object], *arguments: object) -> None:
        self.call, self.arguments = call, arguments

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call, self.arguments


@pytest.mark.parametrize("forced", [False, True])
@pytest.mark.parametrize("kind", ["torch", "legacy", "plain", "inside a tensor"])
def test_no_code_in_a_pickle_is_run(
    tmp_path: Path,
    kind: str,
    forced: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    if forced:
        monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    created = tmp_path / "run"
    hostile = Hostile(os.mkdir, str(created))
    content: object = {"weight": torch.ones(2), "x": hostile}
    if kind == "inside a tensor":
        rest: tuple[object, ...] = 0, (2,), (1,), False, OrderedDict()
        content = {"weight": Hostile(torch._utils._rebuild_tensor_v2, hostile, *rest)}
    path = tmp_path / "pytorch_model.bin"
    if kind == "plain":
        path.write_bytes(pickle.dumps(content))
    else:
        torch.save(content, path, _use_new_zipfile_serialization=kind != "legacy")
    assert convert.main([str(tmp_path)]) == 2
    assert "holds more than tensors, or is damaged: refused" in one_error_line(capsys)
    assert sorted(tmp_path.iterdir()) == [path]
    # The attack itself works; its result makes no tensor.
    with warnings.catch_warnings(action="ignore"), suppress(AttributeError):
        data = path.read_bytes()
        torch.load(path, weights_only=False) if kind != "plain" else pickle.loads(data)
    assert created.is_dir()


def truncated(path: Path, *, zipped: bool = True) -> None:
    torch.save({"weight": torch.zeros(10**4)}, path, _use_new_zipfile_serialization=zipped)
    path.write_bytes(path.read_bytes()[:-500])


BAD: list[tuple[Callable[[Path], object], str]] = [
    (lambda path: None, "pytorch_model.bin: No such file"),
    (lambda path: path.touch(), "pytorch_model.bin cannot be read as a file of"),
    (lambda path: path.write_bytes(bytes(range(255, 0, -1))), "pytorch_model.bin"),
    (truncated, "cannot read"),
    (lambda path: truncated(path, zipped=False), "cannot be read as a file of tensors"),
    (lambda path: torch.save([1], path), "must hold named tensors, got a list"),
    (
        lambda path: torch.save({"state_dict": {"a": torch.ones(1)}}, path),
        "must hold named tensors, got 'state_dict': dict",
    ),
    (lambda path: torch.save({1: torch.ones(1)}, path), "must hold named tensors, got 1: Tensor"),
    (
        lambda path: torch.save({"a": torch.eye(3).to_sparse()}, path),
        "tensor 'a' must be dense, neither quantised nor on meta",
    ),
    (
        lambda path: torch.save({"a": torch.ones(10**12, device="meta")}, path),
        "tensor 'a' must be dense, neither quantised nor on meta",
    ),
    (lambda path: path.mkdir(), "pytorch_model.bin is not a file"),
]


@pytest.mark.parametrize(("make", "message"), BAD)
def test_a_file_without_named_tensors_is_reported_in_one_line(
    make: Callable[[Path], object], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path / "pytorch_model.bin")
    before = sorted(tmp_path.iterdir())
    assert convert.main([str(tmp_path)]) == 2
    assert message in one_error_line(capsys)
    assert sorted(tmp_path.iterdir()) == before


def test_an_existing_file_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.save({"weight": torch.ones(2)}, tmp_path / "pytorch_model.bin")
    (tmp_path / "model.safetensors").write_bytes(b"mine")
    assert convert.main([str(tmp_path)]) == 2
    assert "model.safetensors exists already" in one_error_line(capsys)
    assert (tmp_path / "model.safetensors").read_bytes() == b"mine"
