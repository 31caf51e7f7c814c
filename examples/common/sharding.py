"""Sharding: each process holds a part of the weights and of the optimiser's state (FSDP).

Processes that train together usually hold the same weights, the same moving average and the same
moments of Adam, each a full copy: 20 bytes for every weight, with its gradient. Instead, each can
hold a shard of every weight and of all that belongs to it ("ZeRO", Rajbhandari et al. 2019,
https://arxiv.org/abs/1910.02054; here torch's ``fully_shard``). The weights of a layer are gathered
just before it computes and freed right after, in the forward pass and again in the backward pass:
half as much again is communicated, and N times less is stored. The updates are the same.

Where the full tensors are needed, as in a checkpoint, :func:`gather` collects the shards. All
processes must call it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from transformer_blocks import DecoderLayer, EncoderLayer


def shard(module: nn.Module, world_size: int, device: torch.device) -> None:
    """Shard the parameters of a module over the processes, layer by layer.

    Args:
        module: The module, equal in all processes. Its parameters are replaced.
        world_size: The number of processes.
        device: The device of this process.
    """
    mesh = init_device_mesh(device.type, (world_size,))
    for part in module.modules():
        if isinstance(part, EncoderLayer | DecoderLayer):
            fully_shard(part, mesh=mesh)
    fully_shard(module, mesh=mesh)


def gather(value: Any) -> Any:
    """Collect the shards of every tensor in nested dictionaries and lists."""
    if isinstance(value, DTensor):
        return value.full_tensor()
    if isinstance(value, Mapping):
        return {key: gather(item) for key, item in value.items()}
    if isinstance(value, list):
        return [gather(item) for item in value]
    return value


def shard_moments(state: dict[str, Any], parameters: Sequence[Tensor]) -> dict[str, Any]:
    """Shard an optimiser's state like its parameters.

    Args:
        state: The ``state_dict`` of an optimiser of the same parameters, before sharding.
        parameters: The sharded parameters, in the optimiser's order.
    """

    def shard_like(moment: Tensor, parameter: Tensor) -> Tensor:
        if isinstance(parameter, DTensor) and moment.shape == parameter.shape:
            return distribute_tensor(moment, parameter.device_mesh, parameter.placements)
        return moment  # the step count

    moments = {
        index: {name: shard_like(moment, parameters[index]) for name, moment in of_one.items()}
        for index, of_one in state["state"].items()
    }
    return state | {"state": moments}
