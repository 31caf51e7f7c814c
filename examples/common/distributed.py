"""Distributed training: several processes that train one model together (data parallelism).

``torchrun --nproc-per-node 2 -- examples/translate.py train ...`` starts the program twice and
passes each process its rank. All processes hold the same weights. Each computes its share of the
batches of an update; an all-reduce averages their gradients (``DistributedDataParallel`` overlaps
it with the backward pass), so that all make the same update. Only the first process, rank 0,
validates, saves and prints.

Decisions that must be equal everywhere are made by rank 0 and broadcast to the others. If a process
dies, torchrun stops the others and reports which one it was.
"""

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from common.errors import UserError

Value = TypeVar("Value")
TIMEOUT = timedelta(minutes=30)
"""How long a process waits for the others, at the start or while rank 0 validates."""
SHUTDOWN_DELAY = 10.0  # seconds in which torchrun finds the process that failed first


class Processes:
    """The processes that train together; by default this one alone.

    Args:
        rank: Number of this process, from 0.
        world_size: Number of processes.

    Example:
        >>> alone = Processes()
        >>> alone.is_first, alone.broadcast(lambda: 7)
        (True, 7)
    """

    def __init__(self, rank: int = 0, world_size: int = 1) -> None:
        self.rank, self.world_size = rank, world_size

    @property
    def is_first(self) -> bool:
        """Whether this process is rank 0, which validates, saves and prints."""
        return self.rank == 0

    def broadcast(self, compute: Callable[[], Value]) -> Value:
        """Let rank 0 compute a value, and return it in all processes."""
        if self.world_size == 1:
            return compute()
        value: list[Any] = [compute() if self.is_first else None]
        dist.broadcast_object_list(value, src=0)
        return cast(Value, value[0])

    def all_reduce_sum(self, tensor: Tensor) -> Tensor:
        """Sum a tensor over all processes, in place."""
        if self.world_size > 1:
            dist.all_reduce(tensor)
        return tensor


@contextmanager
def join_processes(device: torch.device) -> Iterator[Processes]:
    """Join the processes that torchrun has started, and leave them at the end.

    Raises:
        UserError: If torchrun's environment variables are incomplete, the other processes do not
            start in time.
    """
    if "RANK" not in os.environ and "WORLD_SIZE" not in os.environ:
        yield Processes()
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        store, rank, world_size = next(rendezvous("env://", timeout=TIMEOUT))
        # After a restart by torchrun, the store still holds the addresses of the lost processes.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            store=dist.distributed_c10d.PrefixStore(f"attempt {attempt}", store),
            rank=rank,
            world_size=world_size,
            timeout=TIMEOUT,
        )
    except (RuntimeError, OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(
            "cannot join the processes that torchrun's RANK, WORLD_SIZE, MASTER_ADDR and "
            f"MASTER_PORT describe: {reason}; to train in one process, set none of them"
        ) from error
    try:
        yield Processes(rank, world_size)
    except Exception as error:
        if rank or not isinstance(error, OSError | UserError):
            time.sleep(SHUTDOWN_DELAY)  # torchrun stops this process, and names the one that failed
        raise
    gc.collect()  # models that still hold a reference to the process group
    dist.barrier()  # no process leaves while another one still communicates
    dist.destroy_process_group()  # not after an error: the others may never respond


def choose_device(name: str) -> torch.device:
    """Return the device to compute on.

    Args:
        name: "cpu"; "cuda"; "mps", a GPU of Apple; or "auto", which chooses a GPU if there is one.
            Processes of torchrun compute on CUDA devices or CPUs only.

    Raises:
        UserError: If there is no such device.
    """
    here = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available()}
    here["mps"] = here["mps"] and "RANK" not in os.environ
    if name == "auto":
        name = next((each for each in here if here[each]), "cpu")
    if name in here and not here[name]:
        raise UserError(f"--device {name}: no {name.upper()} device can be used; use cpu or auto")
    local_rank = os.environ.get("LOCAL_RANK", "0")  # among the processes on this machine
    return torch.device(f"cuda:{local_rank}" if name == "cuda" else name)
