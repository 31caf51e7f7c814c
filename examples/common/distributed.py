"""Processes: several copies of a training that learn from one batch together.

``torchrun --nproc-per-node 2 -- examples/translate.py train ...`` starts the program twice and
tells each copy its number. All hold the same weights. Each reads its share of a batch; their
gradients are summed before anyone takes a step (``DistributedDataParallel`` does that while the
backward pass goes on), so that all stay the same. The first process alone validates, saves and
prints.

What must be equal everywhere is agreed on: the first says it, the others listen. Where a process
dies, torchrun stops the others and tells which it was.
"""

import gc
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.rendezvous import rendezvous
from torch.nn.parallel import DistributedDataParallel

from common.errors import UserError

Value = TypeVar("Value")
PATIENCE = timedelta(minutes=30)
"""How long a process waits for the others, as while the first validates."""
JOINING = timedelta(minutes=5)
"""How long the processes wait for each other when they begin."""
MOURNING = 10.0  # seconds in which torchrun finds the process that died first, and stops the others


class Processes:
    """Those that train together; by itself a process is the first of one.

    Args:
        number: Of this one, from 0.
        count: Of all.

    Example:
        >>> alone = Processes()
        >>> alone.is_first, alone.agree(lambda: 7)
        (True, 7)
    """

    def __init__(self, number: int = 0, count: int = 1) -> None:
        self.number, self.count = number, count

    @property
    def is_first(self) -> bool:
        """Whether this one validates, saves and prints."""
        return self.number == 0

    def agree(self, decide: Callable[[], Value]) -> Value:
        """Let the first process decide, and tell all."""
        if self.count == 1:
            return decide()
        decision: list[Any] = [decide() if self.is_first else None]
        dist.broadcast_object_list(decision, src=0)
        value: Value = decision[0]
        return value

    def gather(self, value: Value) -> list[Value]:
        """Collect what each process has, in their order."""
        if self.count == 1:
            return [value]
        values: list[Any] = [None] * self.count
        dist.all_gather_object(values, value)
        return values

    def add_up(self, number: Tensor) -> Tensor:
        """Sum what each process has."""
        if self.count > 1:
            dist.all_reduce(number)
        return number

    def share(self, model: nn.Module, device: torch.device) -> nn.Module:
        """Wrap what computes a loss so that all processes get the mean of all gradients."""
        if self.count == 1:
            return model
        devices = [device] if device.type == "cuda" else None
        return DistributedDataParallel(model, device_ids=devices)


@contextmanager
def joined(device: torch.device) -> Iterator[Processes]:
    """Find the other processes that torchrun has started, and part from them at the end.

    Raises:
        UserError: If the environment does not say who they are, they do not come, or one is lost.
    """
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise UserError(
            f"LOCAL_RANK must be below the {torch.cuda.device_count()} CUDA devices here, "
            f"got {device.index}"
        )
    if "RANK" not in os.environ and "WORLD_SIZE" not in os.environ:
        yield Processes()
        return
    count = _number_from_environment("WORLD_SIZE", least=1, most=2**31 - 1)
    number = _number_from_environment("RANK", least=0, most=count - 1)
    port = _number_from_environment("MASTER_PORT", least=1, most=2**16 - 1)
    address = os.environ.get("MASTER_ADDR")
    if not address:
        raise UserError(f"MASTER_ADDR {ALL_FOUR}")
    if device.type == "cuda":
        torch.cuda.set_device(device)
    try:
        store, _, _ = next(rendezvous("env://", timeout=JOINING))
        store.set_timeout(PATIENCE)
        # Where torchrun starts all anew, the store still holds addresses of those that are gone.
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            store=dist.distributed_c10d.PrefixStore(f"attempt {attempt}", store),
            rank=number,
            world_size=count,
            timeout=PATIENCE,
        )
    except (RuntimeError, OSError, ValueError) as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(
            f"process {number} of {count} cannot join the others at {address}:{port}: {reason}"
        ) from error
    try:
        yield Processes(number, count)
    except RuntimeError as error:
        # NCCL has errors of its own kind; gloo's are known by their text alone.
        if not isinstance(error, dist.DistError) and "gloo" not in str(error):
            raise
        time.sleep(MOURNING)
        raise UserError(
            f"process {number} lost another one; the message of torchrun names it"
        ) from error
    gc.collect()  # models that still hold on to the group
    dist.barrier()  # nobody goes while another still listens
    dist.destroy_process_group()  # not after an error: the others may never answer


def choose_device(name: str) -> torch.device:
    """Find the device to compute on; "auto" takes a GPU where there is one."""
    if name == "cuda" and not torch.cuda.is_available():
        raise UserError("--device cuda: torch finds no CUDA device here; use cpu or auto")
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.device(f"cuda:{local_rank()}" if name == "cuda" else name)


def local_rank() -> int:
    """Say which of the processes on this machine this one is.

    Raises:
        UserError: If the environment says no number.
    """
    if "LOCAL_RANK" not in os.environ:
        return 0
    return _number_from_environment("LOCAL_RANK", least=0, most=2**15)


ALL_FOUR = (
    "is missing: torchrun sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT; "
    "for one process alone, set none of them"
)


def _number_from_environment(name: str, *, least: int, most: int) -> int:
    text = os.environ.get(name)
    if not text:
        raise UserError(f"{name} {ALL_FOUR}")
    if not text.isascii() or not text.isdecimal() or not least <= int(text[:20]) <= most:
        raise UserError(
            f"{name} must be a whole number from {least} to {most}, got {text[:40]!r}, "
            "in the environment that torchrun makes"
        )
    return int(text)
