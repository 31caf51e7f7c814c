"""A prepared copy computes what the model computes, for inference alone; the model is unchanged."""

import copy
import pickle
import re
from collections.abc import Callable
from functools import cache, partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
import torch
from tests.pairs import every_pair
from torch import Tensor, nn

from transformer_blocks import (
    ALiBi,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderDecoder,
    EncoderLayer,
    FeedForward,
    GatedFeedForward,
    LanguageModel,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    QueryKeyNorm,
    RotaryPositionalEncoding,
    build_decoder,
    build_encoder,
    build_language_model,
    record_attention,
)
from transformer_blocks.inference import PrepackedLinear, prepare
from transformer_blocks.inference import linear as linear_module
from transformer_blocks.inference.layers import FusedQKVAttention
from transformer_blocks.inference.prepare import relu

SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 16, "num_heads": 4, "d_ff": 24}
TOLERANCE: dict[str, Any] = {"rtol": 0, "atol": 1e-5}
TOLERANCES = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 0.05}


class Case(NamedTuple):
    """A model with the same dropout probability everywhere, and a call of it."""

    build: Callable[[float], nn.Module]
    call: Callable[..., Any]


def attention(dropout: float, **options: Any) -> MultiHeadAttention:
    return MultiHeadAttention(16, 4, dropout=dropout, **options)


def encoder_layer(dropout: float) -> EncoderLayer:
    return EncoderLayer(
        attention(dropout, d_k=6),
        GatedFeedForward(16, 24, dropout=dropout),
        residual=lambda: PreNorm(16, dropout=dropout),
    )


def decoder_layer(dropout: float) -> DecoderLayer:
    return DecoderLayer(
        MultiHeadAttention(16, 4, num_key_value_heads=2, dropout=dropout),
        attention(dropout),
        FeedForward(16, 24, dropout=dropout),
        residual=lambda: PostNorm(16, dropout=dropout),
    )


def encoder_decoder(dropout: float) -> EncoderDecoder:
    options = SIZES | {"dropout": dropout, "attention_dropout": dropout}
    return EncoderDecoder(build_encoder(**options), build_decoder(**options))


def self_attend(model: Any, x: Tensor, _: Tensor) -> Any:
    return model(x, x, x)


def encode(model: Any, x: Tensor, _: Tensor) -> Any:
    return model(x)


def decode(model: Any, x: Tensor, memory: Tensor) -> Any:
    return model(x, memory)


@torch.no_grad()
def in_steps(model: Any, x: Tensor, memory: Tensor) -> Tensor:
    """Decode position after position with a cache."""
    if isinstance(model, Decoder):
        cache, options = model.new_cache(memory), {}
    else:
        cache, options = model.new_cache(), {"causal": True}
    return torch.cat([model(token, cache=cache, **options) for token in x.split(1, dim=1)], dim=1)


MODELS = {
    "attention": Case(attention, self_attend),
    "cross-attention": Case(attention, lambda model, x, memory: model(x, memory, memory)),
    "attention with key and value sizes": Case(
        partial(attention, key_width=16, value_width=16, attention_function=ALiBi(4)), self_attend
    ),
    "encoder layer": Case(encoder_layer, encode),
    "decoder layer": Case(decoder_layer, decode),
    "encoder": Case(lambda dropout: Encoder([encoder_layer(dropout)]), encode),
    "encoder, steps": Case(lambda dropout: Encoder([encoder_layer(dropout)]), in_steps),
    "decoder": Case(lambda dropout: Decoder([decoder_layer(dropout)]), decode),
    "decoder, steps": Case(lambda dropout: Decoder([decoder_layer(dropout)]), in_steps),
    "encoder-decoder": Case(encoder_decoder, lambda model, x, memory: model(memory, x)),
}
every_model = pytest.mark.parametrize("case", MODELS.values(), ids=MODELS)


@every_pair(
    {
        "case": MODELS.values(),
        "dropout, training": [(0.1, False), (0.1, True), (0.9, True)],
        "dtype": TOLERANCES,
        "shape": [(2, 5), (1, 1), (1, 7), (5, 1), (0, 2)],
    }
)
@torch.no_grad()
def test_a_prepared_model_computes_the_same_outputs_without_dropout(
    case: Case, dropout: float, training: bool, dtype: torch.dtype, shape: tuple[int, int]
) -> None:
    model = case.build(dropout).to(dtype).train(training)
    for parameter in model.parameters():
        parameter.add_(0.1)  # so that no bias is zero
    prepared, x = prepare(model), torch.randn(*shape, 16, dtype=dtype)
    assert not [name for name, part in prepared.named_modules() if part.training]
    memory = torch.randn(shape[0], 7, 16, dtype=dtype)
    first, second = (case.call(prepared, x, memory) for _ in range(2))
    assert torch.equal(first, second)
    expected = case.call(model.eval(), x, memory)
    torch.testing.assert_close(first, expected, rtol=0, atol=TOLERANCES[dtype])


def test_every_layer_of_a_standard_decoder_gets_every_faster_part() -> None:
    assert type(prepare(decoder_layer(0.0)).self_attention) is FusedQKVAttention
    parts: list[Any] = [*prepare(build_decoder(**SIZES)).modules()]
    assert [type(part) for part in parts].count(FusedQKVAttention) == SIZES["num_layers"]
    networks = [part for part in parts if isinstance(part, FeedForward)]
    assert len(networks) == SIZES["num_layers"]
    for network in networks:
        assert network.activation is relu
        assert isinstance(network.up_projection, PrepackedLinear)


@torch.no_grad()
def test_a_prepared_decoder_computes_and_records_its_steps_as_the_model_does() -> None:
    decoder = build_decoder(**SIZES).eval()
    memory, x = torch.randn(3, 5, 16), torch.randn(3, 6, 16)
    prepared = prepare(decoder)
    with record_attention(prepared) as steps:
        found = in_steps(prepared, x, memory)
    with record_attention(decoder) as whole:
        torch.testing.assert_close(found, decoder(x, memory), **TOLERANCE)
    assert steps.keys() == whole.keys()
    for name, weights in steps.items():
        assert len(weights) == 6
        torch.testing.assert_close(weights[-1][:, :, 0], whole[name][0][:, :, -1], **TOLERANCE)


@pytest.fixture(params=["small", "large"])
def any_size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Treat every matrix product as small, which F.linear computes, then every one as large."""
    if request.param == "large":
        for limit in ("SMALL_PRODUCT", "SMALL_WEIGHT"):
            monkeypatch.setattr(f"transformer_blocks.inference.linear.{limit}", 0)


@pytest.mark.usefixtures("any_size")
@every_pair(
    {
        "bias": [True, False],
        "sizes": [(16, 48), (48, 16), (16, 16), (0, 3), (3, 0)],
        "dtype": TOLERANCES,
    }
)
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@torch.no_grad()
def test_a_prepacked_linear_layer_equals_the_layer_and_has_copies_of_weight_and_bias(
    bias: bool, sizes: tuple[int, int], dtype: torch.dtype
) -> None:
    linear = nn.Linear(*sizes, bias=bias, dtype=dtype)
    prepared = PrepackedLinear(linear)
    assert (prepared.in_features, prepared.out_features) == sizes
    for shape in ((1,), (0, 4), (1, 1), (3,), (2, 5)):
        x = torch.randn(*shape, sizes[0], dtype=dtype)
        output = prepared(x)
        torch.testing.assert_close(output, linear(x), rtol=0, atol=TOLERANCES[dtype])
    for parameter in linear.parameters():
        parameter.zero_()
    assert torch.equal(prepared(x), output)


@pytest.mark.parametrize("reordered", [None, lambda weight: weight, lambda weight, _: 2.0 * weight])
@torch.no_grad()
def test_without_torchs_operator_no_weight_is_prepacked(
    reordered: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    operators: dict[str, Any] = {"_linear_pointwise": torch.ops.mkldnn._linear_pointwise}
    operators = operators | {"_reorder_linear_weight": reordered} if reordered else {}
    monkeypatch.setattr(torch.ops, "mkldnn", SimpleNamespace(**operators))
    monkeypatch.setattr(
        linear_module, "_has_operators", cache(linear_module._has_operators.__wrapped__)
    )
    linear, x = nn.Linear(64, 256), torch.randn(100, 64)
    for _ in range(2):
        torch.testing.assert_close(PrepackedLinear(linear)(x), linear(x))
    (record,) = caplog.records
    assert re.fullmatch(r"weights are not prepacked with torch \S+: .+", record.getMessage())


@pytest.mark.usefixtures("any_size")
@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@torch.no_grad()
def test_prepacked_products_and_the_relu_preserve_values_that_are_not_finite(value: float) -> None:
    linear, x = nn.Linear(16, 24), torch.randn(3, 16)
    linear.weight[5, 7], linear.weight[6, 7] = value, -value  # one of two infinities becomes 0
    for rows in (x[:1], x, torch.full_like(x, value)):
        is_finite = linear(rows).relu().isfinite()
        assert not is_finite.all()
        assert torch.equal(relu(PrepackedLinear(linear)(rows)).isfinite(), is_finite)


@pytest.mark.parametrize(
    "attention",
    [
        MultiHeadAttention(16, 4, bias=False),
        MultiHeadAttention(16, 4, num_key_value_heads=2, bias=False),
        MultiHeadAttention(16, 4, num_key_value_heads=1, d_k=6),
    ],
    ids=["no bias", "grouped", "grouped, large heads"],
)
@torch.no_grad()
def test_the_projections_of_self_attention_are_fused(attention: MultiHeadAttention) -> None:
    parts = dict(attention.named_children())
    fused = FusedQKVAttention(attention, linear=PrepackedLinear)
    assert dict(attention.named_children()) == parts
    calls: list[str] = []
    for name, part in fused.named_children():
        part.register_forward_hook(lambda *_, name=name: calls.append(name))
    x, y, z = torch.randn(3, 2, 5, 16)
    for inputs in ((x, x, x), (x, y, y), (x, x, y), (x, y, z)):
        torch.testing.assert_close(fused(*inputs), attention(*inputs), **TOLERANCE)
    assert calls[:3] == ["fused_projection", "output_projection", "query_projection"]


def test_neither_preparing_a_model_changes_it_nor_a_later_change_of_it_the_copy() -> None:
    model = build_encoder(**SIZES, dropout=0.5).train()
    types = [type(module) for module in model.modules()]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    prepared, x = prepare(model), torch.randn(2, 5, 16)
    assert model.training
    assert [type(module) for module in model.modules()] == types
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    with torch.no_grad():
        before = prepared(x)
        for weight in model.parameters():
            weight.zero_()
        assert torch.equal(prepared(x), before)  # without dropout, and without shared weights


def double_by_a_hook(layer: DecoderLayer, path: str) -> None:
    layer.get_submodule(path).register_forward_hook(lambda module, inputs, output: 2 * output)


def double_by_a_subclass(layer: DecoderLayer, path: str) -> None:
    part: Any = layer.get_submodule(path)
    kind = type(part)

    def forward(self: Any, *inputs: Any, **options: Any) -> Any:
        return 2 * kind.forward(self, *inputs, **options)

    part.__class__ = type("Doubled", (kind,), {"forward": forward})


def remove_one_bias(layer: DecoderLayer) -> None:
    for name in ("key_projection", "value_projection"):
        nn.init.ones_(getattr(layer.self_attention, name).bias)
    layer.self_attention.query_projection.register_parameter("bias", None)


def with_transforms() -> MultiHeadAttention:
    return MultiHeadAttention(16, 4, transforms=[QueryKeyNorm(4), RotaryPositionalEncoding(4)])


PATHS = (
    *("", "self_attention", "self_attention.value_projection", "self_attention.output_projection"),
    *("cross_attention", "feed_forward", "feed_forward.up_projection", "feed_forward.dropout"),
    *("feed_forward_residual", "feed_forward_residual.norm", "self_attention_residual.dropout"),
)
CHANGES: list[Callable[[Any], None]] = [
    *(partial(double_by_a_hook, path=path) for path in PATHS),
    *(partial(double_by_a_subclass, path=path) for path in PATHS),
    remove_one_bias,
    lambda layer: setattr(layer, "self_attention", with_transforms()),
    lambda layer: setattr(layer.self_attention, "attention_function", ALiBi(4)),
    lambda layer: setattr(layer.feed_forward, "activation", torch.tanh),
    lambda layer: setattr(layer, "cross_attention_residual", layer.self_attention_residual),
]


@pytest.mark.parametrize("change", CHANGES)
@torch.no_grad()
def test_a_prepared_layer_computes_what_a_changed_layer_computes(
    change: Callable[[Any], None],
) -> None:
    decoder = build_decoder(**SIZES)
    change(decoder.get_submodule("layers.0"))
    decoder.eval()
    memory, x = torch.randn(3, 5, 16), torch.randn(3, 6, 16)
    expected = decoder(x, memory)
    prepared = prepare(decoder)
    torch.testing.assert_close(prepared(x, memory), expected, **TOLERANCE)
    torch.testing.assert_close(in_steps(prepared, x, memory), expected, **TOLERANCE)


@torch.no_grad()
def test_large_products_are_computed_in_the_precision_of_autocast() -> None:
    linear, x = nn.Linear(512, 512), torch.randn(8, 512)  # two million multiplications
    prepacked = PrepackedLinear(linear)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, expected = prepacked(x), linear(x)
    assert found.dtype == expected.dtype == torch.bfloat16
    torch.testing.assert_close(found, expected, rtol=0.02, atol=0.02)


def language_model() -> LanguageModel:
    """Build a model in which parts without a prepared form precede those with one."""
    return build_language_model(9, **SIZES)


REJECTED: dict[str, tuple[str, Callable[[Any], object]]] = {
    "train": ("trained", lambda model: model.train()),
    "bfloat16": ("moved or converted", lambda model: model.to(torch.bfloat16)),
    "meta": ("moved or converted", lambda model: model.to("meta")),
    "to_empty": ("moved or converted", lambda model: model.to_empty(device="cpu")),
    "load_state_dict": (
        "given other weights",
        lambda model: model.load_state_dict(language_model().state_dict()),
    ),
    "deepcopy": ("copied or pickled", copy.deepcopy),
    "pickle": ("copied or pickled", pickle.dumps),
}


@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize(("participle", "operation"), REJECTED.values(), ids=REJECTED)
def test_a_prepared_model_rejects_every_operation_that_would_change_it(
    participle: str, operation: Callable[[Any], object], is_nested: bool
) -> None:
    prepared, tokens = prepare(language_model()), torch.tensor([[1, 2, 3]])
    with torch.no_grad():
        before = prepared(tokens)
    rule = f"a prepared model cannot be {participle}; do that with the model it was prepared from, "
    with pytest.raises(RuntimeError) as error:
        operation(nn.Sequential(prepared) if is_nested else prepared)
    assert str(error.value) == rule + "then prepare that model again"
    assert not any(part.training for part in prepared.modules())
    assert {value.dtype for value in prepared.state_dict().values()} == {torch.float32}
    with torch.no_grad():
        assert torch.equal(prepared(tokens), before)


def test_operations_that_change_nothing_are_allowed() -> None:
    prepared = prepare(language_model())
    for result in (prepared.eval(), prepared.train(False), prepared.to("cpu"), prepared.float()):
        assert result is prepared
    assert isinstance(prepared, LanguageModel)
    assert type(prepared).__name__ == "LanguageModel"


@pytest.mark.parametrize("case", [case for case in MODELS.values() if case.call is not in_steps])
def test_a_prepared_model_gives_gradients_neither_of_its_weights_nor_of_its_inputs(
    case: Case,
) -> None:
    prepared, memory = prepare(case.build(0.1)), torch.randn(2, 7, 16)
    x = torch.randn(2, 5, 16)
    y = case.call(prepared, x, memory)
    assert not y.requires_grad
    with torch.no_grad():
        assert torch.equal(case.call(prepared, x.clone().requires_grad_(), memory), y)
    with pytest.raises(RuntimeError, match="a prepared model cannot be differentiated"):
        case.call(prepared, x.requires_grad_(), memory)


def test_a_model_that_was_prepared_in_inference_mode_can_be_used_outside_of_it() -> None:
    encoder = build_encoder(**SIZES)
    x = torch.randn(2, 5, 16)
    with torch.inference_mode():
        prepared = prepare(encoder)
    assert not any(value.is_inference() for value in prepared.state_dict().values())
    torch.testing.assert_close(prepared(x), encoder.eval()(x))
    with pytest.raises(RuntimeError, match="a prepared model cannot be differentiated"):
        torch.func.grad(lambda x: prepared(x).sum())(x)
