"""Sharding: each process holds a part of the weights and of the optimiser's state (FSDP).

Processes that train together usually hold the same weights, the same moving average and the same
moments of Adam, each a full copy: 20 bytes for every weight, with its gradient. Instead, each can
hold a shard of every weight and of all that belongs to it ("ZeRO", Rajbhandari et al. 2019,
https://arxiv.org/abs/1910.02054; here torch's ``fully_shard``). The weights of a layer are gathered
just before it computes and freed right after, in the forward pass and again in the backward pass:
half as much again is communicated, and N times less is stored. The updates are the same.

A sharded tensor is a ``DTensor``: it has the shape of the whole, and its ``to_local()`` is the part
of this process. Parts are written and read in :mod:`common.sharded_files`. It, FSDP and DTensor are
imported where they are needed, as that takes most of a second.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.modules.module import register_module_module_registration_hook

from transformer_blocks import DecoderLayer, EncoderLayer

Model = TypeVar("Model", bound=nn.Module)
Empty = Callable[[torch.Size, torch.dtype], Tensor]
"""Allocates the tensor that one of a shape and dtype is read into, whole or sharded."""
_PART = re.compile(r"[a-z_]+-[0-9]{5}-of-[0-9]{5}\.safetensors")


def part_file(group: str, rank: int, world_size: int) -> str:
    """Name the file with the part of a process."""
    return f"{group}-{rank + 1:05d}-of-{world_size:05d}.safetensors"


def is_part(name: str) -> bool:
    """Return whether the name of a file is that of a part."""
    return _PART.fullmatch(name) is not None


def build_sharded(build: Callable[[], Model], world_size: int, device: torch.device) -> Model:
    """Build a model whose layers are sharded over the processes, each as soon as it is built.

    No process ever holds all layers whole. The parameters outside the layers are sharded
    afterwards, by :func:`shard_root`.

    Args:
        build: Makes the model, with equal weights in all processes.
        world_size: The number of processes.
        device: The device of this process.
    """
    from torch.distributed.fsdp import FSDPModule, fully_shard

    mesh = init_device_mesh(device.type, (world_size,))

    def shard_layer(parent: nn.Module, name: str, module: nn.Module | None) -> None:
        if isinstance(module, FSDPModule):
            return
        if isinstance(module, EncoderLayer | DecoderLayer):
            fully_shard(module, mesh=mesh)

    hook = register_module_module_registration_hook(shard_layer)
    try:
        return build()
    finally:
        hook.remove()


def shard_root(module: nn.Module, world_size: int, device: torch.device) -> None:
    """Shard the parameters of a module that are not sharded yet."""
    from torch.distributed.fsdp import fully_shard

    fully_shard(module, mesh=init_device_mesh(device.type, (world_size,)))


def is_sharded(tensor: Tensor) -> bool:
    """Return whether this process holds only a part of a tensor."""
    return hasattr(tensor, "to_local")  # a DTensor


def part_of(tensor: Tensor) -> Tensor:
    """Return the part of a sharded tensor that this process holds; any other tensor unchanged."""
    part: Tensor = getattr(tensor, "to_local", lambda: tensor)()
    return part


def gather(tensor: Tensor) -> Tensor:
    """Collect the parts of a sharded tensor. All processes must call it."""
    whole: Tensor = getattr(tensor, "full_tensor", lambda: tensor)()
    return whole


def empty_like(parameters: Iterable[Tensor]) -> Empty:
    """Make a function that allocates a tensor, sharded as the parameters of its shape are."""
    likes = {(each.shape, each.dtype): each.detach() for each in parameters}

    def empty(shape: torch.Size, dtype: torch.dtype) -> Tensor:
        like = likes.get((shape, dtype))
        return torch.empty(shape, dtype=dtype) if like is None else torch.empty_like(like)

    return empty


@torch.no_grad()
def copy_parts(targets: Mapping[str, Tensor], tensors: Mapping[str, Tensor]) -> None:
    """Copy tensors into others that are sharded alike, all of them or none.

    Args:
        targets: The tensors that receive the values, such as the ``state_dict`` of a module.
        tensors: One tensor for each name.

    Raises:
        ValueError: If a tensor is missing, unknown, of another shape or dtype, or if the part of
            this process is NaN or infinite.
    """
    if unequal := sorted(targets.keys() ^ tensors.keys()):
        what = "has no" if unequal[0] in tensors else "also has a"
        raise ValueError(f"the module {what} tensor {unequal[0]!r}")
    for name, target in targets.items():
        tensor = tensors[name]
        if (tensor.shape, tensor.dtype) != (target.shape, target.dtype):
            raise ValueError(
                f"tensor {name!r} must be {target.dtype} of shape {tuple(target.shape)}, got "
                f"{tensor.dtype} of shape {tuple(tensor.shape)}"
            )
        if not part_of(tensor).isfinite().all():
            raise ValueError(f"tensor {name!r} holds NaN or infinity")
    for name, target in targets.items():
        part_of(target).copy_(part_of(tensors[name]))
