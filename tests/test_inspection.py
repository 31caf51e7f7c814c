"""Recording captures all attention weights and changes no output."""

from contextlib import ExitStack, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from transformer_blocks import (
    Decoder,
    DecoderLayer,
    Encoder,
    MultiHeadAttention,
    PreNorm,
    SingleHeadAttention,
    attention_weights,
    build_decoder,
    build_encoder,
    causal_mask,
    fused_attention,
    padding_mask,
    record_attention,
    scaled_dot_product_attention,
)
from transformer_blocks.inference import prepare
from transformer_blocks.inspection import (
    check_causal,
    explain_mask,
    record_projections,
    trace_shapes,
)

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


def hooks_of(model: nn.Module) -> list[Any]:
    return [hook for module in model.modules() for hook in module._forward_pre_hooks.values()]


@pytest.mark.parametrize("attention_function", [fused_attention, scaled_dot_product_attention])
@pytest.mark.parametrize("training", [True, False])
def test_recording_changes_no_bit_of_outputs_gradients_or_random_numbers(
    attention_function: Any, training: bool
) -> None:
    model = Translator(dropout=0.3, attention_dropout=0.3).train(training)
    for module in model.modules():
        if isinstance(module, MultiHeadAttention):
            module.attention_function = attention_function
    source, target = torch.randn(2, 4, 8), torch.randn(2, 3, 8)
    results = []
    for recording in (False, True):
        torch.manual_seed(1)
        model.zero_grad()
        if recording:
            with record_attention(model):
                output = model(source, target)
        else:
            output = model(source, target)
        output.sum().backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        results.append([output, torch.rand(1), *gradients])
    assert all(map(torch.equal, *results))


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


@pytest.mark.parametrize("kind", [SingleHeadAttention, MultiHeadAttention])
def test_a_single_layer_is_recorded_with_positional_and_keyword_arguments(kind: Any) -> None:
    layer = kind(8) if kind is SingleHeadAttention else kind(8, 2)
    query, memory = torch.randn(2, 3, 8), torch.randn(2, 4, 8)
    with record_attention(layer) as maps:
        layer(query, memory, memory, mask=PADDING, causal=True)
        layer(query, memory, value=memory, mask=PADDING, causal=True)
        layer(query=query, key=memory, value=memory, mask=PADDING, causal=True)
    assert list(maps) == [""]
    expected = layer.attention_weights(query, memory, mask=PADDING, causal=True)
    assert [torch.equal(weights, expected) for weights in maps[""]] == [True] * 3


def test_single_head_attention_is_recorded_with_its_scale() -> None:
    layer = SingleHeadAttention(8, scale=2.0)
    x = torch.randn(1, 4, 8)
    with record_attention(layer) as maps:
        layer(x, x, x)
    q, k = layer.query_projection(x)[:, None], layer.key_projection(x)[:, None]
    torch.testing.assert_close(maps[""][0], attention_weights(q, k, scale=2.0))


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_recorded_weights_have_no_gradient_in_any_mode(mode: Any) -> None:
    encoder = build_encoder(**SIZES)
    with mode(), record_attention(encoder) as maps:
        encoder(torch.randn(1, 3, 8, requires_grad=True))
    assert [len(calls) for calls in maps.values()] == [1, 1]
    assert not any(weights.requires_grad for calls in maps.values() for weights in calls)


def test_recording_ends_with_the_block_also_after_an_error() -> None:
    encoder = build_encoder(**SIZES)
    x = torch.randn(1, 3, 8)
    with record_attention(encoder) as maps:
        encoder(x)
    assert hooks_of(encoder) == []
    with pytest.raises(RuntimeError, match="inside"), record_attention(encoder):
        raise RuntimeError("inside")
    assert hooks_of(encoder) == []
    encoder(x)
    assert [len(calls) for calls in maps.values()] == [1, 1]


def test_recordings_may_be_nested_and_keep_other_hooks() -> None:
    encoder = build_encoder(**SIZES)
    x = torch.randn(1, 3, 8)
    encoder.get_submodule("layers.0.self_attention").register_forward_pre_hook(lambda *_: None)
    with record_attention(encoder) as outer, record_attention(encoder.layers[1]) as inner:
        encoder(x)
    assert torch.equal(outer["layers.1.self_attention"][0], inner["self_attention"][0])
    assert len(hooks_of(encoder)) == 1


def test_only_selected_layers_are_recorded() -> None:
    model = Translator()
    with record_attention(model, only=lambda name: "cross" in name) as maps:
        model(torch.randn(2, 4, 8), torch.randn(2, 3, 8))
        assert len(hooks_of(model)) == 2
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


class RandomWeights:
    """An attention function with random weights, which records those that it has returned."""

    def __init__(self) -> None:
        self.returned: list[Tensor] = []

    def __call__(
        self, query: Tensor, key: Tensor, value: Tensor, *, mask: Tensor | None = None, **_: Any
    ) -> tuple[Tensor, Tensor]:
        weights = torch.rand(*query.shape[:3], key.shape[2]) + 0 * query[..., :1]
        if mask is not None:
            weights = weights.masked_fill(mask, 0.0)
        self.returned.append(weights.detach().clone())
        return weights @ value, weights


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("training", [True, False])
def test_weights_that_the_attention_function_returns_are_recorded(
    prepared: bool, training: bool
) -> None:
    def run(record: bool) -> tuple[list[Tensor], dict[str, list[Tensor]]]:
        torch.manual_seed(1)
        attention_function.returned.clear()
        maps: dict[str, list[Tensor]] = {}
        with ExitStack() as recording:
            if record:
                maps = recording.enter_context(record_attention(model))
            outputs = [model(source, target) for _ in range(2)]
            with torch.no_grad():
                cache = model.decoder.new_cache(memory)
                outputs += [model.decoder(x, cache=cache) for x in target.split(1, dim=1)]
        return outputs, maps

    model = Translator(dropout=0.0).train(training)
    if prepared:
        model.encoder, model.decoder = prepare(model.encoder), prepare(model.decoder)
    attention_function = RandomWeights()
    for part in model.modules():
        if isinstance(part, MultiHeadAttention):
            part.attention_function = attention_function
    source, target, memory = torch.randn(2, 4, 8), torch.randn(2, 3, 8), torch.randn(2, 4, 8)
    expected, _ = run(record=False)
    outputs, maps = run(record=True)
    assert all(map(torch.equal, outputs, expected))
    calls = [weights for each in maps.values() for weights in each]
    assert len(calls) == len(attention_function.returned) == 2 * 6 + 3 * 4
    for weights in attention_function.returned:
        assert sum(torch.equal(weights, call) for call in calls) == 1
    assert not any(call.requires_grad for call in calls)


def test_without_returned_weights_those_of_equation_1_are_recorded() -> None:
    def attention_function(*inputs: Tensor, **options: Any) -> Any:
        return fused_attention(*inputs, **options), None

    attention, x = (
        MultiHeadAttention(8, 2, attention_function=attention_function),
        torch.randn(1, 4, 8),
    )
    with record_attention(attention) as maps:
        attention(x, x, x, causal=True)
    assert torch.equal(maps[""][0], attention.attention_weights(x, x, causal=True))


def test_recordings_of_returned_weights_may_end_in_any_order() -> None:
    attention_function = RandomWeights()
    attention, x = (
        MultiHeadAttention(8, 2, attention_function=attention_function),
        torch.randn(1, 4, 8),
    )
    first, second = ExitStack(), ExitStack()
    first_maps = first.enter_context(record_attention(attention))
    second_maps = second.enter_context(record_attention(attention))
    attention(x, x, x)
    first.close()
    attention(x, x, x)
    second.close()
    attention(x, x, x)
    assert len(attention_function.returned) == 3
    assert [len(maps[""]) for maps in (first_maps, second_maps)] == [1, 2]
    for maps in (first_maps, second_maps):
        assert all(map(torch.equal, maps[""], attention_function.returned[: len(maps[""])]))


def test_a_model_without_attention_records_nothing() -> None:
    with record_attention(nn.Linear(8, 8)) as maps:
        pass
    assert maps == {}


def test_representations_of_results_are_what_print_shows() -> None:
    attention = MultiHeadAttention(8, 2).eval()
    x = torch.randn(1, 2, 8)
    report = check_causal(lambda x: attention(x, x, x), x)
    explanation = explain_mask(causal_mask(2), queries=["a", "b"])
    trace = trace_shapes(attention, x, x, x)
    assert (
        repr(report)
        == str(report)
        == ("causality: 1 violation found\n  position 0 changes with position 1, which comes later")
    )
    assert repr(explanation) == str(explanation) == "   0 1\na  . f\nb  . .\nmasked as: f future"
    assert repr(trace) == str(trace)
    first, second, third, *_ = repr(trace).splitlines()
    assert first == "B = 1, L = 2, d_model = 8, H = 2, d_k = 4"
    assert second.split() == ["module", "kind", "in", "out", "parameters", "FLOPs"]
    assert third.split()[:2] == ["model", "MultiHeadAttention"]
