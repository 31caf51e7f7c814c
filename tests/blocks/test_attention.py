"""Explicit and fused attention against a loop, against each other, and against their contract."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.blocks.reference import attention_loop, to_numpy
from tests.pairs import every_pair
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from transformer_blocks import (
    attention_weights,
    fused_attention,
    scaled_dot_product_attention,
)

Function = Callable[..., Tensor]


def explicit(*args: Tensor, **kwargs: Any) -> Tensor:
    return scaled_dot_product_attention(*args, **kwargs)[0]


IMPLEMENTATIONS = [explicit, fused_attention]
both_implementations = pytest.mark.parametrize("attention_function", IMPLEMENTATIONS)
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 5e-2}
every_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


class Case(NamedTuple):
    """The arguments of a call of attention, small enough to print."""

    batch: int
    heads: int
    groups: int
    queries: int
    keys: int
    d_k: int
    d_v: int
    mask_shape: tuple[int, ...] | None
    masked: float
    causal: bool
    scale: float | None
    seed: int

    def tensors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        torch.manual_seed(self.seed)
        query = torch.randn(self.batch, self.heads, self.queries, self.d_k)
        key = torch.randn(self.batch, self.groups, self.keys, self.d_k)
        value = torch.randn(self.batch, self.groups, self.keys, self.d_v)
        return query.to(dtype), key.to(dtype), value.to(dtype)

    def options(self) -> dict[str, Any]:
        torch.manual_seed(self.seed + 1)
        mask = None if self.mask_shape is None else torch.rand(self.mask_shape) < self.masked
        return {"mask": mask, "causal": self.causal, "scale": self.scale}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    batch = draw(st.integers(1, 3))
    heads, groups = draw(st.sampled_from([(1, 1), (3, 3), (2, 1), (4, 2), (4, 1)]))
    queries, keys = draw(st.integers(0, 4)), draw(st.integers(0, 5))
    broadcast = [(*leading, keys) for leading in product({1, batch}, {1, heads}, {1, queries})]
    return Case(
        batch,
        heads,
        groups,
        queries,
        keys,
        draw(st.integers(1, 4)),
        draw(st.integers(1, 4)),
        draw(st.sampled_from([None, (queries, keys), *broadcast])),
        draw(st.sampled_from([0.0, 0.3, 0.8, 1.0])),
        draw(st.booleans()),
        draw(st.sampled_from([None, 1.0, 0.3])),
        draw(st.integers(0, 1000)),
    )


@every_dtype
@settings(max_examples=25)
@given(case=cases())
def test_outputs_and_weights_equal_those_of_the_loop_and_masked_weights_are_exactly_zero(
    dtype: torch.dtype, case: Case
) -> None:
    query, key, value = case.tensors(dtype)
    expected_output, expected = attention_loop(query, key, value, **case.options())
    for attention_function in IMPLEMENTATIONS:
        output = attention_function(query, key, value, **case.options())
        assert output.dtype == dtype
        np.testing.assert_allclose(to_numpy(output), expected_output, rtol=0, atol=TOLERANCE[dtype])
    weights = attention_weights(query, key, **case.options())
    np.testing.assert_allclose(to_numpy(weights), expected, rtol=0, atol=TOLERANCE[dtype])
    assert (
        to_numpy(weights)[expected == 0.0] == 0.0
    ).all()  # masked weights are zero, not close to zero
    returned = scaled_dot_product_attention(query, key, value, dropout=0.5, **case.options())[1]
    assert torch.equal(weights, returned)  # those before dropout


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@settings(max_examples=25)
@given(case=cases())
def test_both_implementations_agree_in_outputs_and_gradients(
    dtype: torch.dtype, case: Case
) -> None:
    results = []
    for attention_function in (explicit, fused_attention):
        inputs = [tensor.requires_grad_() for tensor in case.tensors(dtype)]
        output = attention_function(*inputs, **case.options())
        upstream = torch.linspace(-1.0, 1.0, output.numel(), dtype=dtype).view_as(output)
        output.backward(upstream)
        results.append([output.detach(), *(tensor.grad for tensor in inputs)])
    torch.testing.assert_close(*results, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


FULLY_MASKED_ROW = torch.tensor([[False, True, False], [True, True, True], [False, False, True]])
every_path = pytest.mark.parametrize(
    "options",
    [{}, {"causal": True}, {"mask": FULLY_MASKED_ROW}, {"mask": FULLY_MASKED_ROW, "causal": True}],
)


@pytest.mark.parametrize(
    ("queries", "options"),
    [
        (3, {}),
        (3, {"mask": FULLY_MASKED_ROW}),
        (3, {"mask": FULLY_MASKED_ROW, "causal": True}),
        (3, {"mask": FULLY_MASKED_ROW.all(0)[None, None, None].expand(2, 1, 1, 3)}),
        (5, {"causal": True}),  # the first two of five queries come before all three keys
    ],
)
def test_gradients_are_exact_also_with_fully_masked_rows(
    queries: int, options: dict[str, Any]
) -> None:
    inputs = [
        torch.randn(2, 1, length, 2, dtype=torch.float64, requires_grad=True)
        for length in (queries, 3, 3)
    ]
    for attention_function in (explicit, fused_attention):
        assert torch.autograd.gradcheck(partial(attention_function, **options), inputs)
    # Fast mode compares along random directions instead of all pairs of elements.
    assert torch.autograd.gradgradcheck(partial(explicit, **options), inputs, fast_mode=True)


def spy_on_torch(monkeypatch: pytest.MonkeyPatch) -> list[Tensor | None]:
    """Collect the masks that torch's kernel receives, where True marks what is attended to."""
    masks: list[Tensor | None] = []
    torch_kernel = F.scaled_dot_product_attention

    def spy(*args: Any, **kwargs: Any) -> Tensor:
        masks.append(kwargs.get("attn_mask"))
        return torch_kernel(*args, **kwargs)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    return masks


@every_dtype
@pytest.mark.parametrize("kernel", [SDPBackend.FLASH_ATTENTION, SDPBackend.MATH])
def test_every_kernel_of_a_cpu_gives_zeros_and_finite_gradients_for_a_fully_masked_row(
    dtype: torch.dtype, kernel: SDPBackend
) -> None:
    for queries, keys, groups in ((3, 5, 4), (40, 40, 2), (2, 600, 1)):
        mask = torch.rand(2, 1, queries, keys) < 0.4
        mask[0, 0, 1] = True
        query, key, value = (
            torch.randn(2, heads, length, 8).to(dtype).requires_grad_()
            for heads, length in ((4, queries), (groups, keys), (groups, keys))
        )
        with sdpa_kernel(kernel):
            output = fused_attention(query, key, value, mask=mask)
            gradients = torch.autograd.grad(output.square().sum(), (query, key, value))
        assert output.isfinite().all()
        assert (output[0, :, 1] == 0.0).all()
        assert all(each.isfinite().all() for each in gradients)
        assert (gradients[0][0, :, 1] == 0.0).all()


@pytest.mark.parametrize(
    ("queries", "keys", "mask_free"), [(4, 4, True), (1, 1, True), (1, 5, True), (3, 5, False)]
)
def test_fused_attention_builds_no_causal_mask_where_it_needs_none(
    monkeypatch: pytest.MonkeyPatch, queries: int, keys: int, mask_free: bool
) -> None:
    masks = spy_on_torch(monkeypatch)

    def refuse(*_: object) -> Tensor:
        raise AssertionError("a causal mask was built")

    if mask_free:
        monkeypatch.setattr("torch.Tensor.triu_", refuse)
    query, key, value = (torch.randn(2, 2, n, 4) for n in (queries, keys, keys))
    fused_attention(query, key, value, causal=True)
    assert [mask is None for mask in masks] == [mask_free]


@pytest.mark.parametrize(
    ("attention_function", "dtype"),
    [*((each, torch.float64) for each in IMPLEMENTATIONS), (fused_attention, torch.bfloat16)],
)
@every_path
def test_dropout_sets_weights_to_zero_and_scales_the_others(
    attention_function: Function, dtype: torch.dtype, options: dict[str, Any]
) -> None:
    query, key = torch.randn(2, 30, 2, 3, 4, dtype=dtype)
    unit_vectors = torch.eye(3, dtype=dtype).expand(30, 2, 3, 3)  # values: outputs are weights
    weights = attention_weights(query, key, **options)
    dropped = attention_function(query, key, unit_vectors, dropout=0.375, **options)
    is_dropped = (dropped == 0.0) & (weights > 0.0)
    assert is_dropped.any()
    expected = (weights / 0.625).masked_fill(is_dropped, 0.0)
    torch.testing.assert_close(dropped, expected, rtol=0, atol=TOLERANCE[dtype])


@every_pair(
    {
        "dtype": TOLERANCE,
        "with_gradients": [False, True],
        "fault": [torch.nan, torch.inf, -torch.inf],
        "place": [0, 1, 2],
        "queries, keys": [(1, 1), (1, 20), (3, 16), (20, 20)],
        "causal": [False, True],
    }
)
def test_non_finite_inputs_show_in_explicit_attention_and_never_in_another_sequence_or_head(
    dtype: torch.dtype,
    with_gradients: bool,
    fault: float,
    place: int,
    queries: int,
    keys: int,
    causal: bool,
) -> None:
    inputs = [torch.randn(2, 2, length, 4).to(dtype) for length in (queries, keys, keys)]
    inputs[place][0, 0] = fault
    for attention_function in IMPLEMENTATIONS:  # torch's own kernel may lose a NaN
        with torch.set_grad_enabled(with_gradients):
            is_finite = attention_function(*inputs, causal=causal).isfinite()
        assert attention_function is fused_attention or not is_finite[0, 0, -1].any()
        is_finite[0, 0] = True
        assert is_finite.all()


@both_implementations
def test_inputs_and_masks_are_not_changed(attention_function: Function) -> None:
    inputs = (*torch.randn(3, 1, 1, 3, 4).unbind(), FULLY_MASKED_ROW.clone())
    before = [tensor.clone() for tensor in inputs]
    attention_function(*inputs[:3], mask=inputs[3], causal=True, dropout=0.5)
    assert all(map(torch.equal, inputs, before))


@pytest.mark.parametrize("length", [1, 5])
@every_dtype
def test_dropout_is_explicit_on_a_cpu_in_full_precision_and_nothing_else_is(
    monkeypatch: pytest.MonkeyPatch, dtype: torch.dtype, length: int
) -> None:
    query, key, value = torch.randn(3, 16, 4, length, 4, dtype=dtype).unbind()
    masks = spy_on_torch(monkeypatch)
    fused_attention(query, key, value, causal=True)
    assert len(masks) == 1
    fused_attention(query, key, value, causal=True, dropout=0.5)
    is_half = dtype in (torch.float16, torch.bfloat16)
    assert len(masks) == 1 + is_half
