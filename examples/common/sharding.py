"""Sharding: what no process has room for, each holds a part of.

Processes that learn together usually hold the same weights, the same moving average and the same
moments of Adam, each a whole copy: 20 bytes for every weight, with its gradient. Instead
each can keep a slice of every weight and all that belongs to it ("ZeRO", Rajbhandari et al. 2019,
https://arxiv.org/abs/1910.02054; here as torch's ``fully_shard``). A layer's weights are put
together just before it computes and let go right after, in the forward pass and again in the
backward one: half as much again to send, for N times less to hold. The numbers learnt are the same.

Where everything is needed at once, as in a checkpoint, :func:`whole` puts the slices together. All
processes must take part in that.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor

from transformer_blocks import DecoderLayer, EncoderLayer


def shard(module: nn.Module, count: int, device: torch.device) -> None:
    """Leave of each weight a slice to each process; a layer is the unit that is put together.

    Args:
        module: The same in all processes. Its parameters are exchanged for new ones.
        count: Of the processes.
        device: Where they compute.
    """
    mesh = init_device_mesh(device.type, (count,))
    for part in module.modules():
        if isinstance(part, EncoderLayer | DecoderLayer):
            fully_shard(part, mesh=mesh)
    fully_shard(module, mesh=mesh)


def whole(value: Any) -> Any:
    """Put together every sliced tensor in nested dictionaries and lists."""
    if isinstance(value, DTensor):
        return value.full_tensor()
    if isinstance(value, Mapping):
        return {key: whole(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole(item) for item in value]
    return value


def shard_moments(state: dict[str, Any], parameters: Sequence[Tensor]) -> dict[str, Any]:
    """Slice an optimiser's state as its parameters are sliced.

    Args:
        state: The ``state_dict`` of an optimiser of the same parameters, when they were whole.
        parameters: Sliced, in the optimiser's order.
    """

    def slice_like(moment: Tensor, parameter: Tensor) -> Tensor:
        if isinstance(parameter, DTensor) and moment.shape == parameter.shape:
            return distribute_tensor(moment, parameter.device_mesh, parameter.placements)
        return moment  # the number of the step

    moments = {
        index: {name: slice_like(moment, parameters[index]) for name, moment in of_one.items()}
        for index, of_one in state["state"].items()
    }
    return state | {"state": moments}
