"""A prepared model is for inference alone: it applies no dropout and rejects every change."""

import copy
import pickle
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, cast

import pytest
import torch
from torch import Tensor, nn
from torch.func import vmap

from transformer_blocks import (
    ALiBi,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderDecoder,
    EncoderLayer,
    FeedForward,
    GatedFeedForward,
    GroupedQueryAttention,
    KeyValueCache,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    SelfAttentionCache,
    SinusoidalPositionalEncoding,
    TokenEmbedding,
    build_decoder,
    build_encoder,
)
from transformer_blocks.inference import PrepackedLinear, prepare
from transformer_blocks.interop import from_torch

SIZES: dict[str, Any] = {"num_layers": 1, "d_model": 16, "num_heads": 4, "d_ff": 24}
TOLERANCE: dict[str, Any] = {"rtol": 0, "atol": 1e-5}


class Case(NamedTuple):
    """A model with the same dropout probability everywhere, and a call of it."""

    build: Callable[[float], nn.Module]
    call: Callable[..., Any]


def attention(dropout: float, **options: Any) -> MultiHeadAttention:
    return MultiHeadAttention(16, 4, dropout=dropout, **options)


def grouped(dropout: float) -> MultiHeadAttention:
    return GroupedQueryAttention(16, 4, 2, dropout=dropout)


def encoder_layer(dropout: float, build: Callable[[float], MultiHeadAttention]) -> EncoderLayer:
    return EncoderLayer(
        build(dropout),
        GatedFeedForward(16, 24, dropout=dropout),
        residual=lambda: PreNorm(16, dropout=dropout),
    )


def decoder_layer(dropout: float, build: Callable[[float], MultiHeadAttention]) -> DecoderLayer:
    return DecoderLayer(
        build(dropout),
        build(dropout),
        FeedForward(16, 24, dropout=dropout),
        residual=lambda: PostNorm(16, dropout=dropout),
    )


def encoder_decoder(dropout: float) -> nn.Module:
    encoder, decoder = build_encoder(**SIZES, dropout=dropout), build_decoder(**SIZES)
    for module in (*encoder.modules(), *decoder.modules()):
        if isinstance(module, MultiHeadAttention):
            module.dropout = dropout
    return EncoderDecoder(encoder, decoder)


def torch_layer(layer: Callable[..., Any], **options: Any) -> Callable[[float], nn.Module]:
    sizes = {"d_model": 16, "nhead": 4, "dim_feedforward": 24, "batch_first": True}
    return lambda dropout: from_torch(layer(**sizes, dropout=dropout, **options))


def encode(model: Any, x: Tensor, _: Tensor) -> Any:
    return model(x)


def self_attend(model: Any, x: Tensor, _: Tensor) -> Any:
    return model(x, x, x)


def decode(model: Any, x: Tensor, memory: Tensor) -> Any:
    return model(x, memory)


@torch.no_grad()
def decode_in_steps(model: Any, x: Tensor, memory: Tensor) -> Tensor:
    if isinstance(model, Decoder):
        cache, options = model.new_cache(memory), {}
    else:
        cache, options = model.new_cache(), {"causal": True}
    return torch.cat([model(token, cache=cache, **options) for token in x.split(1, dim=1)], dim=1)


MODELS = {
    "attention": Case(attention, self_attend),
    "cross-attention": Case(attention, lambda model, x, memory: model(x, memory, memory)),
    "attention with key and value sizes": Case(
        lambda dropout: attention(
            dropout, key_width=16, value_width=16, attention_function=ALiBi(4)
        ),
        self_attend,
    ),
    "large heads": Case(partial(attention, d_k=6), self_attend),
    "encoder, large heads": Case(
        lambda dropout: Encoder([encoder_layer(dropout, partial(attention, d_k=6))]), encode
    ),
    "decoder, large heads, steps": Case(
        lambda dropout: Decoder([decoder_layer(dropout, partial(attention, d_k=6))]),
        decode_in_steps,
    ),
    "encoder layer": Case(lambda dropout: encoder_layer(dropout, attention), encode),
    "decoder layer": Case(lambda dropout: decoder_layer(dropout, attention), decode),
    "encoder": Case(lambda dropout: Encoder([encoder_layer(dropout, attention)]), encode),
    "encoder, steps": Case(
        lambda dropout: Encoder([encoder_layer(dropout, attention)]), decode_in_steps
    ),
    "decoder": Case(lambda dropout: Decoder([decoder_layer(dropout, attention)]), decode),
    "decoder, steps": Case(
        lambda dropout: Decoder([decoder_layer(dropout, attention)]), decode_in_steps
    ),
    "decoder, grouped steps": Case(
        lambda dropout: Decoder([decoder_layer(dropout, grouped)]), decode_in_steps
    ),
    "encoder-decoder": Case(encoder_decoder, lambda model, x, memory: model(memory, x)),
    "torch's attention": Case(
        lambda dropout: from_torch(nn.MultiheadAttention(16, 4, dropout=dropout, batch_first=True)),
        self_attend,
    ),
    "torch's encoder layer": Case(torch_layer(nn.TransformerEncoderLayer), encode),
    "torch's decoder layer": Case(torch_layer(nn.TransformerDecoderLayer, norm_first=True), decode),
}
every_model = pytest.mark.parametrize("case", MODELS.values(), ids=MODELS)


@every_model
@pytest.mark.parametrize(("dropout", "training"), [(0.1, False), (0.1, True), (0.9, True)])
@torch.no_grad()
def test_a_prepared_model_applies_no_dropout(case: Case, dropout: float, training: bool) -> None:
    model = case.build(dropout).train(training)
    prepared, inputs = prepare(model), (torch.randn(2, 5, 16), torch.randn(2, 7, 16))
    assert not [name for name, part in prepared.named_modules() if part.training]
    first, second = (case.call(prepared, *inputs) for _ in range(2))
    assert torch.equal(first, second)
    torch.testing.assert_close(first, case.call(model.eval(), *inputs), **TOLERANCE)


class TextEncoder(nn.Module):
    """A user's model, in which parts without a prepared form precede those with one."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.positions = TokenEmbedding(9, 16), SinusoidalPositionalEncoding(16)
        self.encoder, self.dropout = build_encoder(**SIZES), nn.Dropout(0.3)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.dropout(self.encoder(self.positions(self.embedding(tokens))))


REJECTED: dict[str, tuple[str, Callable[[Any], object]]] = {
    "train": ("trained", lambda model: model.train()),
    "bfloat16": ("moved or converted", lambda model: model.to(torch.bfloat16)),
    "half": ("moved or converted", lambda model: model.half()),
    "double": ("moved or converted", lambda model: model.double()),
    "meta": ("moved or converted", lambda model: model.to("meta")),
    "to_empty": ("moved or converted", lambda model: model.to_empty(device="cpu")),
    "load_state_dict": (
        "given other weights",
        lambda model: model.load_state_dict(
            {name: torch.zeros_like(value) for name, value in model.state_dict().items()}
        ),
    ),
    "assign": (
        "given other weights",
        lambda model: model.load_state_dict(
            {name: torch.zeros_like(value) for name, value in model.state_dict().items()},
            assign=True,
        ),
    ),
    "deepcopy": ("copied or pickled", copy.deepcopy),
    "pickle": ("copied or pickled", pickle.dumps),
}


@pytest.mark.parametrize("is_nested", [False, True])
@pytest.mark.parametrize(("participle", "operation"), REJECTED.values(), ids=REJECTED)
def test_a_prepared_model_rejects_every_operation_that_would_change_it(
    participle: str, operation: Callable[[Any], object], is_nested: bool
) -> None:
    prepared, tokens = prepare(TextEncoder()), torch.tensor([[1, 2, 3]])
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


@every_model
@pytest.mark.parametrize("name", ["train", "bfloat16", "deepcopy"])
def test_every_prepared_part_rejects_changes_by_itself(case: Case, name: str) -> None:
    participle, operation = REJECTED[name]
    prepared = prepare(case.build(0.1))
    for part in prepared.modules():
        if any(isinstance(inner, PrepackedLinear) for inner in part.modules()):
            with pytest.raises(RuntimeError, match=participle):
                operation(part)


def test_operations_that_change_nothing_are_allowed() -> None:
    prepared = prepare(TextEncoder())
    for result in (
        prepared.eval(),
        prepared.train(False),
        prepared.to("cpu"),
        prepared.to(torch.float32),
        prepared.cpu(),
        prepared.float(),
    ):
        assert result is prepared
    assert isinstance(prepared, TextEncoder)
    assert type(prepared).__name__ == "TextEncoder"


@pytest.mark.parametrize(
    "case", [case for case in MODELS.values() if case.call is not decode_in_steps]
)
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


def test_a_prepacked_layer_can_be_vectorised_while_gradients_are_recorded() -> None:
    prepared, x = PrepackedLinear(nn.Linear(8, 4)), torch.randn(3, 1, 8)
    torch.testing.assert_close(vmap(prepared)(x), prepared(x), **TOLERANCE)


def test_a_changed_model_can_be_prepared_again() -> None:
    model = build_encoder(**SIZES).eval()
    prepared, x = prepare(model), torch.randn(2, 5, 16)
    model.load_state_dict({name: value + 0.1 for name, value in model.state_dict().items()})
    with torch.no_grad():
        assert not torch.allclose(prepared(x), model(x), atol=1e-2)
        torch.testing.assert_close(prepare(model)(x), model(x), **TOLERANCE)
    in_float64 = prepare(cast(nn.Module, model.double()))
    assert {value.dtype for value in in_float64.state_dict().values()} == {torch.float64}


def test_a_model_that_was_prepared_in_inference_mode_can_be_used_outside_of_it() -> None:
    encoder = build_encoder(num_layers=1, d_model=16, num_heads=4, d_ff=32)
    x = torch.randn(2, 5, 16)
    with torch.inference_mode():
        prepared = prepare(encoder)
    torch.testing.assert_close(prepared(x), encoder.eval()(x))
    with pytest.raises(RuntimeError, match="a prepared model cannot be differentiated"):
        torch.func.grad(lambda x: prepared(x).sum())(x)


def test_a_prepared_stack_rejects_what_the_stack_rejects() -> None:
    sizes: dict[str, Any] = {"num_layers": 1, "d_model": 16, "num_heads": 4, "d_ff": 32}
    wrong: Any
    encoder = prepare(build_encoder(**sizes))
    decoder = prepare(build_decoder(**sizes))
    x = torch.randn(2, 5, 16)
    with torch.no_grad():
        for wrong in (x.numpy(), x.tolist(), None, "x", x[0], x[0, 0], x[0, 0, 0], x[..., :8]):
            with pytest.raises((TypeError, ValueError), match=r"^x must"):
                encoder(wrong)
            with pytest.raises((TypeError, ValueError), match=r"^x must"):
                decoder(wrong, cache=decoder.new_cache(x))
        for wrong in ([[True]], "x", True, x, torch.zeros(2, 1, 1, 4, dtype=torch.bool)):
            with pytest.raises((TypeError, ValueError), match=r"^mask must"):
                encoder(x, mask=wrong)
        for wrong in ("x", 1, [], SelfAttentionCache, KeyValueCache()):
            for stack in (encoder, decoder):
                with pytest.raises(TypeError, match=r"^cache must"):
                    stack(x[:, :1], cache=wrong)
