"""Sharding: each process holds a part of the weights and of the optimiser's state (FSDP).

Processes that train together usually hold the same weights, the same moving average and the same
moments of Adam, each a full copy: 20 bytes for every weight, with its gradient. Instead, each can
hold a shard of every weight and of all that belongs to it ("ZeRO", Rajbhandari et al. 2019,
https://arxiv.org/abs/1910.02054; here torch's ``fully_shard``). The weights of a layer are gathered
just before it computes and freed right after, in the forward pass and again in the backward pass:
half as much again is communicated, and N times less is stored. The updates are the same.

A sharded tensor is a ``DTensor``: it has the shape of the whole, and its ``to_local()`` is the part
of this process. FSDP and DTensor are imported where they are needed, which takes most of a second.
"""

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.modules.module import register_module_module_registration_hook

from transformer_blocks import DecoderLayer, EncoderLayer

Model = TypeVar("Model", bound=nn.Module)


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


def part_of(tensor: Tensor) -> Tensor:
    """Return the part of a sharded tensor that this process holds; any other tensor unchanged."""
    part: Tensor = getattr(tensor, "to_local", lambda: tensor)()
    return part


def gather(tensor: Tensor) -> Tensor:
    """Collect the parts of a sharded tensor. All processes must call it."""
    whole: Tensor = getattr(tensor, "full_tensor", lambda: tensor)()
    return whole


@torch.no_grad()
def copy_whole(target: Tensor, whole: Tensor) -> None:
    """Copy a whole tensor into one of which this process may hold only its part.

    Raises:
        ValueError: If they differ in shape or dtype.
    """
    if (whole.shape, whole.dtype) != (target.shape, target.dtype):
        raise ValueError(f"a tensor must be {target.dtype} of shape {tuple(target.shape)}")
    if hasattr(target, "to_local"):
        from torch.distributed.tensor import DTensor, distribute_tensor

        assert isinstance(target, DTensor)
        whole = distribute_tensor(
            whole.to(target.device), target.device_mesh, target.placements, src_data_rank=None
        )
    target.copy_(whole)
