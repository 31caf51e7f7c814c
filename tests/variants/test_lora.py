"""Low-rank adaptation: its equation, what it trains, and how it is merged."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tests.blocks.reference import to_numpy
from torch import Tensor, nn

from transformer_blocks import (
    Encoder,
    LoraLinear,
    TokenEmbedding,
    add_lora,
    build_decoder,
    build_encoder,
    merge_lora,
)
from transformer_blocks.inference import prepare
from transformer_blocks.interop import load_weights

ATTENTION = ("query_projection", "key_projection", "value_projection", "output_projection")
ALL = (*ATTENTION, "up_projection", "down_projection")


def encoder(dtype: torch.dtype = torch.float32) -> Encoder:
    return build_encoder(num_layers=2, d_model=16, num_heads=4, d_ff=32).to(dtype).eval()


def adapted(dtype: torch.dtype = torch.float32, **options: Any) -> Encoder:
    """Build an encoder whose matrices B are not zero, as if they were trained."""
    model = encoder(dtype)
    add_lora(model, **{"rank": 2} | options)
    for part in model.modules():
        if isinstance(part, LoraLinear):
            nn.init.normal_(part.lora_b, std=0.3)
    return model


def state_of(model: nn.Module) -> list[tuple[Any, ...]]:
    """List all that a refused call must not change."""
    return [
        (name, type(part), part.training, weight.requires_grad, weight.tolist())
        for name, part in model.named_modules(remove_duplicate=False)
        for weight in part.parameters()
    ]


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("alpha", "factor"), [(None, 1.0), (8, 8 / 3), (0.5, 0.5 / 3)])
def test_the_output_is_that_of_the_equation_of_the_paper(
    bias: bool, alpha: float | None, factor: float
) -> None:
    linear = nn.Linear(5, 7, bias=bias, dtype=torch.float64)
    layer = LoraLinear(linear, rank=3, alpha=alpha)
    nn.init.normal_(layer.lora_b)
    x = torch.randn(2, 4, 5, dtype=torch.float64)
    a, b, w = (to_numpy(each) for each in (layer.lora_a, layer.lora_b, linear.weight))
    assert (a.shape, b.shape) == ((3, 5), (7, 3))
    expected = to_numpy(x) @ w.T + factor * (to_numpy(x) @ a.T) @ b.T
    if linear.bias is not None:
        expected = expected + to_numpy(linear.bias)
    np.testing.assert_allclose(to_numpy(layer(x)), expected, rtol=0, atol=1e-12)


def test_a_keeps_the_variance_of_its_input() -> None:
    layer = LoraLinear(nn.Linear(400, 300), rank=200)
    assert torch.nn.functional.linear(torch.randn(200, 400), layer.lora_a).var().item() == (
        pytest.approx(1.0, abs=0.05)
    )


@pytest.mark.parametrize("training", [True, False])
def test_the_model_computes_the_same_before_training(training: bool) -> None:
    model, x = encoder().train(training), torch.randn(2, 5, 16)
    plain = copy.deepcopy(model)
    add_lora(model, rank=2, alpha=16, modules=ALL)
    assert all(part.training == training for part in model.modules())
    outputs = []
    for each in (model, plain):
        torch.manual_seed(0)  # for dropout
        outputs.append(each(x))
    assert torch.equal(*outputs)


def test_only_a_and_b_receive_gradients_and_the_trained_weights_stay() -> None:
    model = adapted(modules=ALL)
    before = copy.deepcopy(model.state_dict())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    x = torch.randn(2, 5, 16)
    (model(x) - x).square().mean().backward()
    optimizer.step()
    for name, weight in model.named_parameters():
        is_lora = name.endswith((".lora_a", ".lora_b"))
        assert weight.requires_grad == is_lora
        assert (weight.grad is not None) == is_lora
        assert torch.equal(weight, before[name]) != is_lora, name
    assert len(before) > 24 == len([name for name in before if ".lora_" in name])


@pytest.mark.parametrize(
    ("modules", "count"),
    [
        (["self_attention.query_projection"], 2),
        (["query_projection", "cross_attention.value_projection"], 6),
        (["layers.1.cross_attention.key_projection"], 1),
        (("up_projection", "layers.0.feed_forward.up_projection"), 2),
    ],
)
def test_modules_are_chosen_by_their_names_or_the_ends_of_these(modules: Any, count: int) -> None:
    decoder = build_decoder(num_layers=2, d_model=16, num_heads=4, d_ff=32)
    add_lora(decoder, rank=1, alpha=3, modules=modules)
    layers = {name: x for name, x in decoder.named_modules() if isinstance(x, LoraLinear)}
    assert [layer.scale for layer in layers.values()] == [3.0] * count
    assert all(f".{name}".endswith(tuple(f".{each}" for each in modules)) for name in layers)


@pytest.mark.parametrize(("dtype", "limit"), [(torch.float32, 1e-5), (torch.float64, 1e-13)])
def test_a_merged_model_is_the_plain_one_and_computes_the_same(
    dtype: torch.dtype, limit: float
) -> None:
    model, plain = adapted(dtype, modules=ALL, alpha=3), encoder(dtype)
    x = torch.randn(2, 5, 16, dtype=dtype)
    expected = model(x)
    merged = merge_lora(model)
    assert merged is model
    torch.testing.assert_close(model(x), expected, rtol=0, atol=limit)
    assert [(name, type(part)) for name, part in model.named_modules()] == [
        (name, type(part)) for name, part in plain.named_modules()
    ]
    assert not any(part.training for part in model.modules())
    assert not any(weight.requires_grad for weight in model.parameters())
    load_weights(plain, model.state_dict())
    assert torch.equal(plain(x), model(x))


def test_the_merged_weight_is_that_of_the_output_and_carries_its_gradients() -> None:
    linear = nn.Linear(8, 20)
    layer, before = LoraLinear(linear, rank=2, alpha=3), linear.weight.clone()
    nn.init.normal_(layer.lora_b)
    x = torch.randn(6, 8)
    outputs = layer(x), nn.functional.linear(x, layer.weight, layer.bias)
    gradients = [torch.autograd.grad(y.cos().sum(), [layer.lora_a, layer.lora_b]) for y in outputs]
    torch.testing.assert_close(*outputs)
    torch.testing.assert_close(*gradients)
    merged = merge_lora(layer)
    assert type(merged) is nn.Linear
    assert torch.equal(merged.weight, layer.weight)
    assert torch.equal(linear.weight, before)  # and the layer that was replaced is not changed


def test_a_and_b_and_the_trained_model_are_all_that_another_one_needs(tmp_path: Any) -> None:
    model, trained, x = adapted(alpha=7.0), encoder(), torch.randn(2, 5, 16)
    state = {name.replace(".linear.", "."): each for name, each in model.state_dict().items()}
    matrices = {name: each for name, each in state.items() if ".lora_" in name}
    trained.load_state_dict({name: state[name] for name in trained.state_dict()})
    save_file(matrices, tmp_path / "lora.safetensors")
    add_lora(trained, rank=2, alpha=7.0)
    loaded = trained.load_state_dict(load_file(tmp_path / "lora.safetensors"), strict=False)
    assert not loaded.unexpected_keys
    assert not any(".lora_" in name for name in loaded.missing_keys)
    assert torch.equal(trained(x), model(x))


class Shared(nn.Module):
    """A linear layer in two places, and one whose weight is that of the embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = TokenEmbedding(10, 8)
        self.first = self.second = nn.Linear(8, 8)
        self.output = nn.Linear(8, 10, bias=False)
        self.output.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        return self.output(self.second(torch.tanh(self.first(self.embedding(tokens)))))


@pytest.mark.parametrize("modules", [["first"], ["second"], ["first", "second"]])
def test_a_layer_in_two_places_has_one_a_and_b_in_both(modules: list[str]) -> None:
    model, tokens = Shared().eval(), torch.tensor([[1, 2, 3]])
    add_lora(model, rank=2, modules=modules)
    assert isinstance(model.first, LoraLinear)
    assert model.first is model.second
    nn.init.normal_(model.first.lora_b)
    expected = model(tokens)
    merge_lora(model)
    assert model.first is model.second
    torch.testing.assert_close(model(tokens), expected)
    assert model.output.weight is model.embedding.weight


def hooked() -> Encoder:
    model = encoder()
    model.get_submodule(FIRST).register_forward_hook(lambda *_: None)
    return model


FIRST = "layers.0.self_attention.query_projection"
WRONG: dict[str, tuple[Callable[[], nn.Module], dict[str, Any], str]] = {
    "no such module": (encoder, {"modules": ["query_projection", "q_proj"]}, "modules .*'q_proj'"),
    "no linear layer": (encoder, {"modules": ["norm"]}, "modules must name instances of nn.Linear"),
    "a subclass": (
        lambda: nn.TransformerEncoderLayer(8, 2, 16),
        {"modules": ["linear1", "out_proj"]},
        "modules must .* got 'self_attn.out_proj', a NonDynamicallyQuantizableLinear",
    ),
    "a tied weight": (Shared, {"modules": ["first", "output"]}, "modules must .* got 'output'"),
    "a large rank": (encoder, {"rank": 17}, r"rank must be at most 16, .* got rank=17"),
    "hooks": (hooked, {}, "linear must have neither hooks nor .* got hooks$"),
    "LoRA layers already": (adapted, {}, "model must have no LoRA layers yet"),
    "a prepared model": (
        lambda: prepare(encoder()),
        {},
        "model must not be prepared for inference",
    ),
}


@pytest.mark.parametrize(("build", "options", "message"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_adapted_is_refused_and_the_model_is_as_it_was(
    build: Callable[[], nn.Module], options: dict[str, Any], message: str
) -> None:
    model = build()
    before = state_of(model)
    with pytest.raises((TypeError, ValueError), match=f"^{message}"):
        add_lora(model, **{"rank": 2} | options)
    assert state_of(model) == before


@pytest.mark.parametrize("inner", [True, False])
def test_a_layer_with_hooks_is_not_merged(inner: bool) -> None:
    model = adapted()
    layer: Any = model.get_submodule(FIRST)
    (layer.linear if inner else layer).register_forward_hook(lambda *_: None)
    before = state_of(model)
    with pytest.raises(
        ValueError, match=r"must have neither hooks nor replaced methods, .* got hooks$"
    ):
        merge_lora(model)
    assert state_of(model) == before


def test_a_prepared_model_computes_what_the_adapted_one_does() -> None:
    model, x = adapted(modules=ALL), torch.randn(2, 5, 16)
    before = state_of(model)
    with torch.no_grad():
        fast = prepare(model)
        torch.testing.assert_close(fast(x), model(x), rtol=0, atol=1e-5)
    assert state_of(model) == before
    plain = prepare(merge_lora(model))
    assert [type(each) for each in fast.modules()] == [type(each) for each in plain.modules()]


def test_torch_s_fast_path_never_ignores_the_adapter() -> None:
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    x = torch.randn(2, 5, 8)
    add_lora(model, rank=2, modules=["linear1", "linear2"])
    nn.init.normal_(model.get_parameter("linear1.lora_b"))
    expected = model(x)  # with gradients, which the fast path has not
    with torch.no_grad():
        torch.testing.assert_close(model(x), expected.detach())
