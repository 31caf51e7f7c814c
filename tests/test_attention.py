"""Both kernels against the loop, each other, and the rules they promise."""

from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from tests.reference import attention_loop, to_numpy
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from transformer_blocks import (
    attention_weights,
    causal_mask,
    fused_attention,
    padding_mask,
    scaled_dot_product_attention,
    sliding_window_mask,
)

Kernel = Callable[..., Tensor]


def readable(*args: Tensor, **kwargs: Any) -> Tensor:
    return scaled_dot_product_attention(*args, **kwargs)[0]


both_kernels = pytest.mark.parametrize("attention_function", [readable, fused_attention])
TOLERANCE = {torch.float64: 1e-12, torch.float32: 1e-5, torch.float16: 5e-3, torch.bfloat16: 5e-2}
every_dtype = pytest.mark.parametrize("dtype", TOLERANCE, ids=str)


class Case(NamedTuple):
    """A call of attention, small enough to print."""

    batch: int
    heads: int
    queries: int
    keys: int
    width: int
    value_width: int
    mask_shape: tuple[int, ...] | None
    hidden: float
    causal: bool
    scale: float | None
    seed: int

    def tensors(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        torch.manual_seed(self.seed)
        lengths = (self.queries, self.width), (self.keys, self.width), (self.keys, self.value_width)
        query, key, value = (torch.randn(self.batch, self.heads, *size) for size in lengths)
        return query.to(dtype), key.to(dtype), value.to(dtype)

    def options(self) -> dict[str, Any]:
        torch.manual_seed(self.seed + 1)
        mask = None if self.mask_shape is None else torch.rand(self.mask_shape) < self.hidden
        return {"mask": mask, "causal": self.causal, "scale": self.scale}


@st.composite
def cases(draw: st.DrawFn) -> Case:
    batch, heads = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    queries, keys = draw(st.integers(0, 4)), draw(st.integers(0, 5))
    broadcast = [(*leading, keys) for leading in product({1, batch}, {1, heads}, {1, queries})]
    return Case(
        batch,
        heads,
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
@both_kernels
@given(case=cases())
def test_both_kernels_compute_what_the_loop_computes(
    attention_function: Kernel, dtype: torch.dtype, case: Case
) -> None:
    query, key, value = case.tensors(dtype)
    mixed = attention_function(query, key, value, **case.options())
    expected, _ = attention_loop(query, key, value, **case.options())
    assert mixed.dtype == dtype
    np.testing.assert_allclose(to_numpy(mixed), expected, rtol=0, atol=TOLERANCE[dtype])


@every_dtype
@given(case=cases())
def test_weights_are_the_loops_and_rows_sum_to_one_or_to_zero(
    dtype: torch.dtype, case: Case
) -> None:
    query, key, value = case.tensors(dtype)
    weights = attention_weights(query, key, **case.options())
    _, expected = attention_loop(query, key, value, **case.options())
    np.testing.assert_allclose(to_numpy(weights), expected, rtol=0, atol=TOLERANCE[dtype])
    assert (to_numpy(weights)[expected == 0.0] == 0.0).all()  # hidden is zero, not almost zero
    returned = scaled_dot_product_attention(query, key, value, **case.options())[1]
    assert torch.equal(weights, returned)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@given(case=cases())
def test_both_kernels_agree_in_outputs_and_gradients(dtype: torch.dtype, case: Case) -> None:
    results = []
    for attention_function in (readable, fused_attention):
        inputs = [tensor.requires_grad_() for tensor in case.tensors(dtype)]
        mixed = attention_function(*inputs, **case.options())
        upstream = torch.linspace(-1.0, 1.0, mixed.numel(), dtype=dtype).view_as(mixed)
        mixed.backward(upstream)
        results.append([mixed.detach(), *(tensor.grad for tensor in inputs)])
    torch.testing.assert_close(*results, rtol=TOLERANCE[dtype], atol=TOLERANCE[dtype])


BLIND_ROW = torch.tensor([[False, True, False], [True, True, True], [False, False, True]])
every_path = pytest.mark.parametrize(
    "options", [{}, {"causal": True}, {"mask": BLIND_ROW}, {"mask": BLIND_ROW, "causal": True}]
)


@pytest.mark.parametrize(
    ("queries", "options"),
    [
        (3, {}),
        (3, {"mask": BLIND_ROW}),
        (3, {"mask": BLIND_ROW, "causal": True}),
        (3, {"mask": BLIND_ROW.all(0)[None, None, None].expand(2, 1, 1, 3)}),
        (5, {"causal": True}),  # the first two of five queries see none of three keys
    ],
)
def test_gradients_are_exact_also_where_a_query_sees_nothing(
    queries: int, options: dict[str, Any]
) -> None:
    inputs = [
        torch.randn(2, 1, length, 2, dtype=torch.float64, requires_grad=True)
        for length in (queries, 3, 3)
    ]
    for attention_function in (readable, fused_attention):
        assert torch.autograd.gradcheck(partial(attention_function, **options), inputs)
    # Fast mode compares along random directions instead of every number with every other.
    assert torch.autograd.gradgradcheck(partial(readable, **options), inputs, fast_mode=True)


@every_dtype
@both_kernels
@pytest.mark.parametrize(
    ("blind", "options"),
    [
        ([1], {"mask": BLIND_ROW}),
        ([1], {"mask": BLIND_ROW.expand(2, 1, 3, 3)}),
        ([1], {"mask": BLIND_ROW, "causal": True}),
        ([0], {"mask": torch.eye(3, dtype=torch.bool), "causal": True}),  # only both together
        ([0, 1, 2], {"mask": torch.ones(1, 1, 1, 3, dtype=torch.bool)}),
        ([0, 1], {"causal": True, "keys": 1}),
    ],
)
def test_a_query_that_may_see_nothing_gets_zeros_and_finite_gradients(
    attention_function: Kernel, dtype: torch.dtype, blind: list[int], options: dict[str, Any]
) -> None:
    options = dict(options)
    keys = options.pop("keys", 3)
    query, key, value = (
        torch.randn(2, 2, length, 4, dtype=dtype, requires_grad=True) for length in (3, keys, keys)
    )
    with torch.autograd.set_detect_anomaly(True):
        mixed = attention_function(query, key, value, **options)
        mixed.float().square().sum().backward()
    sees = [row for row in range(3) if row not in blind]
    assert (mixed[:, :, blind] == 0.0).all()
    assert (mixed[:, :, sees] != 0.0).any(-1).all()
    for tensor in (query, key, value):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()
    assert query.grad is not None
    assert (query.grad[:, :, blind] == 0.0).all()


@every_dtype
@both_kernels
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("batch", "queries", "keys"),
    [(0, 3, 3), (0, 1, 3), (2, 0, 3), (2, 3, 0), (2, 1, 0), (2, 0, 0)],
)
def test_nothing_to_ask_or_nothing_to_see_is_no_error(
    attention_function: Kernel,
    dtype: torch.dtype,
    causal: bool,
    masked: bool,
    batch: int,
    queries: int,
    keys: int,
) -> None:
    query, key, value = (
        torch.randn(batch, 2, length, 4, dtype=dtype, requires_grad=True)
        for length in (queries, keys, keys)
    )
    mask = torch.zeros(queries, keys, dtype=torch.bool) if masked else None
    mixed = attention_function(query, key, value, mask=mask, causal=causal)
    mixed.sum().backward()
    assert mixed.shape == (batch, 2, queries, 4)
    assert (mixed == 0.0).all()
    for tensor in (query, key, value):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


@every_path
@both_kernels
def test_a_scale_replaces_the_root_of_the_width_on_every_path(
    attention_function: Kernel, options: dict[str, Any]
) -> None:
    query, key, value = torch.randn(3, 2, 2, 3, 4, dtype=torch.float64).unbind()
    expected, _ = attention_loop(query, key, value, scale=2.0, **options)
    mixed = attention_function(query, key, value, scale=2.0, **options)
    np.testing.assert_allclose(to_numpy(mixed), expected, rtol=0, atol=1e-12)
    root = attention_function(query, key, value, scale=4**-0.5, **options)
    torch.testing.assert_close(root, attention_function(query, key, value, **options))


@both_kernels
@pytest.mark.parametrize(("queries", "keys"), [(2, 5), (4, 4), (5, 2), (1, 5)])
def test_causal_is_the_causal_mask_and_joins_any_other(
    attention_function: Kernel, queries: int, keys: int
) -> None:
    query, key, value = (
        torch.randn(2, 2, n, 4, dtype=torch.float64) for n in (queries, keys, keys)
    )
    future = causal_mask(queries, keys)
    torch.testing.assert_close(
        attention_function(query, key, value, causal=True),
        attention_function(query, key, value, mask=future),
    )
    padding = padding_mask(torch.randint(0, 2, (2, keys)))
    torch.testing.assert_close(
        attention_function(query, key, value, mask=padding, causal=True),
        attention_function(query, key, value, mask=padding | future),
    )


def test_the_last_of_two_queries_sees_all_of_five_keys() -> None:
    weights = attention_weights(torch.randn(1, 1, 2, 4), torch.randn(1, 1, 5, 4), causal=True)
    assert (weights[0, 0] > 0.0).tolist() == [[True, True, True, True, False], [True] * 5]


def spy_on_torch(monkeypatch: pytest.MonkeyPatch) -> list[Tensor | None]:
    """Collect the masks that torch's kernel is given, in its sense: True shows."""
    seen: list[Tensor | None] = []
    torch_kernel = F.scaled_dot_product_attention

    def spy(*args: Any, **kwargs: Any) -> Tensor:
        seen.append(kwargs.get("attn_mask"))
        return torch_kernel(*args, **kwargs)

    monkeypatch.setattr(F, "scaled_dot_product_attention", spy)
    return seen


@every_path
def test_torch_is_never_asked_about_a_row_that_sees_nothing(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any]
) -> None:
    seen = spy_on_torch(monkeypatch)
    fused_attention(*torch.randn(3, 1, 1, 3, 4).unbind(), **options)
    assert [mask is None or bool(mask.any(-1).all()) for mask in seen] == [True]


@pytest.mark.parametrize(
    ("queries", "keys", "mask_free"), [(4, 4, True), (1, 1, True), (1, 5, True), (3, 5, False)]
)
def test_fused_attention_builds_no_causal_mask_where_it_needs_none(
    monkeypatch: pytest.MonkeyPatch, queries: int, keys: int, mask_free: bool
) -> None:
    seen = spy_on_torch(monkeypatch)

    def refuse(*_: object) -> Tensor:
        raise AssertionError("a mask was built")

    if mask_free:
        monkeypatch.setattr("transformer_blocks.attention.build_causal_mask", refuse)
    query, key, value = (torch.randn(2, 2, n, 4) for n in (queries, keys, keys))
    fused_attention(query, key, value, causal=True)
    assert [mask is None for mask in seen] == [mask_free]


@every_path
@both_kernels
def test_dropout_drops_whole_weights_and_scales_up_the_rest(
    attention_function: Kernel, options: dict[str, Any]
) -> None:
    query, key = torch.randn(2, 30, 2, 3, 4, dtype=torch.float64)
    unit_vectors = torch.eye(3, dtype=torch.float64).expand(30, 2, 3, 3)  # mix to the weights
    whole = attention_weights(query, key, **options)
    dropped = attention_function(query, key, unit_vectors, dropout=0.375, **options)
    gone = (dropped == 0.0) & (whole > 0.0)
    assert gone.any()
    torch.testing.assert_close(dropped, (whole / 0.625).masked_fill(gone, 0.0))


@every_path
@both_kernels
def test_dropout_changes_no_average(attention_function: Kernel, options: dict[str, Any]) -> None:
    query, key, value = (torch.rand(1, 1, 3, 4).expand(8000, 1, 3, 4) for _ in range(3))
    mean = attention_function(query, key, value, dropout=0.3, **options).mean(0)
    once = attention_function(query[:1], key[:1], value[:1], **options)[0]
    # One draw is off by at most sqrt(0.3 / 0.7) = 0.65; the mean of 8000 by 0.007.
    torch.testing.assert_close(mean, once, rtol=0, atol=0.04)


def test_returned_weights_are_those_before_dropout() -> None:
    query, key, value = torch.randn(3, 2, 2, 4, 8).unbind()
    _, weights = scaled_dot_product_attention(query, key, value, dropout=0.5)
    assert torch.equal(weights, attention_weights(query, key))
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 4))


@both_kernels
def test_dropout_is_reproduced_by_the_seed_and_off_by_default(attention_function: Kernel) -> None:
    query, key, value = torch.randn(3, 2, 2, 4, 8).unbind()
    draws = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        draws.append(attention_function(query, key, value, dropout=0.5))
    assert torch.equal(draws[0], draws[1])
    assert not torch.equal(draws[0], draws[2])
    assert torch.equal(attention_function(query, key, value), attention_function(query, key, value))


@both_kernels
def test_large_half_precision_scores_do_not_overflow(attention_function: Kernel) -> None:
    query = torch.full((1, 1, 2, 64), 40.0, dtype=torch.float16)  # q k = 102400, past 65504
    value = torch.rand(1, 1, 2, 64, dtype=torch.float16)
    mixed = attention_function(query, query, value)
    torch.testing.assert_close(mixed, value.mean(-2, keepdim=True).expand_as(value))


def is_lost(inputs: dict[str, Tensor], hidden: Tensor) -> Tensor:
    """Say where an output cannot be finite: each query with the keys alone that it can attend to.

    Args:
        inputs: The query, the key and the value.
        hidden: Shape (L, S).
    """
    query, key, value = inputs.values()
    rows = []
    for row, masked in enumerate(hidden):
        seen = query[:, :, row : row + 1], key[:, :, ~masked], value[:, :, ~masked]
        rows.append(~readable(*(tensor.double() for tensor in seen)).isfinite())
    return torch.cat(rows, dim=2)


LENGTHS = [(1, 1), (1, 5), (3, 3), (4, 15), (3, 16), (15, 15), (1, 20), (20, 20)]


@every_dtype
@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize("fault", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("place", ["query", "key", "value"])
def test_what_is_not_finite_shows_in_the_same_outputs_on_every_path(
    dtype: torch.dtype, learns: bool, fault: float, place: str
) -> None:
    for (queries, keys), batch in product(LENGTHS, (1, 40)):
        inputs = {
            name: torch.randn(batch, 2, length, 4).to(dtype)
            for name, length in (("query", queries), ("key", keys), ("value", keys))
        }
        faulty = inputs[place]
        faulty[0, 0, torch.randint(faulty.shape[2], ()), torch.randint(4, ())] = fault
        if batch > 1:
            faulty[1, 0] = fault
        expected = is_lost(inputs, torch.zeros(queries, keys, dtype=torch.bool))
        for attention_function in (readable, fused_attention):
            with torch.set_grad_enabled(learns):
                assert torch.equal(~attention_function(*inputs.values()).isfinite(), expected)


@pytest.mark.parametrize("causal", [False, True])
def test_what_is_not_finite_shows_in_compiled_code_of_every_length_too(causal: bool) -> None:
    torch.compiler.reset()
    compiled: Any = torch.compile(fused_attention, backend="eager", dynamic=True)
    for length in (3, 10, 20):
        for faulty in range(3):
            inputs = torch.randn(3, 2, 2, length, 4).unbind()
            inputs[faulty][0, 0] = torch.nan
            expected = ~readable(*inputs, causal=causal).isfinite()
            assert torch.equal(~compiled(*inputs, causal=causal).isfinite(), expected)
            assert expected[0, 0].all()


@every_dtype
@both_kernels
@pytest.mark.parametrize("place", ["query", "key", "value"])
@pytest.mark.parametrize(
    "options", [{"causal": True}, {"mask": True}, {"mask": True, "causal": True}]
)
def test_what_is_not_finite_shows_wherever_it_is_seen_and_in_no_other_sequence_or_head(
    attention_function: Kernel, dtype: torch.dtype, place: str, options: dict[str, Any]
) -> None:
    for (queries, keys), whole in product(LENGTHS, (False, True)):
        hidden = torch.zeros(queries, keys, dtype=torch.bool)
        hidden[:, keys - keys // 3 :] = "mask" in options
        if options.get("causal"):
            hidden |= causal_mask(queries, keys)
        mask = torch.zeros(1, 1, 1, keys, dtype=torch.bool)
        mask[..., keys - keys // 3 :] = True
        inputs = {
            name: torch.randn(2, 2, length, 4).to(dtype)
            for name, length in (("query", queries), ("key", keys), ("value", keys))
        }
        faulty = inputs[place][0, 0]
        faulty[slice(None) if whole else torch.randint(len(faulty), ())] = torch.nan
        lost = ~attention_function(
            *inputs.values(),
            mask=mask if "mask" in options else None,
            causal=bool(options.get("causal")),
        ).isfinite()
        assert lost[is_lost(inputs, hidden)].all()
        lost[0, 0] = False
        assert not lost.any()


@both_kernels
def test_inputs_and_masks_are_left_as_they_were(attention_function: Kernel) -> None:
    inputs = (*torch.randn(3, 1, 1, 3, 4).unbind(), BLIND_ROW.clone())
    before = [tensor.clone() for tensor in inputs]
    attention_function(*inputs[:3], mask=inputs[3], causal=True, dropout=0.5)
    assert all(map(torch.equal, inputs, before))


@every_dtype
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("heads", "queries", "keys", "in_one_product"),
    [(4, 5, 9, True), (4, 1, 9, False), (2, 5, 9, False), (4, 33, 33, False)],
)
def test_many_small_tables_are_taken_in_one_product_with_the_same_result(
    monkeypatch: pytest.MonkeyPatch,
    dtype: torch.dtype,
    causal: bool,
    heads: int,
    queries: int,
    keys: int,
    in_one_product: bool,
) -> None:
    query, key, value = (torch.randn(16, heads, n, 4, dtype=dtype) for n in (queries, keys, keys))
    mask = torch.rand(16, 1, queries, keys) < 0.4
    mask[3] = True  # these queries see nothing
    expected, _ = attention_loop(query, key, value, mask=mask, causal=causal)
    seen = spy_on_torch(monkeypatch)
    in_one_product &= dtype in (torch.float32, torch.float64)  # halves would lose too much
    with torch.no_grad():
        mixed = fused_attention(query, key, value, mask=mask, causal=causal)
    assert len(seen) == (not in_one_product)
    with_gradients = fused_attention(query, key, value, mask=mask, causal=causal)
    assert len(seen) == 2 * (not in_one_product)
    for result in (mixed, with_gradients):
        np.testing.assert_allclose(to_numpy(result), expected, rtol=0, atol=TOLERANCE[dtype])


@pytest.mark.parametrize(
    ("length", "learns", "causal", "in_one_product"),
    [
        *((20, False, False, True), (21, False, False, False)),
        *((32, True, False, True), (33, True, False, False)),
        *((5, False, True, False), (5, True, True, False)),
    ],
)
def test_larger_tables_are_while_it_learns_and_none_whose_future_needs_no_mask(
    monkeypatch: pytest.MonkeyPatch, length: int, learns: bool, causal: bool, in_one_product: bool
) -> None:
    query, key, value = (torch.randn(16, 4, length, 4) for _ in range(3))
    expected, _ = attention_loop(query, key, value, causal=causal)
    seen = spy_on_torch(monkeypatch)
    with torch.set_grad_enabled(learns):
        mixed = fused_attention(query, key, value, causal=causal)
    assert len(seen) == (not in_one_product)
    np.testing.assert_allclose(to_numpy(mixed), expected, rtol=0, atol=TOLERANCE[torch.float32])


CHUNKED = list(
    product(
        [None, (1, 1, 1, 0), (2, 1, 1, 0), (2, 1, 7, 0), (1, 3, 7, 0), (7, 0)],  # 0: the keys
        [False, True],
        [3, 7, 10],
    )
)


@pytest.mark.parametrize(("shape", "causal", "keys"), CHUNKED)
@pytest.mark.parametrize("cells", [1, 20, 60])
def test_a_large_mask_is_made_for_some_queries_at_a_time_and_changes_no_result(
    shape: tuple[int, ...] | None,
    causal: bool,
    keys: int,
    cells: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("transformer_blocks.fast.attention.LARGE_MASK", cells)
    mask = None if shape is None else torch.rand(*shape[:-1], keys) < 0.5
    inputs = [torch.randn(2, 3, n, 4, dtype=torch.float64) for n in (7, keys, keys)]
    results = []
    for attention_function in (readable, fused_attention):
        for each in inputs:
            each.grad = None
            each.requires_grad_()
        output = attention_function(*inputs, mask=mask, causal=causal)
        output.square().sum().backward()
        with torch.no_grad():
            quiet = attention_function(*inputs, mask=mask, causal=causal)
        results.append([output, quiet, *(each.grad for each in inputs)])
    torch.testing.assert_close(results[1], results[0], rtol=1e-10, atol=1e-12)


class Largest(TorchDispatchMode):
    """Records the bytes of the largest tensor that an operation makes, views of one left out."""

    def __init__(self, whole: Tensor | None) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.bytes, self.known = 0, None if whole is None else whole.untyped_storage().data_ptr()

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        for each in result if isinstance(result, tuple | list) else [result]:
            if isinstance(each, Tensor) and each.untyped_storage().data_ptr() != self.known:
                self.bytes = max(self.bytes, each.numel() * each.element_size())
        return result


@pytest.mark.parametrize("learns", [False, True])
@pytest.mark.parametrize(
    ("mask", "causal"),
    [
        (padding_mask(torch.ones(2, 512).long().index_fill(1, torch.arange(400, 512), 0)), True),
        (sliding_window_mask(512, window=9), True),
        (sliding_window_mask(512, window=9), False),
        (None, True),
    ],
)
def test_no_operation_makes_a_whole_table(
    mask: Tensor | None, causal: bool, learns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transformer_blocks.fast.attention.LARGE_MASK", 2**13)
    keys = 512 if mask is not None else 500  # of one length, torch hides the future itself
    query, key = torch.randn(2, 1, 512, 4), torch.randn(2, 1, keys, 4)
    query.requires_grad_(learns)
    saved: dict[int, int] = {}

    def save(each: Tensor) -> Tensor:
        storage = each.untyped_storage()
        saved[storage.data_ptr()] = storage.nbytes()
        return each

    with (
        Largest(mask) as largest,
        torch.set_grad_enabled(learns),
        torch.autograd.graph.saved_tensors_hooks(save, lambda each: each),
    ):
        output = fused_attention(query, key, key, mask=mask, causal=causal)
        if learns:
            output.sum().backward()
    assert 0 < largest.bytes <= 2**13 * 4  # float32; the whole table has 2**18 cells
    assert sum(saved.values()) <= 2**13 * 8  # nor keeps one, part by part, for the backward pass


def test_large_masks_serve_the_transforms_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("transformer_blocks.fast.attention.LARGE_MASK", 20)
    x, mask = torch.randn(1, 1, 7, 4, dtype=torch.float64), torch.rand(7, 7) < 0.3
    gradients = [
        torch.func.grad(
            lambda x, attention_function=attention_function: attention_function(
                x, x, x, mask=mask, causal=True
            ).sum()
        )(x)
        for attention_function in (readable, fused_attention)
    ]
    torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("length", [16, 20, 40])
def test_an_infinite_query_shows_where_it_attends_to_few_keys_too(length: int) -> None:
    query, key, value = torch.randn(3, 2, 2, length, 8).unbind()
    query[0, 1, 0, 3] = -torch.inf * key[0, 1, 0, 3].sign()  # its only visible score is -inf
    visible = torch.ones(length, length, dtype=torch.bool).tril()
    for options in ({"causal": True}, {"mask": ~visible}):
        expected, _ = scaled_dot_product_attention(query, key, value, **options)
        found = fused_attention(query, key, value, **options)
        assert not expected[0, 1, 0].isfinite().any()
        assert torch.equal(found.isfinite(), expected.isfinite())


def test_a_large_mask_that_changes_before_the_backward_pass_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("transformer_blocks.fast.attention.LARGE_MASK", 64)
    x = torch.randn(1, 1, 20, 8, requires_grad=True)
    mask = torch.rand(20, 20) < 0.3
    loss = fused_attention(x, x, x, mask=mask).square().sum()
    mask |= True
    with pytest.raises(RuntimeError, match=r"^mask must not be changed in place"):
        loss.backward()
