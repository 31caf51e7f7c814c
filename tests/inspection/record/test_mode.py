"""Attention is seen in models of other libraries, which compute the same as before."""

import copy
import io
import itertools
import warnings
from collections import OrderedDict
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from threading import Thread
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from tests.inspection.foreign import FAMILIES, Family, capture_torch_weights, own_weights
from torch import Tensor, nn
from torch.nn.attention.flex_attention import flex_attention
from x_transformers import Decoder, TransformerWrapper

from transformer_blocks import (
    MultiHeadAttention,
    beam_search,
    build_decoder,
    build_language_model,
    fused_attention,
    greedy_search,
    record_attention,
    scaled_dot_product_attention,
)
from transformer_blocks.inspection import ablate, patched, record_projections

pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
TOLERANCE: dict[str, Any] = {"atol": 1e-5, "rtol": 0.0}
each_family = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


def mode_count() -> int:
    """Count torch's active function modes."""
    return int(torch._C._len_torch_function_stack())


def state_of(model: nn.Module) -> list[Any]:
    """List everything that a module holds: attributes, hooks, weights."""
    return [
        (name, key, dict(value) if isinstance(value, dict) else value)
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if not isinstance(value, Tensor)
    ]


def same_bits(first: list[Tensor], second: list[Tensor]) -> bool:
    """Compare tensors bit by bit, so that NaN is equal to itself."""
    return len(first) == len(second) and all(
        a.shape == b.shape and torch.equal(a.view(torch.int32), b.view(torch.int32))
        for a, b in zip(first, second, strict=True)
    )


def run_with_mode(mode: str, model: nn.Module, run: Callable[[], Any]) -> Any:
    model.train(mode == "training")
    with torch.set_grad_enabled(mode != "no gradients"):
        return run()


def real_rows(weights: Tensor, inputs: dict[str, Tensor]) -> Tensor:
    """Select the queries that are not padding: a padded query may attend to anything."""
    mask = inputs.get("attention_mask")
    if mask is None or weights.shape[2] != mask.shape[1]:
        return weights
    return weights.transpose(1, 2)[mask.bool()]


# --- the weights are the library's own


@each_family
@pytest.mark.parametrize(("padded", "mode"), [(False, "training"), (True, "no gradients")])
def test_recorded_weights_are_those_that_the_model_returns_itself(
    family: Family, padded: bool, mode: str
) -> None:
    model, inputs = family.build(), family.inputs(padded=padded)

    def run() -> tuple[dict[str, list[Tensor]], list[Tensor]]:
        with record_attention(model) as maps:
            model(**inputs)
        return maps, own_weights(family.eager(model)(**inputs, output_attentions=True))

    maps, expected = run_with_mode(mode, model, run)
    assert [len(calls) for calls in maps.values()] == [1] * len(expected)
    for (weights,), own in zip(maps.values(), expected, strict=True):
        assert not weights.requires_grad
        torch.testing.assert_close(real_rows(weights, inputs), real_rows(own, inputs), **TOLERANCE)


@pytest.mark.parametrize(
    "family",
    [family for family in FAMILIES.values() if family.kind in ("decoder", "both")],
    ids=[name for name, family in FAMILIES.items() if family.kind in ("decoder", "both")],
)
@torch.no_grad()
def test_cached_steps_are_recorded_like_those_of_the_model_itself(family: Family) -> None:
    model = family.build().eval()
    inputs = family.inputs(padded=True)
    inputs.pop("decoder_input_ids", None)
    options: dict[str, Any] = {"max_new_tokens": 4, "min_new_tokens": 4, "do_sample": False}
    expected = model.generate(**inputs, **options)
    with record_attention(model) as maps:
        assert torch.equal(model.generate(**inputs, **options), expected)
    copied = family.eager(model)
    result = copied.generate(
        **inputs, **options, output_attentions=True, return_dict_in_generate=True
    )
    steps = result.attentions if family.kind == "decoder" else result.decoder_attentions
    recorded = [
        calls
        for name, calls in maps.items()
        if family.kind == "decoder" or ("decoder" in name and calls[0].shape[-1] == 1)
    ]
    assert len(recorded) == 2
    for layer, calls in enumerate(recorded):
        assert len(calls) == len(steps) == 4
        for weights, step in zip(calls, steps, strict=True):
            assert weights.shape == step[layer].shape
            torch.testing.assert_close(
                real_rows(weights, inputs), real_rows(step[layer], inputs), **TOLERANCE
            )


X = torch.randn(2, 5, 16, generator=torch.Generator().manual_seed(0))
PADDING = torch.tensor([[False] * 5, [False] * 3 + [True] * 2])
FUTURE = torch.ones(5, 5, dtype=torch.bool).triu(1)
BIAS = torch.randn(5, 5, generator=torch.Generator().manual_seed(0))
LAYER: dict[str, Any] = {"d_model": 16, "nhead": 4, "dim_feedforward": 32, "dropout": 0.0}


def torch_encoder(**options: Any) -> nn.Module:
    layer = nn.TransformerEncoderLayer(**LAYER, **{"batch_first": True} | options)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=not options)


TORCH: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], Any]]] = {
    "encoder": (torch_encoder, lambda m: m(X)),
    "encoder, padding": (torch_encoder, lambda m: m(X, src_key_padding_mask=PADDING)),
    "encoder, causal": (torch_encoder, lambda m: m(X, mask=FUTURE, is_causal=True)),
    "encoder, added mask": (torch_encoder, lambda m: m(X, mask=BIAS)),
    "encoder, both masks": (
        torch_encoder,
        lambda m: m(X, mask=FUTURE, src_key_padding_mask=PADDING),
    ),
    "encoder, sequence first": (
        lambda: torch_encoder(batch_first=False),
        lambda m: m(X.transpose(0, 1), src_key_padding_mask=PADDING),
    ),
    "encoder, pre-norm": (lambda: torch_encoder(norm_first=True), lambda m: m(X)),
    "layer": (
        lambda: nn.TransformerEncoderLayer(**LAYER, batch_first=True),
        lambda m: m(X, src_key_padding_mask=PADDING),
    ),
    "decoder": (
        lambda: nn.TransformerDecoder(nn.TransformerDecoderLayer(**LAYER, batch_first=True), 2),
        lambda m: m(X[:, :4], X, tgt_mask=FUTURE[:4, :4], tgt_is_causal=True),
    ),
    "transformer": (
        lambda: nn.Transformer(16, 4, 2, 2, dim_feedforward=32, dropout=0.0, batch_first=True),
        lambda m: m(X, X[:, :4], src_key_padding_mask=PADDING, memory_key_padding_mask=PADDING),
    ),
    "attention": (
        lambda: nn.MultiheadAttention(16, 4, batch_first=True),
        lambda m: m(X, X, X, need_weights=False)[0],
    ),
    "attention to others": (
        lambda: nn.MultiheadAttention(16, 4, kdim=16, vdim=16, add_zero_attn=True),
        lambda m: m(X[:, :3].transpose(0, 1), X.transpose(0, 1), X.transpose(0, 1))[0],
    ),
}
each_of_torch = pytest.mark.parametrize(("build", "run"), TORCH.values(), ids=TORCH)
MODES = ["training", "evaluation", "no gradients", "no parameter has gradients"]


@each_of_torch
@pytest.mark.parametrize("mode", ["training", "no gradients"])  # without and with the fast path
def test_recorded_weights_of_torch_are_those_that_its_attention_returns(
    build: Callable[[], nn.Module], run: Callable[[nn.Module], Any], mode: str
) -> None:
    torch.manual_seed(0)
    model = build().requires_grad_(mode != "no parameter has gradients")

    def record() -> dict[str, list[Tensor]]:
        with record_attention(model) as maps:
            run(model)
        return maps

    maps = run_with_mode(mode, model, record)
    expected = run_with_mode(mode, model, lambda: capture_torch_weights(model, lambda: run(model)))
    assert maps.keys() == expected.keys()
    for name, calls in maps.items():
        torch.testing.assert_close(calls, [expected[name].detach()], **TOLERANCE)


def test_weights_of_torch_are_recorded_before_dropout_also_of_a_single_sequence() -> None:
    layer = nn.MultiheadAttention(16, 4, dropout=0.5, batch_first=True).eval()
    expected = layer(X, X, X, average_attn_weights=False)[1]
    for x, own in ((X, expected), (X[0], expected[:1])):
        with record_attention(layer.train()) as maps:
            layer(x, x, x)
        torch.testing.assert_close(maps[""], [own.detach()])


def test_a_fully_masked_row_of_torch_is_recorded_as_zeros() -> None:
    layer = nn.MultiheadAttention(16, 4, batch_first=True).eval()
    mask = torch.tensor([[True] * 5, [False] * 5])
    with record_attention(layer) as maps:
        layer(X, X, X, key_padding_mask=mask, need_weights=False)
    assert not maps[""][0][0].any()
    assert maps[""][0][1].sum(dim=-1).allclose(torch.ones(4, 5), atol=1e-6)


XT: dict[str, tuple[Callable[[bool], nn.Module], Callable[[nn.Module], Any]]] = {
    "decoder": (
        lambda flash: TransformerWrapper(
            num_tokens=50,
            max_seq_len=32,
            attn_layers=Decoder(
                dim=16, depth=2, heads=4, attn_flash=flash, rotary_pos_emb=True, attn_kv_heads=2
            ),
        ),
        lambda m: m(torch.arange(10).view(2, 5), mask=~PADDING),
    ),
}


@pytest.mark.parametrize(("build", "run"), XT.values(), ids=XT)
@pytest.mark.parametrize("mode", MODES[:3])
def test_the_fused_kernel_of_x_transformers_is_recorded_like_its_explicit_softmax(
    build: Callable[[bool], nn.Module], run: Callable[[nn.Module], Any], mode: str
) -> None:
    torch.manual_seed(0)
    explicit, fused = build(False), build(True)
    fused.load_state_dict(explicit.state_dict())
    recorded = []
    for model in (explicit, fused):
        with record_attention(model) as maps:
            run_with_mode(mode, model, lambda: run(model))  # noqa: B023
        recorded.append(maps)
    assert recorded[0].keys() == recorded[1].keys()
    assert len(recorded[0]) >= 2
    for name, calls in recorded[0].items():
        torch.testing.assert_close(recorded[1][name], calls, **TOLERANCE)


# --- nothing else changes


def outcome(model: nn.Module, run: Callable[[], Any], *, record: bool) -> list[Any]:
    """Compute an output, its gradients and the random numbers that follow."""
    torch.manual_seed(2)
    with ExitStack() as stack:
        for each in (record_attention, record_projections) if record else ():
            stack.enter_context(each(model))
        output = run()
    output = output if isinstance(output, Tensor) else output[0]
    gradients = []
    if output.requires_grad:
        output.square().sum().backward()
        gradients = [p.grad for p in model.parameters() if p.grad is not None]
        model.zero_grad()
    return [output.detach(), torch.rand(3), *gradients]


def run_family(family: Family, model: nn.Module) -> Any:
    return model(**family.inputs(padded=True), return_dict=False)


def ours(attention_function: Any) -> nn.Module:
    make = partial(MultiHeadAttention, 16, 4, attention_function=attention_function)
    return build_decoder(num_layers=2, d_model=16, d_ff=32, attention=partial(make, dropout=0.3))


OURS = {
    function.__name__: (
        partial(ours, function),
        lambda m: m(X, X, memory_mask=PADDING[:, None, None]),
    )
    for function in (fused_attention, scaled_dot_product_attention)
}
MODELS = (
    TORCH
    | OURS
    | {
        name: (partial(family.build, dropout=True), partial(run_family, family))
        for name, family in FAMILIES.items()
    }
)


@pytest.mark.parametrize(
    ("name", "mode"),
    [(name, mode) for name in MODELS for mode in (MODES if name in TORCH else MODES[::2])],
)
def test_recording_changes_no_bit_also_where_torch_takes_its_fast_path(
    name: str, mode: str
) -> None:
    build, run = MODELS[name]
    model = build().requires_grad_(mode != "no parameter has gradients")
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.1
    model.train(mode == "training")
    state = state_of(model)

    def compare() -> bool:
        before, during = (
            outcome(model, lambda: run(model), record=record) for record in (False, True)
        )
        return same_bits(before, during)

    assert run_with_mode(mode, model, compare)
    assert state_of(model) == state
    assert mode_count() == 0


class Failing(nn.Module):
    """Raises an error between two attention layers."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(**LAYER, batch_first=True)
        self.error: type[BaseException] = RuntimeError

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        raise self.error("in the middle")


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize(
    "context", [record_attention, lambda m: ablate(m, heads={"layer.self_attn": [1]})]
)
def test_after_an_error_nothing_is_left_behind(error: type[BaseException], context: Any) -> None:
    model = Failing().eval()
    model.error = error
    state = state_of(model)
    with pytest.raises(error, match="in the middle"), torch.no_grad(), context(model):
        model(X)
    assert state_of(model) == state
    assert mode_count() == 0
    with record_attention(model.layer) as maps:  # and recording still works
        model.layer(X)
    assert len(maps["self_attn"]) == 1


def test_recordings_of_other_models_may_end_in_any_order() -> None:
    first, second = torch_encoder().eval(), FAMILIES["BERT"].build().eval()
    inputs = FAMILIES["BERT"].inputs(padded=False)
    for order in itertools.permutations(range(3)):
        contexts = [record_attention(first), record_attention(second), record_attention(first)]
        maps = [context.__enter__() for context in contexts]
        first(X), second(**inputs)
        for number, index in enumerate(order):
            assert [len(each) for each in maps] == [2, 2, 2]
            contexts[index].__exit__(None, None, None)
            first(X), second(**inputs)
            assert {len(calls) for calls in maps[index].values()} == {number + 1}
        assert mode_count() == 0
        assert "forward" not in vars(first)


def test_a_recording_that_another_thread_ends_leaves_the_model_as_before() -> None:
    model, state = torch_encoder().eval(), None
    state = state_of(model)
    context = record_attention(model)
    thread = Thread(target=context.__enter__)
    thread.start()
    thread.join()
    context.__exit__(None, None, None)
    assert state_of(model) == state
    assert mode_count() == 0


@torch.no_grad()
def test_a_model_can_be_saved_while_it_is_recorded() -> None:
    model, file = torch_encoder().eval(), io.BytesIO()
    state, expected = state_of(model), model(X)
    with record_attention(model):
        assert torch.equal(model(X), expected)
        assert state_of(model) == state
        torch.save(model, file)
    file.seek(0)
    assert torch.equal(torch.load(file, weights_only=False)(X), expected)


@torch.no_grad()
def test_hooks_of_others_are_called_as_often_as_without_recording() -> None:
    model, calls = torch_encoder().eval(), []
    attention, layer = map(model.get_submodule, ("layers.0.self_attn", "layers.1"))
    attention.register_forward_hook(lambda *_: calls.append(1))
    layer.register_forward_pre_hook(lambda *_: calls.append(2))
    expected = model(X)
    with record_attention(model) as maps:
        assert torch.equal(model(X), expected)
    assert calls == [1, 2, 1, 2]
    assert [len(weights) for weights in maps.values()] == [1, 1]


@torch.no_grad()
def test_the_output_of_another_model_is_the_same_too() -> None:
    model, other = torch_encoder().eval(), torch_encoder().eval()
    expected = other(X, src_key_padding_mask=PADDING)  # zeros where there is padding
    with record_attention(model) as maps:
        assert torch.equal(other(X, src_key_padding_mask=PADDING), expected)
    with record_attention(other.get_submodule("layers.1")) as part:
        assert torch.equal(other(X, src_key_padding_mask=PADDING), expected)
    assert (list(maps), list(part)) == ([], ["self_attn"])


# --- other ways to compute attention


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_weights_in_half_precision_are_computed_in_float32(dtype: torch.dtype) -> None:
    x = torch.randn(1, 2, 6, 64, generator=torch.Generator().manual_seed(0)).mul(3).to(dtype)
    expected = (x.double() @ x.double().mT / 8).softmax(dim=-1).to(dtype)
    model = Fused()
    with record_attention(model) as maps, torch.autocast("cpu", dtype=dtype):
        model(x)
    assert maps[""][0].dtype == dtype
    assert (maps[""][0] - expected).abs().max() <= torch.finfo(dtype).eps


class Explicit(nn.Module):
    """Attention as it stands in many repositories, with the product written in several ways."""

    def __init__(self, product: str) -> None:
        super().__init__()
        self.product = product
        self.dropout = nn.Dropout(0.5, inplace=product == "in place")

    def forward(self, x: Tensor) -> Tensor:
        q = x.unflatten(-1, (4, 4)).transpose(1, 2)  # (B, H, L, d_k)
        scores = q @ q.mT / 2
        if self.product == "keywords":
            weights = torch.permute(input=torch.softmax(input=scores, dim=-1), dims=(0, 1, 2, 3))
            return torch.matmul(input=weights, other=q)
        if self.product == "one sequence, one head":
            weights = (x[0] @ x[0].T).softmax(-1)
            return torch.mm(weights / weights.sum(-1, keepdim=True), x[0])
        if self.product == "two factors":  # for example with relative positions
            weights = scores.softmax(-1)
            return weights @ q + torch.einsum("bhij,ijd->bhid", weights, q[0, 0, :, None] + q[0, 1])
        if self.product == "no heads":
            return self.dropout(torch.softmax(x @ x.mT, dim=2)) @ x
        if self.product == "view after dropout":
            weights = self.dropout(scores.softmax(-1)).view(8, 5, 5).contiguous()
            return torch.bmm(weights, q.flatten(0, 1))
        weights = F.softmax(scores, dim=-1, dtype=torch.float64).to(x.dtype)
        weights = self.dropout(weights.masked_fill(scores.isnan(), 0.0))
        if self.product == "einsum":
            return torch.einsum("b h i j, b h j d -> b h i d", weights, q)
        if self.product == "einsum, heads after positions":
            return torch.einsum("bhij,jbhd->ibhd", weights, q.permute(2, 0, 1, 3))
        if self.product == "einsum, values first":
            return torch.einsum("bhjd,bhij->bhid", q, weights)
        return weights.matmul(q) if self.product == "method" else weights @ q

    def expected(self, x: Tensor) -> Tensor:
        """Compute the weights, of shape (B, H, L, S), or (B * H, 1, L, S) of a batch of heads."""
        if self.product == "no heads":
            return (x @ x.mT).softmax(-1)[:, None]
        if self.product == "one sequence, one head":
            return (x[:1] @ x[:1].mT).softmax(-1)[:, None]
        q = x.unflatten(-1, (4, 4)).transpose(1, 2)
        weights = (q @ q.mT / 2).softmax(-1)
        return weights.view(8, 1, 5, 5) if self.product == "view after dropout" else weights


PRODUCTS = [
    "@",
    "method",
    "einsum",
    "einsum, heads after positions",
    "einsum, values first",
    "two factors",
    "keywords",
    "one sequence, one head",
    "no heads",
    "in place",
    "view after dropout",
]


@pytest.mark.parametrize("product", PRODUCTS)
def test_an_explicit_softmax_is_recorded_before_dropout(product: str) -> None:
    model = Explicit(product).train()
    torch.manual_seed(0)
    expected = model(X)
    torch.manual_seed(0)
    with record_attention(model) as maps:
        for _ in range(2):
            output = model(X)
            torch.manual_seed(0)
    assert torch.equal(output, expected)
    assert len(maps[""]) == 2
    for weights in maps[""]:
        torch.testing.assert_close(weights, model.expected(X), **TOLERANCE)


def test_heads_that_follow_the_positions_are_patched() -> None:
    model = Explicit("einsum, heads after positions").eval()
    expected = model(X)  # (L, B, H, d_k)
    expected[:, :, [1, 2]] = 0.5
    with patched(model, {"": {1: 0.5, 2: 0.5}}):
        assert torch.equal(model(X), expected)


def attend_in_blocks(x: Tensor) -> Tensor:
    x = x.view(2, 1, 1, 5, 16)  # (B, H, blocks, L, d_k)
    return F.scaled_dot_product_attention(x, x, x)


def sum_over_heads(x: Tensor) -> Tensor:
    x = x.view(2, 5, 4, 4)
    weights = torch.einsum("bihd,bjhd->bhij", x, x).softmax(-1)
    return torch.einsum("bhij,bjde->bide", weights, x)


@pytest.mark.parametrize(
    ("attend", "shape"),
    [
        (attend_in_blocks, (2, 1, 1, 5, 5)),
        (sum_over_heads, (2, 4, 5, 5)),
        (Explicit("no heads"), (2, 1, 5, 5)),
    ],
)
def test_attention_whose_output_has_no_place_for_heads_is_recorded_and_not_ablated(
    attend: Callable[[Tensor], Tensor], shape: tuple[int, ...]
) -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return attend(x)

    with record_attention(model := Model()) as maps:
        model(X)
    assert [weights.shape for weights in maps[""]] == [shape]
    with (
        pytest.raises(ValueError, match=r"^heads of '' cannot be told apart"),
        ablate(model, heads={"": [0]}),
    ):
        model(X)


# --- what cannot be seen is named


class LinearAttention(nn.Module):
    """Attention without a softmax, whose weights are never computed."""

    def __init__(self) -> None:
        super().__init__()
        self.projection = nn.Linear(16, 16)

    def forward(self, x: Tensor) -> Tensor:
        q = F.elu(self.projection(x)) + 1
        return q @ (q.mT @ x)


class Gate(nn.Module):
    """Softmaxes and products that are no attention."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.ones(16, 3))

    def forward(self, x: Tensor) -> Tensor:
        gates = F.softmax(x @ x.mT, dim=-1)[:, :, :1]
        loss = F.softmax(x, dim=1) @ x.mT @ x  # not over the last dimension
        over_queries = torch.einsum("bls,blk->bsk", x.softmax(-1), x)
        mean = x.softmax(-1) @ self.table
        names: dict[str, Any] = {"x": x[0, 0], "other": x[0].T}  # which torch accepts too
        vectors = torch.einsum("i,i->", torch.matmul(**names), x[0, :, 0])
        numbers = torch.einsum(",->", x[0, 0, 0], x[0, 0, 1])
        results = gates * x, loss, over_queries, x.mT @ gates, mean, vectors, numbers
        return torch.stack([result.sum() for result in results])


NOTHING = "^no attention weights were recorded in "
UNSEEN: dict[str, tuple[nn.Module, str, list[str]]] = {
    "without a softmax": (
        nn.Sequential(LinearAttention(), nn.TransformerEncoderLayer(**LAYER)),
        r"could be recorded in '0' \(LinearAttention\): what can",
        ["1.self_attn"],
    ),
    "not selected": (
        nn.Sequential(OrderedDict(skipped=torch_encoder())),
        NOTHING + r"Sequential: only selects none of \['skipped\.layers\.0\.self_attn', ",
        [],
    ),
    "softmax elsewhere": (Gate(), NOTHING + "Gate: what can", []),
    "linear": (nn.Linear(16, 16), NOTHING + "Linear: what can", []),
    "recurrent": (nn.LSTM(16, 16), NOTHING + "LSTM: what can", []),
}


@pytest.mark.parametrize(("model", "message", "names"), UNSEEN.values(), ids=UNSEEN)
def test_attention_that_cannot_be_seen_is_named(
    model: nn.Module, message: str, names: list[str]
) -> None:
    with (
        pytest.warns(UserWarning, match=message),
        record_attention(model, only=lambda name: not name.startswith("skipped")) as maps,
    ):
        model(X)
    assert list(maps) == names


class Fused(nn.Module):
    """Attention with the fused kernel."""

    def forward(self, x: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(x, x, x)


@torch.no_grad()
def test_weights_that_cannot_be_computed_are_named_and_the_model_is_not_disturbed() -> None:
    rows = [X[0].unflatten(-1, (4, 4)), X[1, :3].unflatten(-1, (4, 4))]
    x = torch.nested.nested_tensor(rows, layout=torch.jagged).transpose(1, 2)
    model = Fused()
    expected = model(x)
    with (
        pytest.warns(UserWarning, match=r"^no attention weights could be computed in ''.*: "),
        record_attention(model) as maps,
    ):
        output = model(x)
    assert maps == {}
    assert all(map(torch.equal, output.unbind(), expected.unbind()))
    layer = nn.TransformerEncoderLayer(**LAYER, batch_first=True).eval()
    nested = torch.nested.nested_tensor([X[0], X[1, :3]], layout=torch.strided)
    expected = layer(nested)
    with warnings.catch_warnings(), record_attention(layer):  # which only the fast path computes
        warnings.simplefilter("ignore")
        output = layer(nested)
    assert all(map(torch.equal, output.unbind(), expected.unbind()))


def test_blocks_inside_other_modules_are_recorded_once_and_not_missed() -> None:
    class AttentionBlock(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = MultiHeadAttention(16, 4)
            self.theirs = nn.MultiheadAttention(16, 4, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.theirs(*[self.inner(x, x, x)] * 3, need_weights=False)[0]

    model = AttentionBlock()
    with record_attention(model) as maps:
        model(X)
    assert {name: len(calls) for name, calls in maps.items()} == {"inner": 1, "theirs": 1}


# --- ablation of heads, shapes


@each_family
@torch.no_grad()
def test_an_ablated_head_has_no_part_in_the_output_projection(family: Family) -> None:
    model, inputs = family.build().eval(), family.inputs(padded=True)
    with record_attention(model) as maps:
        expected = model(**inputs)[0]
    for name in maps:
        changed = copy.deepcopy(model)
        old, new = family.projection
        projection = changed.get_submodule(name.removesuffix(old) + new)
        weight = projection.weight if family.projection[1] == ".c_proj" else projection.weight.T
        weight.unflatten(0, (4, 8))[[1, 3]] = 0.0
        with ablate(model, heads={name: [1, 3]}):
            output = model(**inputs)[0]
        torch.testing.assert_close(output, changed(**inputs)[0], atol=1e-6, rtol=1e-5)
        assert not torch.allclose(output, expected, atol=1e-4)
    assert torch.equal(model(**inputs)[0], expected)


@torch.no_grad()
def test_heads_are_ablated_in_cached_steps_too() -> None:
    family = FAMILIES["Llama"]  # whose fused kernel gets heads of a step in the length
    model, inputs = family.build().eval(), family.inputs(padded=True)
    names = [f"model.layers.{layer}.self_attn" for layer in range(2)]
    changed = copy.deepcopy(model)
    for name in names:
        changed.get_submodule(f"{name}.o_proj").weight[:, 8:16] = 0.0
    options: dict[str, Any] = {"max_new_tokens": 6, "do_sample": False, "output_logits": True}
    options["return_dict_in_generate"] = True
    expected = changed.generate(**inputs, **options)
    with ablate(model, heads={name: [1] for name in names}):
        result = model.generate(**inputs, **options)
    torch.testing.assert_close(result.logits, expected.logits)
    assert torch.equal(result.sequences, expected.sequences)


@each_of_torch
@pytest.mark.parametrize("mode", ["training", "no gradients"])
def test_a_head_of_torch_is_ablated_in_every_mode(
    build: Callable[[], nn.Module], run: Callable[[nn.Module], Any], mode: str
) -> None:
    torch.manual_seed(0)
    model = build()
    names = [n for n, m in model.named_modules() if isinstance(m, nn.MultiheadAttention)]
    changed = copy.deepcopy(model)
    for name in names:
        with torch.no_grad():
            changed.get_submodule(name).get_parameter("out_proj.weight")[:, 4:8] = 0.0
    with ablate(model, heads={name: [1] for name in names}):
        output = run_with_mode(mode, model, lambda: run(model))
    torch.backends.mha.set_fastpath_enabled(False)  # which computes NaN of some masks
    expected = run_with_mode(mode, changed, lambda: run(changed))
    torch.backends.mha.set_fastpath_enabled(True)
    torch.testing.assert_close(output, expected, atol=1e-5, rtol=1e-5)


def test_a_head_that_does_not_exist_or_is_not_seen_is_refused() -> None:
    model, inputs = FAMILIES["Llama"].build().eval(), FAMILIES["Llama"].inputs(padded=False)
    with (
        pytest.raises(IndexError, match="4 is out of bounds"),
        ablate(model, heads={"model.layers.0.self_attn": [4]}),
    ):
        model(**inputs)
    unseen = r"no attention was seen in it, but in \['model\.lay"
    with pytest.raises(ValueError, match=unseen), ablate(model, heads={"model.layers.0.mlp": [0]}):
        model(**inputs)
    assert mode_count() == 0


class Mixing(nn.Module):
    """An attention with FlexAttention, in a class without the name, beside one that is recorded."""

    def __init__(self) -> None:
        super().__init__()
        self.known = MultiHeadAttention(16, 4)

    def forward(self, x: Tensor) -> Tensor:
        heads = self.known(x, x, x)[:, None]
        output: Any = flex_attention(heads, heads, heads)
        return torch.as_tensor(output)[:, 0]


@torch.no_grad()
def test_flex_attention_beside_a_recorded_layer_is_named() -> None:
    model, x = Mixing().eval(), torch.randn(2, 5, 16)
    with warnings.catch_warnings():  # torch's, about speed
        warnings.simplefilter("ignore")
        expected = model(x)
    missing = r"^no attention weights could be recorded in '' \(Mixing\)"
    with pytest.warns(UserWarning, match=missing), record_attention(model) as maps:
        output = model(x)
    assert torch.equal(output, expected)
    assert [*maps] == ["known"]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::torch.jit.TracerWarning")
def test_traced_models_are_named_as_not_recorded() -> None:
    layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval()
    x = torch.randn(2, 5, 16)
    traced: Any = torch.jit.trace(layer, x, check_trace=False)
    for model, name in ((traced, "self_attn"), (nn.Sequential(traced), "0.self_attn")):
        message = f"^no attention weights could be recorded in '{name}' "
        with pytest.warns(UserWarning, match=message), record_attention(model) as maps:
            model(x)
        assert not maps


@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_tensors_of_transforms_are_unwrapped_or_named() -> None:
    attention, x = MultiHeadAttention(16, 4).eval(), torch.randn(2, 5, 16)
    with record_attention(attention) as maps:
        torch.func.grad(lambda y: attention(y, y, y).sum())(x)
    assert maps[""][0].sum(-1).allclose(torch.ones(2, 4, 5))
    with (
        pytest.warns(UserWarning, match=r"inside torch\.vmap$"),
        record_attention(attention) as maps,
    ):
        torch.vmap(lambda row: attention(row[None], row[None], row[None]))(x)
    assert not maps


def test_rows_of_a_beam_search_are_said_to_be_hypotheses() -> None:
    model = build_language_model(20, num_layers=1, d_model=16, num_heads=4, d_ff=32).eval()
    options: dict[str, Any] = {"max_length": 4, "end_id": 3}
    with pytest.warns(UserWarning, match=r"^the rows .* are hypotheses"), record_attention(model):
        model.generate([[1, 2]], beam_search, beam_size=2, **options)
    with record_attention(model):
        model.generate([[1, 2]], greedy_search, **options)


@pytest.mark.parametrize("change", [lambda w: w.mean(1), lambda w: w[..., :-1], lambda w: w.mT])
def test_recorded_weights_of_a_wrong_shape_are_refused(change: Callable[[Tensor], Tensor]) -> None:
    def attend(*inputs: Tensor, **options: Any) -> tuple[Tensor, Tensor]:
        output, weights = scaled_dot_product_attention(*inputs, **options)
        return output, change(weights)

    attention = MultiHeadAttention(16, 4, attention_function=attend)
    query, memory = torch.randn(2, 5, 16), torch.randn(2, 7, 16)
    message = r"weights must be of shape \(B, H, L, S\) = \(2, 4, 5, 7\), got "
    with pytest.warns(UserWarning, match=message), record_attention(attention) as maps:
        attention(query, memory, memory)
    assert not maps
