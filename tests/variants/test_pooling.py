"""Pooling: which vectors of a sequence make up its vector, and what padding cannot change."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from transformer_blocks import first_pool, last_pool, length_mask, mean_pool

PLAIN: dict[Callable[..., Tensor], Callable[[Tensor], Tensor]] = {
    mean_pool: lambda x: x.mean(1),
    first_pool: lambda x: x[:, 0],
    last_pool: lambda x: x[:, -1],
}
every_pool = pytest.mark.parametrize("pool", PLAIN, ids=["mean", "first", "last"])


@every_pool
@pytest.mark.parametrize(("left", "right"), [(0, 0), (2, 0), (0, 3), (2, 3)])
def test_padding_changes_neither_vectors_nor_gradients(pool: Any, left: int, right: int) -> None:
    x = torch.randn(2, 4, 8, dtype=torch.float64, requires_grad=True)
    nan = torch.full((2, 3, 8), torch.nan, dtype=torch.float64)
    padded = torch.cat([nan[:, :left], x, nan[:, :right]], dim=1)
    mask = padded.isnan()[:, None, None, :, 0]
    expected, found = PLAIN[pool](x), pool(padded, mask=mask)
    torch.testing.assert_close(found, expected)
    gradients = [torch.autograd.grad(y.square().sum(), x) for y in (found, expected)]
    torch.testing.assert_close(*gradients)


@every_pool
def test_each_sequence_has_its_own_length(pool: Any) -> None:
    x, lengths = torch.randn(3, 5, 8), [5, 1, 3]
    pooled = pool(x, mask=length_mask(torch.tensor(lengths), 5))
    for row, length in enumerate(lengths):
        torch.testing.assert_close(pooled[row], PLAIN[pool](x[None, row, :length])[0])
    torch.testing.assert_close(pool(x), PLAIN[pool](x))  # without a mask


@every_pool
def test_a_mask_may_be_the_same_for_all_sequences(pool: Any) -> None:
    x, mask = torch.randn(2, 5, 8), torch.arange(5)[None] > 2
    for same in (mask, mask[None, None]):
        torch.testing.assert_close(pool(x, mask=same), PLAIN[pool](x[:, :3]))


@every_pool
def test_a_fully_masked_sequence_has_the_vector_zero_and_finite_gradients(pool: Any) -> None:
    x = torch.randn(2, 5, 8, requires_grad=True)
    pooled = pool(x, mask=length_mask(torch.tensor([0, 4]), 5))
    pooled.square().sum().backward()
    assert x.grad is not None
    assert not pooled[0].any()
    assert not x.grad[0].any()
    assert pooled[1].all()
    assert x.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_a_mean_in_half_precision_does_not_overflow(dtype: torch.dtype) -> None:
    x = torch.full((1, 2048, 1), 1000.0, dtype=dtype)
    torch.testing.assert_close(mean_pool(x), x[:, 0])
