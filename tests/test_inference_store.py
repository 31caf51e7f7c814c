"""Kept programs: only what this user kept on this machine, unchanged, is loaded."""

import ctypes
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_blocks import PreNorm, build_decoder, build_encoder
from transformer_blocks.inference import compiled, prepare
from transformer_blocks.inference import store as module
from transformer_blocks.inference.compiled import CompiledDecoder
from transformer_blocks.inference.store import MOST_PROGRAMS, ProgramStore

SIZES: dict[str, Any] = {"num_layers": 1, "d_model": 16, "num_heads": 4, "d_ff": 24}
KEY, OTHER_KEY = "a" * 64, "a" * 32 + "b" * 32  # of one file name


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep the secret of these tests in a folder of their own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "transformer_blocks"


@pytest.fixture
def store(tmp_path: Path) -> ProgramStore:
    return ProgramStore(tmp_path / "programs")


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "library.so"
    path.write_bytes(bytes(range(48)))
    return path


def read(path: str) -> bytes:
    return Path(path).read_bytes()


def kept(store: ProgramStore) -> Path:
    (path,) = store.folder.iterdir()
    return path


def test_what_was_kept_is_loaded_from_a_copy_that_is_then_removed(
    store: ProgramStore, library: Path
) -> None:
    store.save(KEY, library, {"limit": float("inf")})
    paths = []

    def open_library(path: str) -> bytes:
        paths.append(Path(path))
        assert paths[0].parent.stat().st_mode & 0o777 == 0o700
        assert kept(store) not in paths
        return read(path)

    assert store.load(KEY, open_library) == (library.read_bytes(), {"limit": float("inf")})
    assert not paths[0].parent.exists()
    assert store.load("c" * 64, read) is None


def test_no_program_with_a_changed_byte_is_loaded(store: ProgramStore, library: Path) -> None:
    store.save(KEY, library, {"limit": 7})
    path = kept(store)
    data = path.read_bytes()
    changed = [data[:-1], data + b"\0", b"", data[:32], data[:20]]
    for i in range(len(data)):
        changed.append(data[:i] + bytes([data[i] ^ 1 << i % 8]) + data[i + 1 :])
    for each in changed:
        path.write_bytes(each)
        assert store.load(KEY, pytest.fail) is None
    path.write_bytes(data)
    assert store.load(KEY, read)


def test_a_foreign_program_is_not_executed(
    store: ProgramStore, tmp_path: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    compiler = shutil.which("c++") or pytest.skip("no C++ compiler")
    trace, source, library = (tmp_path / name for name in ("trace", "main.cpp", "main.so"))
    source.write_text(
        "#include <cstdio>\n__attribute__((constructor)) void leave_a_trace()"
        f' {{ std::fclose(std::fopen("{trace}", "w")); }}\n'
    )
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, source], check=True)
    store.save(KEY, library, {})
    own, secret = kept(store).read_bytes(), state / "secret"
    assert secret.stat().st_mode & 0o777 == 0o600
    secret.rename(tmp_path / "secret of this user")
    assert store.load(KEY, ctypes.CDLL) is None  # a user without a secret
    store.save(KEY, library, {})  # another user keeps the same program
    foreign = kept(store).read_bytes()
    (tmp_path / "secret of this user").replace(secret)
    for content in (foreign, library.read_bytes(), own[:32] + foreign[32:-1]):
        kept(store).write_bytes(content)
        assert store.load(KEY, ctypes.CDLL) is None
    kept(store).write_bytes(own)
    assert store.load(OTHER_KEY, ctypes.CDLL) is None  # for another model or version
    assert not trace.exists()
    assert len(caplog.messages) == 5
    assert store.load(KEY, ctypes.CDLL)
    assert trace.exists()


@pytest.mark.parametrize("kind", ["link", "pipe", "folder", "of another user"])
def test_only_a_regular_file_of_this_user_is_read(
    kind: str, store: ProgramStore, library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.save(KEY, library, {})
    path = kept(store)
    if kind == "of another user":
        monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    else:
        path.rename(tmp_path / "program")
    if kind == "link":
        path.symlink_to(tmp_path / "program")
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "folder":
        path.mkdir()
    assert store.load(KEY, pytest.fail) is None


@pytest.mark.parametrize("kind", ["readable by others", "a link", "too short", "no folder"])
def test_nothing_is_kept_with_a_secret_that_may_not_be_secret(
    kind: str, store: ProgramStore, library: Path, state: Path, caplog: pytest.LogCaptureFixture
) -> None:
    state.parent.mkdir()
    if kind == "no folder":
        state.write_text("a file where the folder would be")
    else:
        state.mkdir()
        secret = state / "secret"
        secret.write_bytes(bytes(31 if kind == "too short" else 32))
        secret.chmod(0o640 if kind == "readable by others" else 0o600)
        if kind == "a link":
            secret.rename(state / "other")
            secret.symlink_to(state / "other")
    store.save(KEY, library, {})
    assert len(caplog.messages) == 1
    assert not store.folder.exists()


def _raise(error: Exception, *_: object, **__: object) -> None:
    raise error


@pytest.mark.parametrize("kind", ["a file", "read-only", "a full disk", "no state"])
def test_what_cannot_be_kept_only_costs_the_keeping(
    kind: str,
    store: ProgramStore,
    library: Path,
    state: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if kind == "a file":
        store.folder.touch()
    elif kind == "read-only":
        monkeypatch.setattr(Path, "mkdir", partial(_raise, PermissionError("read-only")))
    elif kind == "a full disk":
        monkeypatch.setattr(Path, "replace", partial(_raise, OSError("No space left on device")))
    else:
        monkeypatch.setattr(os, "link", partial(_raise, OSError("not supported")))
    store.save(KEY, library, {})
    (message,) = caplog.messages
    assert "is not kept" in message
    assert not store.folder.is_dir() or not [*store.folder.iterdir()]
    assert not [*state.glob("*.part")]


def test_a_program_that_cannot_be_loaded_is_compiled_again(
    store: ProgramStore, library: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store.save(KEY, library, {})
    assert store.load(KEY, partial(_raise, RuntimeError("an undefined symbol"))) is None
    assert "is not used: an undefined symbol" in caplog.messages[0]


def in_another_process(store: ProgramStore, library: Path, action: str) -> "subprocess.Popen[str]":
    """Start a process that imports the store alone, without torch."""
    program = (
        "import importlib.util, os, signal, sys\n"
        "from pathlib import Path\n"
        "_, file, folder, library, key = sys.argv\n"
        "spec = importlib.util.spec_from_file_location('transformer_blocks', file)\n"
        "module = importlib.util.module_from_spec(spec)\n"
        "spec.loader.exec_module(module)\n"
        "store = module.ProgramStore(Path(folder))\n" + action
    )
    arguments = [str(module.__file__), str(store.folder), str(library), KEY]
    return subprocess.Popen([sys.executable, "-c", program, *arguments], text=True)


@pytest.mark.parametrize("moment", ["Path.replace", "Path.mkdir", "os.link"])
def test_a_process_that_is_killed_while_it_saves_leaves_nothing_that_is_loaded(
    moment: str, store: ProgramStore, library: Path
) -> None:
    kill = f"{moment} = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
    child = in_another_process(store, library, f"{kill}store.save(key, Path(library), {{}})")
    assert child.wait() == -signal.SIGKILL
    assert store.load(KEY, pytest.fail) is None
    store.save(KEY, library, {})
    assert store.load(KEY, read)


def test_processes_that_keep_the_same_program_at_once_do_not_harm_each_other(
    store: ProgramStore, library: Path, state: Path
) -> None:
    action = (
        "for _ in range(50):\n"
        "    store.save(key, Path(library), {})\n"
        "    found, _ = store.load(key, lambda path: Path(path).read_bytes())\n"
        "    assert found == Path(library).read_bytes()\n"
    )
    children = [in_another_process(store, library, action) for _ in range(3)]
    assert [child.wait() for child in children] == [0] * 3
    assert [path.name for path in state.iterdir()] == ["secret"]
    assert kept(store).suffix == ".program"


def test_the_programs_that_were_not_used_for_the_longest_are_removed(
    store: ProgramStore, library: Path
) -> None:
    keys = [f"{number:032d}" * 2 for number in range(MOST_PROGRAMS + 3)]
    for age, key in enumerate(keys[:MOST_PROGRAMS]):
        store.save(key, library, {})
        os.utime(store.folder / f"{key[:32]}.program", (age, age))
    (store.folder / "notes.txt").touch()
    store.load(keys[0], read)
    for key in keys[MOST_PROGRAMS:]:
        store.save(key, library, {})
    found = [store.load(key, read) is not None for key in keys]
    assert found == [True, *[False] * 3, *[True] * (MOST_PROGRAMS - 1)]
    assert (store.folder / "notes.txt").exists()


@torch.no_grad()
def run(prepared: CompiledDecoder, rows: int = 9, steps: int = 5) -> Tensor:
    """Decode with the generator's next numbers."""
    torch.manual_seed(0)
    cache, x = prepared.new_cache(torch.randn(rows, 5, 16)), torch.randn(rows, steps, 16)
    return torch.cat([prepared(token, cache=cache) for token in x.split(1, dim=1)], dim=1)


def decoder(**options: Any) -> Any:
    torch.manual_seed(0)
    return build_decoder(**SIZES | options).eval()


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch, library: Path) -> list[str]:
    """List what happens to programs, which add one instead of computing a step."""
    events: list[str] = []

    def compile_nothing(*_: object, prepack: bool, keep: Callable[[Path], object] = id) -> Any:
        events.append("compiled")
        keep(library)
        return lambda tensors: [tensors[0] + 1]

    def open_library(path: str) -> Any:
        assert read(path) == library.read_bytes()
        events.append("loaded")
        return lambda tensors: [tensors[0] + 1]

    monkeypatch.setattr(compiled, "export_step", lambda *_: None)
    monkeypatch.setattr(compiled, "compile_ahead_of_time", compile_nothing)
    monkeypatch.setattr(compiled, "open_library", open_library)
    return events


def test_a_second_model_of_equal_weights_loads_its_programs(
    compilations: list[str], store: ProgramStore
) -> None:
    for _ in range(3):
        prepared: Any = prepare(decoder(), compiled=True, programs=store.folder)
        run(prepared)
    assert compilations == ["compiled", "loaded", "loaded"]
    run(prepared, rows=2)  # another signature
    other = decoder()
    with torch.no_grad():
        next(other.parameters())[0, 0] += 1e-7
    for model in (other, decoder(residual=PreNorm)):
        run(prepare(model, compiled=True, programs=str(store.folder)))
    run(prepare(decoder(), compiled=True))
    assert compilations[3:] == ["compiled"] * 4


def test_a_model_that_cannot_be_hashed_is_compiled_and_not_kept(
    compilations: list[str], store: ProgramStore, caplog: pytest.LogCaptureFixture
) -> None:
    prepared: Any = prepare(nn.Sequential(decoder()), compiled=True, programs=store.folder)
    prepared[0].layers[0].counter = iter(())
    run(prepared[0])
    assert compilations == ["compiled"]
    assert "is not kept: builtins.tuple_iterator cannot be hashed" in caplog.messages[0]
    assert not store.folder.exists()


@pytest.mark.parametrize(
    "missing", ["torch.export.export", "torch._inductor.aot_compile", "runner"]
)
def test_steps_that_cannot_be_compiled_are_executed_eagerly(
    missing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts = []

    def fail(*_: object, **__: object) -> None:
        attempts.append(missing)
        raise RuntimeError("no C++ compiler\nin this folder")

    if missing == "runner":
        monkeypatch.delattr(torch._C._aoti, "AOTIModelContainerRunnerCpu")
        monkeypatch.setattr("torch._inductor.aot_compile", lambda *_, **__: attempts.append(""))
    else:
        monkeypatch.setattr(missing, fail)
    if missing != "torch.export.export":
        program = SimpleNamespace(module=lambda **_: None, example_inputs=((), {}))
        program.graph_module = torch.fx.GraphModule(nn.Module(), torch.fx.Graph())
        monkeypatch.setattr(compiled, "export_step", lambda *_: program)
    models: list[Any] = [prepare(decoder()), prepare(decoder(), compiled=True)]
    expected = run(models[0])
    for _ in range(2):
        torch.testing.assert_close(run(models[1]), expected, rtol=0, atol=1e-6)
    assert len(attempts) == 1
    (message,) = [each.message for each in caplog.records if each.levelname == "WARNING"]
    reason = "AttributeError" if missing == "runner" else "RuntimeError: no C++ compiler"
    assert f"cannot be compiled and are executed eagerly: {reason}" in message
    assert "\n" not in message


@pytest.mark.slow
def test_a_compiled_program_in_another_process_gives_identical_bits(store: ProgramStore) -> None:
    program = (
        "import logging, sys, torch\n"
        "from tests.test_inference_store import decoder, prepare, run\n"
        "logging.basicConfig(level='INFO')\n"
        "output = run(prepare(decoder(), compiled=True, programs=sys.argv[1]))\n"
        "print(output.numpy().tobytes().hex())\n"
    )
    command = [sys.executable, "-c", program, str(store.folder)]
    found = [subprocess.run(command, capture_output=True, text=True, check=True) for _ in range(2)]
    assert found[0].stdout == found[1].stdout
    assert ["compiling" in each.stderr for each in found] == [True, False]
    assert not any("is not" in each.stderr for each in found)


def test_programs_are_kept_of_compiled_steps_alone() -> None:
    with pytest.raises(ValueError, match=r"^programs needs compiled=True"):
        prepare(build_encoder(**SIZES), programs="folder")
    with pytest.raises(TypeError, match=r"^programs must be a path"):
        prepare(build_encoder(**SIZES), compiled=True, programs=3)  # type: ignore[arg-type]
