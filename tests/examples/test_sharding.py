"""Laws of sharded tensors: each process takes its part of a whole one."""

import pytest
import torch
import torch.distributed as dist
from tests.examples.test_checkpoint import assert_same
from tests.examples.together import GROUP
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard

from common.sharding import copy_whole, part_of


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
