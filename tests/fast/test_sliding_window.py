"""Sliding-window attention: what attention with a stored window mask computes."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import TorchDispatchMode

from transformer_blocks import (
    KeyValueCache,
    MultiHeadAttention,
    SlidingWindowAttention,
    attention_weights,
    fused_attention,
    packed_mask,
    scaled_dot_product_attention,
    sliding_window_mask,
)


@settings(max_examples=40)
@given(
    queries=st.integers(1, 14),
    keys=st.integers(1, 14),
    window=st.integers(1, 16),
    groups=st.sampled_from([1, 2, 4]),
    causal=st.booleans(),
    with_mask=st.booleans(),
    seed=st.integers(0, 99),
)
def test_output_and_gradients_equal_those_with_a_stored_mask(
    queries: int, keys: int, window: int, groups: int, causal: bool, with_mask: bool, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    stored, mask = sliding_window_mask(queries, keys, window=window), None
    if with_mask:  # some rows are fully masked
        shape = [(queries, keys), (2, 1, 1, keys), (1, 4, queries, keys)][seed % 3]
        mask = torch.rand(shape, generator=generator) < 0.5
        stored = stored | mask
    inputs = [
        torch.randn(2, *shape, generator=generator).double().requires_grad_()
        for shape in ((4, queries, 3), (groups, keys, 3), (groups, keys, 2))
    ]
    expected, weights = scaled_dot_product_attention(*inputs, mask=stored, causal=causal, scale=0.7)
    attention = SlidingWindowAttention(window)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transformer_blocks.fast.intervals.BLOCK_SIZE", 4)
        found = attention(*inputs, mask=mask, causal=causal, scale=0.7)
        gradients = torch.autograd.grad(found.square().sum(), inputs)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)
    of_expected = torch.autograd.grad(expected.square().sum(), inputs)
    torch.testing.assert_close(gradients, of_expected, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(
        attention.attention_weights(*inputs[:2], mask=mask, causal=causal, scale=0.7), weights
    )


@pytest.mark.parametrize("window", [14, 2**40 + 1, 2**63 - 1])
@pytest.mark.parametrize(("queries", "keys"), [(9, 12), (12, 9)])
def test_a_window_beyond_every_position_masks_nothing(window: int, queries: int, keys: int) -> None:
    assert not sliding_window_mask(queries, keys, window=window).any()
    query, key = torch.randn(1, 2, queries, 8), torch.randn(1, 2, keys, 8)
    attention = SlidingWindowAttention(window)
    weights = attention.attention_weights(query, key, causal=True)
    torch.testing.assert_close(weights, attention_weights(query, key, causal=True))
    with FakeTensorMode(allow_non_fake_inputs=True):  # where a window is always a mask
        assert attention(query, key, key).shape == query.shape


class Elements(TorchDispatchMode):
    """Counts the elements of the largest tensor, and the multiplications of attention."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest = self.pairs = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        if "scaled_dot_product" in str(function) and "backward" not in str(function):
            query, key = args[:2]
            self.pairs += query.shape[2] * key.shape[2]
        result = function(*args, **(kwargs or {}))
        for each in result if isinstance(result, tuple | list) else [result]:
            if isinstance(each, Tensor):
                self.largest = max(self.largest, each.numel())
        return result


def attend_in_documents(x: Tensor) -> Tensor:
    documents = torch.arange(x.shape[2])[None] // 100
    return fused_attention(x, x, x, mask=packed_mask(documents), causal=True)


@pytest.mark.parametrize("with_gradients", [False, True])
@pytest.mark.parametrize(
    ("attend", "keys"),
    [
        (lambda x: SlidingWindowAttention(100)(x, x, x, causal=True), 228),
        (attend_in_documents, 356),
    ],
)
def test_memory_and_work_grow_linearly_with_the_length(
    attend: Callable[[Tensor], Tensor], keys: int, with_gradients: bool
) -> None:
    counts = []
    for length in (2048, 4096):
        x = torch.randn(1, 1, length, 4, requires_grad=with_gradients)
        with Elements() as counted:
            output = attend(x)
            if with_gradients:
                output.sum().backward()
        counts.append(counted)
        assert 0 < counted.largest <= 128 * keys
    assert 0 < counts[1].pairs <= 2.1 * counts[0].pairs < length**2 / 4


@torch.no_grad()
def test_a_decoding_step_reads_the_window_alone() -> None:
    attention = MultiHeadAttention(16, 4, attention_function=SlidingWindowAttention(3))
    x, cache = torch.randn(1, 8, 16), KeyValueCache()
    attention(x[:, :7], x[:, :7], x[:, :7], causal=True, cache=cache)
    keys, _ = cache.read()
    keys[:, :, :5] = torch.nan  # before the window of the next position
    last = x[:, 7:]
    step = attention(last, last, last, causal=True, cache=cache)
    torch.testing.assert_close(step, attention(x, x, x, causal=True)[:, 7:])


@pytest.mark.parametrize("shape", [(1, 8), (2, 1, 1, 8), (2, 4, 1, 8)])
def test_a_decoding_step_obeys_the_mask_of_the_keys_in_its_window(shape: tuple[int, ...]) -> None:
    query, key, value = torch.randn(2, 4, 1, 6), *torch.randn(2, 2, 4, 8, 6).unbind()
    mask = torch.rand(shape) < 0.5
    mask[..., -1] = False
    found = SlidingWindowAttention(3)(query, key, value, mask=mask)
    window = mask | sliding_window_mask(1, 8, window=3)
    expected, _ = scaled_dot_product_attention(query, key, value, mask=window)
    torch.testing.assert_close(found, expected)


def test_a_window_of_the_whole_length_masks_nothing_and_takes_the_kernel_without_a_mask() -> None:
    query, key, value = torch.randn(3, 1, 2, 300, 8).unbind()
    with Elements() as counted:
        found = SlidingWindowAttention(300)(query, key, value, causal=True)
    assert counted.pairs == 300**2  # in one call, not in blocks
    assert torch.equal(found, fused_attention(query, key, value, causal=True))


def test_a_second_derivative_is_refused_and_never_zero() -> None:
    x = torch.randn(1, 1, 8, 4, requires_grad=True)
    documents = torch.tensor([[0, 0, 0, 1, 1, 1, 1, 1]])
    for y in (
        SlidingWindowAttention(3)(x, x, x),
        fused_attention(x, x, x, mask=packed_mask(documents), causal=True),
    ):
        with pytest.raises(RuntimeError, match="can be differentiated once, not twice"):
            torch.autograd.grad(y.square().sum(), x, create_graph=True)


def test_shapes_are_computed_without_values() -> None:
    attention = SlidingWindowAttention(3)
    with FakeTensorMode():
        x = torch.randn(2, 4, 300, 8)
        documents = torch.zeros(2, 300, dtype=torch.int32)
        assert attention(x, x, x, causal=True).shape == x.shape
        assert fused_attention(x, x, x, mask=packed_mask(documents)).shape == x.shape
    meta = torch.empty(2, 4, 300, 8, device="meta")
    assert attention(meta, meta, meta).shape == meta.shape


def test_compiled_code_of_any_length_computes_the_same() -> None:
    attention = SlidingWindowAttention(3)
    compiled = torch.compile(attention, fullgraph=True, dynamic=True, backend="eager")
    for length in (7, 9):
        x = torch.randn(1, 4, length, 8)
        for keys in (x, x[:, :2]):
            torch.testing.assert_close(compiled(x, keys, keys), attention(x, keys, keys))
