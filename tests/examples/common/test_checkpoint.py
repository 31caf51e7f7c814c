"""Laws of the checkpoints: what was saved comes back, or an error names the file that changed.

Run as a program, this file is the process that gets killed inside a save.
"""

import errno
import hashlib
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from safetensors.torch import save
from tests.examples.common.together import ENVIRONMENT
from tests.examples.tiny_run import SETTINGS
from torch import Tensor

from common import checkpoint as module
from common.checkpoint import (
    Checkpoint,
    DamagedCheckpointError,
    checkpoint_paths,
    latest_checkpoint,
    load_checkpoint,
    load_weights,
    save_checkpoint,
    step_of,
)
from common.errors import UserError


def numbers(step: int) -> dict[str, dict[str, Tensor]]:
    """Weights that tell which step they belong to."""
    weight = torch.full((4, 3), float(step))
    return {"model": {"weight": weight, "bias": weight[0] + 1}, "average": {"weight": weight / 2}}


def save_step(folder: Path, step: int, keep: int = 2) -> Path:
    state = {"epoch": step, "rows": [{"loss": 0.1}]}
    return save_checkpoint(folder, step=step, tensors=numbers(step), state=state, keep=keep)


def assert_is_step(checkpoint: Checkpoint | None, step: int) -> None:
    assert checkpoint is not None
    assert checkpoint.step == checkpoint.state["epoch"] == step
    assert stored(checkpoint.tensors) == stored(numbers(step))
    assert checkpoint.state["rows"] == [{"loss": 0.1}]


def stored(tensors: Mapping[str, Mapping[str, Tensor]]) -> bytes:
    """Return groups of tensors as one file: their names, dtypes, shapes and bits."""
    return save(
        {
            f"{group}.{name}": tensor.detach().clone(memory_format=torch.contiguous_format)
            for group, members in tensors.items()
            for name, tensor in members.items()
        }
    )


def snapshot(folder: Path) -> dict[str, bytes | None]:
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def steps(folder: Path) -> list[int]:
    return [step_of(path) for path in checkpoint_paths(folder)]


def rename(path: Path, content: bytes) -> Path:
    """Write a file with the name that vouches for its content, as an attacker would."""
    digest = hashlib.sha256(content).hexdigest()[:16]
    path.unlink()
    path = path.with_name(f"step-{step_of(path):08d}-{digest}.safetensors")
    path.write_bytes(content)
    return path


@pytest.fixture(autouse=True)
def hasty_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk, save in the processes that get killed."""
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "checkpoints"


@pytest.fixture
def whole(folder: Path) -> Path:
    """Give one whole checkpoint, of step 1."""
    return save_step(folder, 1)


# What was saved comes back


DTYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32]
DTYPES += [torch.int16, torch.int8, torch.uint8, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_tensor_of_any_dtype_shape_and_stride_comes_back_bit_for_bit(
    folder: Path, dtype: torch.dtype
) -> None:
    base = torch.arange(12).reshape(3, 4).to(dtype)
    views = {"all": base, "row": base[1], "turned": base.T, "spread": base[:1].expand(5, 4)}
    views |= {"none": base[:0], "one": base[2, 3]}
    path = save_checkpoint(folder, step=0, tensors={"model": views}, state={})
    found = load_checkpoint(path)
    assert found.path == path
    assert stored(found.tensors) == stored({"model": views})


def test_tied_embeddings_are_still_tied_after_a_round_trip(folder: Path) -> None:
    model: Any = SETTINGS.build(20, 20)
    fresh: Any = SETTINGS.build(20, 20)
    path = save_checkpoint(folder, step=0, tensors={"model": model.state_dict()}, state={})
    load_weights(fresh, load_checkpoint(path).tensors["model"], path=path)
    assert fresh.output.weight is fresh.target_embedding.weight
    assert stored({"model": fresh.state_dict()}) == stored({"model": model.state_dict()})


# Which checkpoints stay


STEPS = st.sampled_from([0, 1, 2, 3, 99_999_999, 100_000_000])


@settings(max_examples=60, suppress_health_check=[*HealthCheck])
@given(saves=st.lists(st.tuples(STEPS, st.integers(1, 4)), min_size=1, max_size=8))
@example(saves=[(3, 4), (3, 4), (1, 1)])
def test_a_save_replaces_its_step_and_later_ones_and_the_newest_few_stay(
    tmp_path_factory: pytest.TempPathFactory, saves: list[tuple[int, int]]
) -> None:
    folder, expected = tmp_path_factory.mktemp("run") / "checkpoints", list[int]()
    for number, (step, keep) in enumerate(saves):
        save_checkpoint(folder, step=step, tensors={}, state={"number": number}, keep=keep)
        expected = [*[each for each in expected if each < step], step][-keep:]
        assert steps(folder) == expected
        newest = latest_checkpoint(folder)
        assert newest is not None
        assert (newest.step, newest.state) == (step, {"number": number})


def test_leftovers_of_a_killed_save_are_swept_and_foreign_files_left_alone(
    folder: Path, whole: Path
) -> None:
    shutil.copy(whole, folder / ".0123456789abcdef.part")
    shutil.copy(whole, folder / f"{whole.name}.copy")
    assert_is_step(latest_checkpoint(folder), 1)
    newest = save_step(folder, 2, keep=1)
    assert names(folder) == sorted((f"{whole.name}.copy", newest.name))


# Damage is found and named


@settings(max_examples=150, suppress_health_check=[*HealthCheck])
@given(data=st.data())
def test_any_bit_that_is_flipped_lost_or_added_is_found_and_the_file_named(
    whole: Path, data: st.DataObject
) -> None:
    clean = whole.read_bytes()
    dirty = bytearray(clean)
    change = data.draw(st.sampled_from(["flip", "flip", "cut", "add"]))
    if change == "flip":
        bit = data.draw(st.integers(0, 8 * len(clean) - 1))
        dirty[bit // 8] ^= 1 << bit % 8
    elif change == "cut":
        del dirty[data.draw(st.integers(0, len(clean) - 1)) :]
    else:
        dirty += data.draw(st.binary(min_size=1, max_size=9))
    whole.write_bytes(dirty)
    try:
        with pytest.raises(DamagedCheckpointError, match=f"{whole} is not as it was saved"):
            load_checkpoint(whole)
    finally:
        whole.write_bytes(clean)


class Trap:
    """Leaves a mark when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Callable[[str], object], tuple[str]]:
        return os.mkdir, (str(self.mark),)


def test_a_hostile_pickle_is_refused_and_nothing_is_executed(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    mark, hostile = tmp_path / "executed", tmp_path / "hostile"
    torch.save({"weight": Trap(mark)}, hostile)
    with pytest.raises(DamagedCheckpointError, match="is not a checkpoint of this program"):
        load_checkpoint(rename(whole, hostile.read_bytes()))
    assert not mark.exists()
    with pytest.warns(UserWarning, match="forcing weights_only=False"):
        torch.load(hostile)
    assert mark.exists()  # the trap was armed


def test_a_checkpoint_removed_while_it_is_read_is_no_error(
    folder: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = load_checkpoint

    def replaced_first(path: Path, **options: Any) -> Checkpoint:
        if path == whole:
            save_step(folder, 2, keep=1)
        return read(path, **options)

    monkeypatch.setattr(module, "load_checkpoint", replaced_first)
    assert_is_step(latest_checkpoint(folder), 2)


WHOLE: dict[str, Any] = {"format_version": 4, "step": 1, "state": {}}
CHANGES: list[dict[str, Any]] = [
    *({"step": "many"}, {"state": 3}, {"state": {"x": float("nan")}}, {"format_version": None})
]
HEADERS = ["{}", "[]", '{"w":{"dtype":"F32","shape":[99999999],"data_offsets":[0,399999996]}}']


def packed(header: str) -> bytes:
    """Return a file of safetensors with a header and eight bytes of weights."""
    return len(header).to_bytes(8, "little") + header.encode() + bytes(8)


@pytest.mark.parametrize(
    "content",
    [
        *map(packed, HEADERS),
        save({}, {"checkpoint": "[" * 100_000 + "]" * 100_000}),
        *(save({}, {"checkpoint": json.dumps(WHOLE | change)}) for change in CHANGES),
    ],
    ids=lambda content: content.strip(b"\0 ")[-60:].decode(),
)
def test_a_file_that_another_program_made_is_refused(whole: Path, content: bytes) -> None:
    with pytest.raises(UserError, match=r"step-.* (is not a checkpoint of|has format version)"):
        load_checkpoint(rename(whole, content))


def test_a_newer_format_stops_the_program_before_it_takes_an_older_checkpoint(
    folder: Path, whole: Path
) -> None:
    content = json.dumps(WHOLE | {"step": 2, "format_version": 5})
    rename(save_step(folder, 2), save({}, {"checkpoint": content}))
    with pytest.raises(UserError, match="has format version 5, and this program reads 4"):
        latest_checkpoint(folder)
    assert whole.exists()


def test_resume_warns_of_a_damaged_newest_and_takes_the_older(
    folder: Path, whole: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newest = save_step(folder, 2)
    newest.write_bytes(b"")
    with caplog.at_level(logging.WARNING):
        assert_is_step(latest_checkpoint(folder), 1)
    (record,) = caplog.records
    assert f"{newest} is not as it was saved" in record.getMessage()
    assert f"taking the older {whole}" in record.getMessage()
    save_step(folder, 2)  # the run goes on and comes past the damaged step
    caplog.clear()
    assert_is_step(latest_checkpoint(folder), 2)
    assert not caplog.records
    assert steps(folder) == [1, 2]


def test_where_every_checkpoint_is_damaged_an_error_says_so(folder: Path, whole: Path) -> None:
    newest = save_step(folder, 2)
    for path in (whole, newest):
        path.write_bytes(b"")
    before = snapshot(folder)
    with pytest.raises(DamagedCheckpointError, match=f"{newest} .*no older .*{folder} is intact"):
        latest_checkpoint(folder)
    assert snapshot(folder) == before


# Weights that do not fit leave the model as it was


def test_weights_that_do_not_fit_are_named_and_leave_the_model_untouched() -> None:
    model = SETTINGS.build(20, 20)
    before = stored({"model": model.state_dict()})
    weights = {name: tensor + 1 for name, tensor in model.state_dict().items()}
    weights["output.weight"][0, 0] = float("nan")
    with pytest.raises(UserError, match=r"^runs/first: .*'output.weight' holds NaN"):
        load_weights(model, weights, path=Path("runs/first"))
    assert stored({"model": model.state_dict()}) == before


# A save that fails leaves everything as it was


def test_a_missing_parent_or_a_file_in_the_way_is_an_error_with_the_path(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=f"{tmp_path}/gone/checkpoints .*No such file"):
        save_step(tmp_path / "gone" / "checkpoints", 1)
    assert names(tmp_path) == []
    (tmp_path / "file").write_text("mine")
    for path in (tmp_path / "file", tmp_path / "file" / "checkpoints"):
        with pytest.raises(UserError, match=str(path)):
            save_step(path, 1)
    assert (tmp_path / "file").read_text() == "mine"


@pytest.mark.parametrize(
    ("owner", "call", "calls"), [(Path, "open", 1), (os, "fsync", 3), (os, "replace", 1)]
)
def test_wherever_the_disk_refuses_the_old_checkpoint_stays(
    folder: Path, whole: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, call: str, calls: int
) -> None:
    before, work = snapshot(folder), getattr(owner, call)

    def save_after(allowed: int, place: Path) -> None:
        left = iter([True] * allowed)

        def refuse(*args: Any, **kwargs: Any) -> Any:
            if not next(left, False):
                raise OSError(errno.ENOSPC, "No space left on device")
            return work(*args, **kwargs)

        with monkeypatch.context() as patch:
            patch.setattr(owner, call, refuse)
            save_step(place, 2, keep=1)

    for allowed in range(calls):
        with pytest.raises(UserError, match=f"cannot save step 2 in {folder} .*: No space left"):
            save_after(allowed, folder)
        if allowed:  # it has its name, which may not outlast the power
            assert_is_step(latest_checkpoint(folder), 2)
            checkpoint_paths(folder)[-1].unlink()
        assert snapshot(folder) == before
    with pytest.raises(UserError, match="No space left"):
        save_after(0, folder.with_name("new"))
    assert names(folder.parent) == [folder.name]
    save_after(calls, folder)
    assert_is_step(latest_checkpoint(folder), 2)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_could_not_be_loaded_are_not_saved(
    folder: Path, whole: Path, value: float
) -> None:
    before = snapshot(folder)
    tensors = {"model": {"weight": torch.tensor([1.0, value])}}
    with pytest.raises(UserError, match=r"step 2 is not saved: tensor 'model\.weight' holds NaN"):
        save_checkpoint(folder, step=2, tensors=tensors, state={}, keep=1)
    assert snapshot(folder) == before


@pytest.mark.parametrize("value", [object(), np.zeros(3), {(1, 2): 3}, float("nan")])
def test_what_is_not_json_is_refused_before_anything_is_written(
    folder: Path, value: object
) -> None:
    with pytest.raises((TypeError, ValueError), match=r"JSON|keys must be"):
        save_checkpoint(folder, step=0, tensors={}, state={"a": value})
    assert not folder.exists()


# Losing power or being killed


def test_all_is_on_the_disk_before_the_name_and_the_name_before_the_old_goes(
    folder: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    sync, replace, unlink = os.fsync, os.replace, os.unlink

    def record_sync(descriptor: int) -> None:
        inode, size = os.fstat(descriptor).st_ino, os.fstat(descriptor).st_size
        places = [folder.parent, folder, *folder.iterdir()]
        (place,) = (place for place in places if place.stat().st_ino == inode)
        name = "content" if place.suffix == ".part" else place.name
        events.append(f"sync {name}" + ("" if size else " while empty"))
        sync(descriptor)

    def record_replace(source: Any, target: Any, **more: Any) -> None:
        events.append(f"name {Path(target).name[:13]}")
        replace(source, target, **more)

    def record_unlink(path: Any, **more: Any) -> None:
        events.append(f"remove {Path(path).name[:13]}")
        unlink(path, **more)

    for name, record in (("fsync", record_sync), ("replace", record_replace)):
        monkeypatch.setattr(os, name, record)
    monkeypatch.setattr(os, "unlink", record_unlink)
    save_step(folder, 2, keep=1)
    names_synced = ["sync checkpoints", f"sync {folder.parent.name}"]
    assert events == [
        *("sync content", "name step-00000002", *names_synced, "remove step-00000001")
    ]


def assert_survived(folder: Path, steps: tuple[int, ...], keep: int) -> None:
    """A whole checkpoint of one of ``steps`` loads, and the next save finds order."""
    newest = latest_checkpoint(folder)
    assert newest is not None
    assert newest.step in steps
    assert_is_step(newest, newest.step)
    save_step(folder, steps[-1] + 1, keep=keep)
    assert_is_step(latest_checkpoint(folder), steps[-1] + 1)
    assert len(names(folder)) <= keep


@pytest.mark.parametrize(("keep", "step"), [(2, 3), pytest.param(1, 2, marks=pytest.mark.slow)])
def test_kill_9_at_every_file_operation_of_a_save_leaves_a_whole_checkpoint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, keep: int, step: int
) -> None:
    start = tmp_path / "start"
    for earlier in (1, 2):
        save_step(start, earlier, keep=keep)
    command = [sys.executable, __file__, str(tmp_path), str(step), str(keep)]
    subprocess.run(command, env=ENVIRONMENT, check=True)
    killed = sorted(tmp_path.glob("killed-*"))
    leftovers = [names(folder) for folder in killed]
    assert any(name.endswith(".part") for listed in leftovers for name in listed)
    found = {tuple(steps(folder)) for folder in killed}  # before, within and after
    assert found == ({(1, 2), (1, 2, 3), (2, 3)} if keep == 2 else {(2,)})
    for folder in killed:
        assert_survived(folder, (2, step), keep)
    assert not caplog.records


def die_at_operation(number: int) -> None:
    """Kill this process at its next file operation but so many."""
    left = number

    def audit(event: str, arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event == "open" or event.startswith(("os.", "shutil.")):
            left -= 1
            if left == -1:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)


def main(place: Path, step: int, keep: int) -> None:
    """Copy ``start`` and kill a save into the copy, at its first file operation, its second ..."""
    for number in range(1000):
        folder = place / f"killed-{number:03d}"
        shutil.copytree(place / "start", folder)
        child = os.fork()
        if child == 0:
            die_at_operation(number)
            save_step(folder, step, keep=keep)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status == 0:
            return
        assert os.WIFSIGNALED(status)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
