"""Laws of checkpoints in parts: any number of processes reads what any number has written.

Run as a program, this file is one of the processes that save together.
"""

import errno
import json
import os
import pickle
import shutil
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file, save, save_file
from tests.examples.test_checkpoint import Trap, assert_same, names, reseal
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

import merge_shards
from common import checkpoint as module
from common.checkpoint import (
    DamagedCheckpointError,
    latest_checkpoint,
    load_checkpoint,
    merge_checkpoints,
    save_checkpoint,
)
from common.distributed import Processes, join_processes
from common.errors import UserError
from common.files import FolderLock
from common.sharded_files import load_parts, save_part
from common.sharding import empty_like, part_file

ROOT = Path(__file__).parents[2]
GROUP = {
    "weight": torch.arange(21.0).reshape(7, 3),
    "tall": torch.arange(24).reshape(12, 2, 1),
    "bias": torch.tensor([1.5, -0.0, 2.5, 4.0, 5.0], dtype=torch.bfloat16),
    "one": torch.tensor([[3.0, 4.0]], dtype=torch.float64),
    "step": torch.tensor(7.0),  # a scalar is never sharded
}


def cut(folder: Path, group: str, tensors: dict[str, Tensor], count: int) -> list[Path]:
    """Write a group as ``count`` processes do."""
    files = []
    for rank in range(count):
        part, offsets = {}, {}
        for name, tensor in tensors.items():
            if tensor.dim() == 0:
                begin, rows = 0, tensor if rank == 0 else tensor[None][:0]
            else:
                share = -(-len(tensor) // count)
                begin, rows = rank * share, tensor[rank * share : (rank + 1) * share]
            if rows.numel():
                part[name] = rows.contiguous()
                offsets[name] = {
                    "saved_offsets": [begin, *[0] * (tensor.dim() - 1)][: tensor.dim()]
                }
        files.append(folder / part_file(group, rank, count))
        save_file(part, files[-1], metadata={"DCP_SHARDING_INFO": json.dumps(offsets)})
    return files


def cut_checkpoint(path: Path, count: int) -> None:
    """Divide all groups of a checkpoint into parts."""
    for file in path.glob("*.safetensors"):
        tensors = load_file(file)
        file.unlink()
        cut(path, file.stem, tensors, count)
    reseal(path)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "run" / "checkpoints"


@pytest.fixture
def parts(folder: Path) -> Path:
    """Give a checkpoint in two parts."""
    folder.parent.mkdir()
    state = {"moments": {0: {"exp_avg": torch.ones(7, 3)}}, "loss": 0.5}
    tensors = {"model": GROUP | {"tied": GROUP["weight"]}, "average": GROUP}
    path = save_checkpoint(folder, step=3, tensors=tensors, state=state)
    cut_checkpoint(path, 2)
    return path


@pytest.fixture
def no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


class FakeProcess:
    """One of several processes, of which only this one exists: nothing is communicated."""

    def __init__(self, rank: int, world_size: int) -> None:
        from torch.testing._internal.distributed.fake_pg import FakeStore

        self.rank, self.world_size = rank, world_size
        self.store = FakeStore()

    def __enter__(self) -> None:
        dist.init_process_group(
            "fake", store=self.store, rank=self.rank, world_size=self.world_size
        )

    def __exit__(self, *error: object) -> None:
        dist.destroy_process_group()


def last_rows(tensor: Tensor, count: int) -> Tensor:
    """Return the rows of the last of several processes."""
    return tensor[-(-len(tensor) // count) * (count - 1) :]


@pytest.mark.parametrize("written", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("read", [1, 2, 4])
def test_a_process_reads_its_rows_of_any_number_of_parts(
    tmp_path: Path, written: int, read: int
) -> None:
    if written:
        cut(tmp_path, "model", GROUP, written)
    else:
        save_file(GROUP, tmp_path / "model.safetensors")
    assert_same(load_parts(tmp_path, "model"), GROUP)
    with FakeProcess(read - 1, read):  # the last one: torch caches which rows a process holds
        mesh = init_device_mesh("cpu", (read,))
        likes = [
            DTensor.from_local(
                torch.empty_like(last_rows(tensor, read)),
                mesh,
                [Shard(0)],
                run_check=False,
                shape=tensor.shape,
                stride=tensor.stride(),
            )
            for tensor in GROUP.values()
            if tensor.dim()
        ]
        found = load_parts(tmp_path, "model", empty_like(likes))
        for name, tensor in GROUP.items():
            part = found[name]
            if isinstance(part, DTensor):
                assert_same(part.to_local(), last_rows(tensor, read))
            else:
                assert_same(part, tensor)
                assert name == "step"


def test_a_checkpoint_in_parts_comes_back_bit_for_bit(parts: Path) -> None:
    found = load_checkpoint(parts)
    assert_same(found.tensors["model"], GROUP | {"tied": GROUP["weight"]})
    assert found.tensors["model"]["tied"] is found.tensors["model"]["weight"]
    assert_same(found.state["moments"][0]["exp_avg"], torch.ones(7, 3))


FIRST, SECOND = (part_file("model", rank, 2) for rank in range(2))


def test_damage_to_any_part_is_named(parts: Path) -> None:
    for file in sorted(parts.glob("*-of-*")):
        clean = file.read_bytes()
        flipped = bytes([*clean[:-1], clean[-1] ^ 1])
        for dirty, problem in [
            (clean[:-1], "is truncated"),
            (clean + b"\n", "is too long"),
            (flipped, "fails its SHA-256 checksum"),
            (b"version https://git-lfs", "looks like a git-lfs pointer"),
        ]:
            file.write_bytes(dirty)
            with pytest.raises(DamagedCheckpointError, match=f"{file.name}' {problem}"):
                load_checkpoint(parts)
        file.unlink()
        with pytest.raises(DamagedCheckpointError, match=f"{file.name}' is missing"):
            load_checkpoint(parts)
        file.write_bytes(clean)
    load_checkpoint(parts)


def test_a_part_of_another_checkpoint_is_named(parts: Path) -> None:
    shutil.copy(parts / SECOND, parts / part_file("model", 2, 3))
    with pytest.raises(DamagedCheckpointError, match=r"of-00003.safetensors' is not in the manif"):
        load_checkpoint(parts)
    reseal(parts)
    with pytest.raises(DamagedCheckpointError, match="files of 'model' are missing"):
        load_checkpoint(parts)


@pytest.mark.parametrize("change", ["gap", "overlap", "lost", "no offsets", "pickle"])
def test_parts_that_do_not_join_are_refused_even_if_sealed(
    parts: Path, tmp_path: Path, change: str
) -> None:
    tensors, place = load_file(parts / SECOND), 4
    match change:
        case "gap":
            place = 5
        case "overlap":
            place = 3
        case "lost":
            del tensors["weight"]
            tensors["other"] = torch.ones(2)
    offsets = {
        name: {"saved_offsets": [place] + [0] * (t.dim() - 1)} for name, t in tensors.items()
    }
    if change == "no offsets":
        offsets.pop("weight")
    save_file(tensors, parts / SECOND, metadata={"DCP_SHARDING_INFO": json.dumps(offsets)})
    if change == "pickle":
        (parts / SECOND).write_bytes(pickle.dumps(Trap(tmp_path / "executed")))
    reseal(parts)
    with pytest.raises(DamagedCheckpointError, match="is not a checkpoint of this program"):
        load_checkpoint(parts)
    assert not (tmp_path / "executed").exists()


@pytest.mark.filterwarnings("ignore:torch.distributed is")
def test_a_part_is_on_the_disk_as_a_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: dict[int, bytes] = {}

    def record(descriptor: int) -> None:
        synced[os.fstat(descriptor).st_ino] = os.pread(descriptor, 1 << 20, 0)

    monkeypatch.setattr(os, "fsync", record)
    file = tmp_path / part_file("model", 0, 1)
    save_part(file, GROUP)
    assert synced == {file.stat().st_ino: file.read_bytes()}
    assert_same(load_parts(tmp_path, "model"), GROUP)


# Merging


@pytest.mark.usefixtures("no_fsync")
def test_merged_checkpoints_are_what_one_process_would_have_saved(
    folder: Path, parts: Path
) -> None:
    before, state = load_checkpoint(parts), (parts / "state.json").read_bytes()
    whole = save_checkpoint(folder, step=4, tensors={"model": GROUP}, state={})
    written = whole.stat().st_mtime_ns
    (merged,) = merge_checkpoints(folder)
    assert names(folder) == [merged.name, whole.name] == ["step-00000003.2", "step-00000004"]
    after = load_checkpoint(merged)
    assert_same(after.tensors, before.tensors)
    assert_same(after.state, before.state)
    assert (merged / "average.safetensors").read_bytes() == save(GROUP)
    assert (merged / "state.json").read_bytes() == state
    assert names(merged) == ["average.safetensors", "manifest.json", *names(merged)[2:]]
    assert len(names(merged)) == 5
    assert whole.stat().st_mtime_ns == written  # it is left as it was
    assert merge_checkpoints(folder) == []


@pytest.mark.usefixtures("no_fsync")
def test_a_conversion_that_was_killed_can_be_repeated(
    folder: Path, parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load_checkpoint(parts)
    with monkeypatch.context() as patch:
        patch.setattr(module, "_remove", lambda path: None)  # killed before the old one is removed
        merge_checkpoints(folder)
    assert names(folder) == ["step-00000003", "step-00000003.2"]
    merge_checkpoints(folder)
    assert names(folder) == ["step-00000003.2"]
    newest = latest_checkpoint(folder)
    assert newest is not None
    assert_same(newest.tensors, before.tensors)


def test_damaged_parts_are_not_merged(folder: Path, parts: Path) -> None:
    (parts / SECOND).write_bytes(b"")
    with pytest.raises(DamagedCheckpointError, match=f"{SECOND}' is truncated"):
        merge_checkpoints(folder)
    assert names(folder) == [parts.name]


def test_the_program_merges_a_run_that_nobody_trains(
    folder: Path, parts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = folder.parent
    assert merge_shards.main([str(run)]) == 2
    assert f"{run} holds no run (no config.json)" in capsys.readouterr().err
    (run / "config.json").write_text("{}")
    with FolderLock(run):
        assert merge_shards.main([str(run)]) == 2
    assert "another training is using" in capsys.readouterr().err
    assert names(folder) == [parts.name]
    assert merge_shards.main([str(run)]) == 0
    assert capsys.readouterr().out == f"merged: {folder / 'step-00000003.2'}\n"
    assert names(run) == ["checkpoints", "config.json"]


# Several processes


class Saver:
    """What each of the processes does; the results of all are compared."""

    def __init__(self, folder: Path, processes: Processes) -> None:
        self.folder, self.processes = folder, processes
        self.mesh = init_device_mesh("cpu", (processes.world_size,))
        self.group = {
            name: distribute_tensor(tensor.clone(), self.mesh, [Shard(0)])
            if tensor.dim()
            else tensor
            for name, tensor in GROUP.items()
        }

    def save(self, step: int) -> str:
        """Save, and return the error or the name of the checkpoint."""
        tensors = {"model": self.group | {"tied": self.group["weight"]}}
        state = {"moments": {0: self.group["tall"]}, "rank": "all"}
        try:
            return save_checkpoint(
                self.folder, step=step, tensors=tensors, state=state, processes=self.processes
            ).name
        except UserError as error:
            return str(error)

    def load(self) -> str:
        """Load the newest, and return the error or its step, once it is compared."""
        empty = empty_like(each for each in self.group.values() if isinstance(each, DTensor))
        try:
            found = latest_checkpoint(self.folder, processes=self.processes, empty=empty)
        except UserError as error:
            return str(error)
        assert found is not None
        for name, tensor in self.group.items():
            mine, expected = found.tensors["model"][name], tensor
            if isinstance(mine, DTensor) and isinstance(expected, DTensor):
                mine, expected = mine.to_local(), expected.to_local()
            assert torch.equal(mine, expected), name
        assert isinstance(found.state["moments"][0], DTensor)
        return str(found.step)

    def __call__(self) -> dict[str, str]:
        """Save and load, with and without failures in the last process."""
        last = self.processes.rank == self.processes.world_size - 1
        results = {"saved": self.save(1), "loaded": self.load()}
        weight = self.group["weight"]
        assert isinstance(weight, DTensor)
        if last:
            weight.to_local()[-1, -1] = float("nan")
        results["nan"] = self.save(2)
        if last:
            weight.to_local()[-1, -1] = GROUP["weight"][-1, -1]
        full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        with patch("common.sharded_files.save_file", side_effect=full) if last else nullcontext():
            results["full"] = self.save(2)
        results["after"] = self.load()
        files = [file.name for file in sorted((self.folder / "step-00000001").iterdir())]
        results["files"] = " ".join(files) + " in " + " ".join(names(self.folder))
        own = self.folder
        if last:  # as if each machine had a disk of its own
            self.folder = self.folder.with_name("elsewhere")
        results["apart"] = self.load()
        results["alone"] = self.save(3)
        self.folder = own
        results["still"] = self.load()
        return results


def test_processes_save_and_load_together_and_fail_together(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        together = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    together |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}"}
    processes = [
        subprocess.Popen(
            [sys.executable, __file__, str(tmp_path / "checkpoints")],
            env=os.environ | together | {"RANK": str(rank), "WORLD_SIZE": "2"},
            stdout=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    outputs = [process.communicate(timeout=120)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    first, second = json.loads(outputs[0].splitlines()[-1])  # torch 2.10 prints a line before
    before = "(earlier checkpoints are unchanged)"
    assert first["saved"] == "step-00000001"
    assert [first[name] for name in ("loaded", "after", "still")] == ["1", "1", "1"]
    assert first["nan"] == "step 2 is not saved: model: tensor 'weight' holds NaN or infinity"
    assert first["full"].endswith(f"{before}: No space left on device")
    assert "the processes find different checkpoints in" in first["apart"]
    assert "was written by another process and is not here; all processes must" in first["alone"]
    expected = ["manifest.json", FIRST, SECOND, part_file("state", 0, 2), part_file("state", 1, 2)]
    assert first["files"] == " ".join([*expected, "state.json"]) + " in step-00000001"
    apart = {"apart", "alone"}
    assert {name: text for name, text in first.items() if name not in apart} == {
        name: text for name, text in second.items() if name not in apart
    }
    whole = load_checkpoint(tmp_path / "checkpoints" / "step-00000001")
    assert_same(whole.tensors["model"], GROUP | {"tied": GROUP["weight"]})
    assert whole.tensors["model"]["tied"] is whole.tensors["model"]["weight"]


def main() -> None:
    """Be one of the processes."""
    torch.set_num_threads(1)
    with join_processes(torch.device("cpu")) as processes:
        results = processes.gather(Saver(Path(sys.argv[1]), processes)())
        if processes.is_first:
            print(json.dumps(results))


if __name__ == "__main__":
    main()
