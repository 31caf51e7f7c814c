"""A program that tests start in several processes: it trains, saves and resumes in all of them."""

import errno
import json
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from tests.examples.tiny_run import SETTINGS, begin
from torch import Tensor
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from common import plots
from common.checkpoint import save_checkpoint
from common.distributed import Processes, join_processes
from common.errors import UserError
from common.program import run_program

ROOT = Path(__file__).parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'examples'}:{ROOT / 'src'}"}
GROUP = {
    "weight": torch.arange(21.0).reshape(7, 3),
    "tall": torch.arange(24).reshape(12, 2, 1),
    "bias": torch.tensor([1.5, -0.0, 2.5, 4.0, 5.0], dtype=torch.bfloat16),
    "one": torch.tensor([[3.0, 4.0]], dtype=torch.float64),
    "step": torch.tensor(7.0),  # a scalar is never sharded
}


def save(folder: Path, processes: Processes, step: int, group: dict[str, Tensor]) -> str:
    """Save, and return the error or the name of the checkpoint."""
    tensors = {"model": group | {"tied": group["weight"]}}
    try:
        return save_checkpoint(
            folder, step=step, tensors=tensors, state={}, processes=processes
        ).name
    except UserError as error:
        return str(error)


def save_and_fail(folder: Path, processes: Processes) -> list[str]:
    """Save sharded tensors, with and without failures."""
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


def train(
    folder: Path,
    processes: Processes,
    *,
    sharded: bool = False,
    epochs: int = 6,
    save_steps: int = 2,
    dropout: float = 0.0,
    victim: int = -1,
    **options: Any,
) -> float:
    """Train, and return which part of the state this process holds; the victim dies once."""
    settings = replace(SETTINGS, dropout=dropout, epochs=epochs)
    processes.broadcast(lambda: begin(folder, settings).run and None)
    options |= {"processes": processes, "save_steps": save_steps, "sharded": sharded}
    training = begin(folder, settings, **options)
    training.resume()
    learner = training.learner
    update = learner.update

    def update_or_die(*arguments: Any) -> Any:
        died = folder / "died"
        if processes.rank == victim and training.progress.step == 8 and not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return update(*arguments)

    learner.update = update_or_die  # type: ignore[assignment]
    training.fit()
    held: list[Any] = [*learner.model.parameters(), *learner.moving.parameters()]
    held += [state["exp_avg"] for state in learner.optimizer.state.values()]
    parts = sum((each.to_local() if sharded else each).numel() for each in held)
    return parts / sum(each.numel() for each in held)


def resume_and_save(folder: Path, processes: Processes) -> None:
    training = begin(folder, processes=processes, sharded=processes.world_size > 1)
    assert training.resume()
    training._save()


def everything(folder: Path, processes: Processes) -> object:
    """Do all that the fast tests look at in one pair of processes: to start them takes seconds."""
    saved = save_and_fail(folder / "saved", processes)
    torch.set_default_dtype(torch.float64)
    held = [
        train(folder / name, processes, sharded=name == "sharded", epochs=1, save_steps=9)
        for name in ("copied", "sharded")
    ]
    return saved, held


def work(folder: str, what: str, options: str) -> None:
    """Be one of the processes; the last line that is printed is the results of all."""
    torch.set_num_threads(1)
    plots.as_png = lambda figure: b""  # to draw one takes longer than an epoch
    with join_processes(torch.device("cpu")) as processes:
        results = processes.gather(globals()[what](Path(folder), processes, **json.loads(options)))
        if processes.is_first:
            print(json.dumps(results))


def main() -> int:
    """Be one of torchrun's processes, or two processes that are imported once."""
    if "RANK" in os.environ:
        return run_program(lambda: work(*sys.argv[1:]))
    child = os.fork()
    os.environ["RANK"] = "0" if child else "1"
    status = run_program(lambda: work(*sys.argv[1:]))
    return status or (os.waitpid(child, 0)[1] if child else 0)


def command(folder: Path, what: Any, **options: object) -> Sequence[str]:
    """Return the arguments by which Python starts one of the processes."""
    return [__file__, str(folder), what.__name__, json.dumps(options)]


if __name__ == "__main__":
    sys.exit(main())
