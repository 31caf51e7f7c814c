"""Recording captures all attention weights and changes no output."""

from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks import (
    Decoder,
    DecoderLayer,
    Encoder,
    MultiHeadAttention,
    PreNorm,
    attention_weights,
    build_decoder,
    build_encoder,
    fused_attention,
    padding_mask,
    record_attention,
)
from transformer_blocks.inspection import record_projections

SIZES: dict[str, Any] = {"num_layers": 2, "d_model": 8, "num_heads": 2, "d_ff": 12}
PADDING = padding_mask(torch.tensor([[1, 1, 1, 0], [0, 0, 0, 0]]))


class Translator(nn.Module):
    """An encoder and a decoder."""

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.encoder: Encoder = build_encoder(**SIZES, **options)
        self.decoder: Decoder = build_decoder(**SIZES, **options)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        memory = self.encoder(source, mask=PADDING)
        return self.decoder(target, memory, memory_mask=PADDING)


def watched(model: nn.Module) -> list[str]:
    """Names of the layers whose attention function is not the one that they were given."""
    return [
        name
        for name, part in model.named_modules()
        if isinstance(part, MultiHeadAttention) and part.attention_function is not fused_attention
    ]


@pytest.mark.parametrize("of_torch", [False, True])
def test_recording_under_autocast_does_not_change_gradients(of_torch: bool) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    encoder: nn.Module = layer if of_torch else build_encoder(**SIZES, dropout=0.0)
    x, gradients = torch.randn(2, 4, 8), []
    for record in (nullcontext, record_attention, record_projections):
        encoder.zero_grad()
        with torch.autocast("cpu", torch.bfloat16), record(encoder):
            output = encoder(x)
        output.float().pow(2).sum().backward()
        gradients.append([weight.grad for weight in encoder.parameters()])
    for before, *after in zip(*gradients, strict=True):
        assert before is not None
        for each in after:
            assert each is not None
            assert torch.equal(before, each)


def test_every_call_of_every_attention_is_recorded_under_its_name() -> None:
    model = Translator()
    with record_attention(model) as maps:
        for _ in range(3):
            model(torch.randn(2, 4, 8), torch.randn(2, 3, 8))
    shapes = {name: [tuple(weights.shape) for weights in calls] for name, calls in maps.items()}
    assert shapes == {
        f"{part}.layers.{layer}.{kind}_attention": [(2, 2, *size)] * 3
        for part, kind, size in (
            ("encoder", "self", (4, 4)),
            ("decoder", "self", (3, 3)),
            ("decoder", "cross", (3, 4)),
        )
        for layer in (0, 1)
    }


@pytest.mark.parametrize("training", [True, False])
def test_recorded_weights_are_those_of_equation_1_before_dropout(training: bool) -> None:
    decoder = build_decoder(**SIZES, attention_dropout=0.9, residual=PreNorm).train(training)
    x, memory = torch.randn(2, 3, 8), torch.randn(2, 4, 8)
    with record_attention(decoder) as maps:
        decoder(x, memory, memory_mask=PADDING)
    layer = decoder.layers[0]
    assert isinstance(layer, DecoderLayer)
    attention: MultiHeadAttention = layer.self_attention
    normed = layer.self_attention_residual.norm(x)
    q, k = (
        torch.stack(projection(normed).split(4, dim=-1), dim=1)  # heads of size 4
        for projection in (attention.query_projection, attention.key_projection)
    )
    expected = attention_weights(q, k, causal=True)
    torch.testing.assert_close(maps["layers.0.self_attention"][0], expected)
    cross = maps["layers.1.cross_attention"][0]
    torch.testing.assert_close(cross[0].sum(-1), torch.ones(2, 3))
    assert (cross[0, :, :, 3] == 0.0).all()
    assert (cross[1] == 0.0).all()  # the whole second source is padding


def test_a_recording_is_shown_by_names_and_shapes() -> None:
    model = build_encoder(**SIZES)
    with record_attention(model) as maps, record_projections(model) as projections:
        model(torch.randn(3, 5, 8))
        model(torch.randn(3, 6, 8))
    for recorded, shape in ((maps, (3, 2, 5, 5)), (projections, (3, 2, 5, 4))):
        assert repr(recorded).splitlines() == [f"{name}: {shape} and 1 more" for name in maps]


def test_only_selected_layers_are_recorded() -> None:
    model = Translator()
    with record_attention(model, only=lambda name: "cross" in name) as maps:
        model(torch.randn(2, 4, 8), torch.randn(2, 3, 8))
        assert len(watched(model)) == 2
    assert list(maps) == [f"decoder.layers.{layer}.cross_attention" for layer in (0, 1)]
    assert [len(calls) for calls in maps.values()] == [1, 1]


def test_weights_are_stored_on_the_requested_device() -> None:
    attention, x = MultiHeadAttention(8, 2), torch.randn(1, 3, 8)
    with record_attention(attention, device="meta") as maps:
        assert attention(x, x, x).device.type == "cpu"
    assert maps[""][0].device.type == "meta"
    with record_attention(attention) as maps:
        attention(x, x, x)
    assert maps[""][0].device.type == "cpu"


@pytest.mark.parametrize("training", [True, False])
def test_weights_that_the_attention_function_returns_are_recorded(training: bool) -> None:
    returned: list[Tensor] = []

    def attend(query: Tensor, key: Tensor, value: Tensor, **_: Any) -> tuple[Tensor, Tensor]:
        weights = torch.rand(*query.shape[:3], key.shape[2]) + 0 * query[..., :1]
        returned.append(weights.detach())
        return weights @ value, weights

    attention = MultiHeadAttention(8, 2, attention_function=attend).train(training)
    query, memory = torch.randn(2, 3, 8), torch.randn(2, 4, 8)
    with record_attention(attention) as maps:
        attention(query, memory, memory)
        attention(query, query, query)
    assert [*map(torch.equal, maps[""], returned)] == [True, True]
    assert not any(weights.requires_grad for weights in maps[""])


def linear(query: Tensor, key: Tensor, value: Tensor, **_: Any) -> Tensor:
    """Attention without weights: the keys and values are summed first."""
    query, key = F.elu(query) + 1, F.elu(key) + 1
    return query @ (key.mT @ value) / (query @ key.sum(dim=2, keepdim=True).mT)


def with_none(*inputs: Tensor, **options: Any) -> Any:
    return fused_attention(*inputs, **options), None


@pytest.mark.parametrize("function", [linear, with_none])
def test_a_layer_whose_attention_function_offers_no_weights_is_named(function: Any) -> None:
    attention = MultiHeadAttention(8, 2, attention_function=function)
    model = nn.ModuleDict({"odd": attention, "usual": MultiHeadAttention(8, 2)})
    x = torch.randn(1, 4, 8)
    expected = model["usual"](attention(x, x, x), x, x)
    with (
        pytest.warns(
            UserWarning,
            match=r"^no attention weights could be computed in 'odd' \(MultiHeadAttention\): its "
            "attention function returns none and has no method attention_weights$",
        ),
        record_attention(model) as maps,
    ):
        output = model["usual"](attention(x, x, x), x, x)
    assert torch.equal(output, expected)
    assert list(maps) == ["usual"]
