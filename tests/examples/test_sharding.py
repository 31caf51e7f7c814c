"""Laws of sharded tensors: saved together they are whole, and each process takes its part again.

Run as a program, this file is one of the processes that save together.
"""

import errno
import json
import os
import socket
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from unittest.mock import patch

import pytest
import torch
import torch.distributed as dist
from tests.examples.test_checkpoint import assert_same, names
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from common.checkpoint import load_checkpoint, save_checkpoint
from common.distributed import Processes, join_processes
from common.errors import UserError
from common.sharding import copy_whole, part_of

ROOT = Path(__file__).parents[2]
GROUP = {
    "weight": torch.arange(21.0).reshape(7, 3),
    "tall": torch.arange(24).reshape(12, 2, 1),
    "bias": torch.tensor([1.5, -0.0, 2.5, 4.0, 5.0], dtype=torch.bfloat16),
    "one": torch.tensor([[3.0, 4.0]], dtype=torch.float64),
    "step": torch.tensor(7.0),  # a scalar is never sharded
}


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_process_takes_its_rows_of_a_whole_tensor(count: int) -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    # The last one of several processes, of which only this one exists.
    dist.init_process_group("fake", store=FakeStore(), rank=count - 1, world_size=count)
    try:
        mesh = init_device_mesh("cpu", (count,))
        for whole in GROUP.values():
            target, rows = torch.zeros_like(whole), whole
            if whole.dim():
                rows = whole[-(-len(whole) // count) * (count - 1) :]
                target = DTensor.from_local(
                    torch.zeros_like(rows),
                    mesh,
                    [Shard(0)],
                    run_check=False,
                    shape=whole.shape,
                    stride=whole.stride(),
                )
            copy_whole(target, whole)
            assert_same(part_of(target), rows)
            for other in (whole[None], whole.to(torch.int8)):
                with pytest.raises(ValueError, match="a tensor must be"):
                    copy_whole(target, other)
    finally:
        dist.destroy_process_group()


def save(folder: Path, processes: Processes, step: int, group: dict[str, Tensor]) -> str:
    """Save, and return the error or the name of the checkpoint."""
    tensors = {"model": group | {"tied": group["weight"]}}
    try:
        return save_checkpoint(
            folder, step=step, tensors=tensors, state={}, processes=processes
        ).name
    except UserError as error:
        return str(error)


def results(folder: Path, processes: Processes) -> list[str]:
    """Save, with and without failures."""
    mesh = init_device_mesh("cpu", (processes.world_size,))
    group: dict[str, Tensor] = {
        name: distribute_tensor(tensor.clone(), mesh, [Shard(0)]) if tensor.dim() else tensor
        for name, tensor in GROUP.items()
    }
    found = [save(folder, processes, 1, group)]
    weight = group["weight"]
    assert isinstance(weight, DTensor)
    if not processes.is_first:
        weight.to_local()[-1, -1] = float("nan")
    found.append(save(folder, processes, 2, group))
    if not processes.is_first:
        weight.to_local()[-1, -1] = GROUP["weight"][-1, -1]
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    failing = patch("common.checkpoint._write", side_effect=full)
    with failing if processes.is_first else nullcontext():
        found.append(save(folder, processes, 2, group))
    return found


def test_processes_save_together_what_one_would_and_fail_together(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        together = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    together |= {"PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}:{ROOT / 'src'}"}
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
    assert first == second
    assert first[0] == "step-00000001"
    assert first[1] == "step 2 is not saved: model: tensor 'weight' holds NaN or infinity"
    assert first[2].endswith("(earlier checkpoints are unchanged): No space left on device")
    assert names(tmp_path / "checkpoints") == ["step-00000001"]
    path = tmp_path / "checkpoints" / "step-00000001"
    assert names(path) == ["manifest.json", "model.safetensors", "state.json"]
    found = load_checkpoint(path)
    assert_same(found.tensors["model"], GROUP | {"tied": GROUP["weight"]})
    assert found.tensors["model"]["tied"] is found.tensors["model"]["weight"]


def main() -> None:
    """Be one of the processes."""
    torch.set_num_threads(1)
    with join_processes(torch.device("cpu")) as processes:
        found = processes.gather(results(Path(sys.argv[1]), processes))
        if processes.is_first:
            print(json.dumps(found))


if __name__ == "__main__":
    main()
