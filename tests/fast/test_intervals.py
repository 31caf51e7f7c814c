"""Interval masks: the elements of a stored mask, and attention that does not compute them."""

import copy
import pickle
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from transformer_blocks import (
    causal_mask,
    document_mask,
    fused_attention,
    packed_mask,
    padding_mask,
    scaled_dot_product_attention,
)
from transformer_blocks.fast.intervals import IntervalMask, band_intervals
from transformer_blocks.inspection import explain_mask


def draw_documents(batch: int, length: int, generator: torch.Generator) -> Tensor:
    """Draw ids of adjacent documents, which need not grow."""
    starts = torch.rand(batch, length, generator=generator) < 0.3
    return (starts.cumsum(1) * 5) % 17


@settings(max_examples=40)
@given(
    batch=st.integers(0, 3),
    groups=st.sampled_from([1, 2, 4]),
    length=st.integers(0, 14),
    causal=st.booleans(),
    with_rest=st.booleans(),
    seed=st.integers(0, 99),
)
def test_attention_equals_that_with_a_stored_mask(
    batch: int, groups: int, length: int, causal: bool, with_rest: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    documents = draw_documents(batch, length, generator)
    stored, mask = document_mask(documents), packed_mask(documents)
    if with_rest:
        sizes = [(batch, 1, 1, length), (length, length), (1, 4, length, length)]
        rest = torch.rand(sizes[seed % 3], generator=generator) < 0.4
        stored, mask = stored | rest, rest | mask
    assert isinstance(mask, IntervalMask)
    assert torch.equal(mask, stored)
    results = []
    shapes = (4, length, 3), (groups, length, 3), (groups, length, 2)
    values = [torch.randn(batch, *shape, generator=generator).double() for shape in shapes]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transformer_blocks.fast.intervals.BLOCK_SIZE", 4)
        for attention_function, each in (
            (lambda *x, **o: scaled_dot_product_attention(*x, **o)[0], stored),
            (fused_attention, mask),
        ):
            inputs = [value.clone().requires_grad_() for value in values]
            output = attention_function(*inputs, mask=each, causal=causal)
            gradients = torch.autograd.grad(output.square().sum(), inputs)
            with torch.no_grad():
                again = attention_function(*inputs, mask=each, causal=causal)
            results.append([output, again, *gradients])
    torch.testing.assert_close(results[1], results[0], rtol=1e-9, atol=1e-11)


def test_every_operation_but_or_computes_the_elements() -> None:
    documents = torch.tensor([[1, 1, 2, 2, 2], [3, 3, 3, 3, 0]])
    mask, stored = packed_mask(documents), document_mask(documents)
    assert (mask.shape, mask.dtype, mask.device) == (stored.shape, stored.dtype, stored.device)
    for each in (mask.all(-1), mask[..., :3], mask.float(), mask & stored, mask.clone()):
        assert type(each) is Tensor
    assert torch.equal(mask[..., 1:, :3], stored[..., 1:, :3])
    assert torch.equal(mask.to(torch.int64).sum(), stored.sum())
    assert repr(mask) == "IntervalMask(shape=(2, 1, 5, 5))"
    assert explain_mask(mask) == explain_mask(stored)
    for copied in (copy.deepcopy(mask), pickle.loads(pickle.dumps(mask))):
        assert isinstance(copied, IntervalMask)
        assert torch.equal(copied, stored)
    with pytest.raises(RuntimeError, match="changed in place"):
        mask.fill_(False)
    with pytest.raises(RuntimeError, match="changed in place"):
        mask |= causal_mask(5)


def test_masks_are_combined_without_their_elements() -> None:
    documents, padding = torch.tensor([[1, 1, 2, 2, 0]]), torch.tensor([[4, 4, 4, 4, 0]])
    future = band_intervals(5, 5, before=5, after=1, like=documents)
    mask = packed_mask(documents) | future | padding_mask(padding)
    assert isinstance(mask, IntervalMask)
    assert mask.rest is not None
    assert mask.rest.shape == (1, 1, 1, 5)
    expected = document_mask(documents) | causal_mask(5) | padding_mask(padding)
    assert torch.equal(mask, expected)
    assert torch.equal(mask | causal_mask(5), expected)
    assert torch.equal(causal_mask(5) | mask, expected)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint64, torch.int8])
def test_ids_may_be_integers_of_every_size(dtype: torch.dtype) -> None:
    documents = torch.tensor([[3, 3, 1, 1, 1]])
    mask = packed_mask(documents.to(dtype))
    assert torch.equal(mask | torch.zeros(5, 5, dtype=torch.bool), document_mask(documents))
    assert packed_mask(documents.to("meta")).shape == mask.shape


def test_a_document_in_two_places_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^the positions of a document must be adjacent in docum"):
        packed_mask(torch.tensor([[1, 1, 2], [1, 2, 1]]))


def test_gradients_work_in_the_transforms_of_torch_func_and_with_dropout() -> None:
    x, documents = torch.randn(1, 1, 9, 4, dtype=torch.float64), torch.arange(9)[None] // 4

    def attend(x: Tensor, mask: Tensor) -> Tensor:
        return fused_attention(x, x, x, mask=mask, causal=True).square().sum()

    masks = packed_mask(documents), document_mask(documents)
    gradients = [torch.func.grad(partial(attend, mask=mask))(x) for mask in masks]
    torch.testing.assert_close(*gradients)
    x.requires_grad_()
    output = fused_attention(x, x, x, mask=masks[0], dropout=0.5)
    assert torch.autograd.grad(output.sum(), x)[0].isfinite().all()
    value = torch.randn_like(x).requires_grad_()
    output = fused_attention(x, x, value, mask=masks[0], dropout=0.5)  # linear in the values
    (gradient,) = torch.autograd.grad(output.sum(), value)  # of the same random numbers
    torch.testing.assert_close((gradient * value).sum(), output.sum())


def test_a_mask_that_is_changed_before_the_backward_pass_is_refused() -> None:
    x, padding = torch.randn(1, 1, 5, 4, requires_grad=True), torch.zeros(1, 1, 1, 5).bool()
    mask = packed_mask(torch.tensor([[1, 1, 2, 2, 2]])) | padding
    output = fused_attention(x, x, x, mask=mask)
    padding[..., 0] = True
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()
