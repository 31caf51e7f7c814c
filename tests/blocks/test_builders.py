"""Builders compose the parts that their arguments name, new ones for every layer."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from transformer_blocks import (
    Decoder,
    Encoder,
    FeedForward,
    GatedFeedForward,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    QueryKeyNorm,
    Residual,
    build_decoder,
    build_encoder,
    fused_attention,
)

Builder = Callable[..., Encoder] | Callable[..., Decoder]
Kind = TypeVar("Kind")
both_builders = pytest.mark.parametrize("build", [build_encoder, build_decoder])
SIZES: dict[str, Any] = {"num_layers": 3, "d_model": 8, "num_heads": 2, "d_ff": 12}


def modules_of(kind: type[Kind], model: nn.Module) -> list[Kind]:
    return [module for module in model.modules() if isinstance(module, kind)]


@both_builders
def test_the_defaults_are_the_base_model_of_the_paper(build: Builder) -> None:
    with torch.device("meta"):
        model = build()
    attention, feed_forward, norm = 4 * (512 * 512 + 512), 2 * 512 * 2048 + 2048 + 512, 2 * 512
    sizes = {
        build_encoder: 6 * (attention + feed_forward + 2 * norm),
        build_decoder: 6 * (2 * attention + feed_forward + 3 * norm),
    }
    assert sum(parameter.numel() for parameter in model.parameters()) == sizes[build]
    assert {layer.num_heads for layer in modules_of(MultiHeadAttention, model)} == {8}
    assert {layer.dropout for layer in modules_of(MultiHeadAttention, model)} == {0.0}
    assert {layer.dropout.p for layer in modules_of(Residual, model)} == {0.1}
    assert {layer.dropout.p for layer in modules_of(FeedForward, model)} == {0.0}
    assert {type(layer) for layer in modules_of(Residual, model)} == {PostNorm}
    assert model.norm is None


@both_builders
def test_every_layer_is_made_anew(build: Builder) -> None:
    first, *others = (dict(layer.named_parameters()) for layer in build(**SIZES).layers)
    for name, weight in first.items():
        assert weight.dim() == 1 or not any(torch.equal(weight, each[name]) for each in others)


@both_builders
def test_every_argument_reaches_every_layer(build: Builder) -> None:
    model = build(**SIZES, dropout=0.25, attention_dropout=0.5, activation=F.gelu, residual=PreNorm)
    assert len(model.layers) == 3
    for attention in modules_of(MultiHeadAttention, model):
        assert attention.num_heads == 2
        assert attention.dropout == 0.5
        assert attention.attention_function is fused_attention
        assert attention.query_projection.weight.shape == (8, 8)
    for feed_forward in modules_of(FeedForward, model):
        assert feed_forward.activation is F.gelu
        assert feed_forward.up_projection.weight.shape == (12, 8)
    for residual in modules_of(Residual, model):
        assert isinstance(residual, PreNorm)
        assert residual.dropout.p == 0.25
    assert isinstance(model.norm, nn.LayerNorm)


@both_builders
def test_every_factory_is_called_once_per_layer(build: Builder) -> None:
    makers: dict[str, Callable[[], nn.Module]] = {
        "attention": lambda: MultiHeadAttention(
            8, 2, num_key_value_heads=1, transforms=[QueryKeyNorm(4)]
        ),
        "cross_attention": lambda: MultiHeadAttention(8, 4, key_width=5, value_width=5),
        "feed_forward": lambda: GatedFeedForward(8, 6),
    }
    if build is build_encoder:
        del makers["cross_attention"]
    made: dict[str, list[nn.Module]] = {name: [] for name in makers}

    def factory(name: str) -> nn.Module:
        made[name].append(makers[name]())
        return made[name][-1]

    factories: dict[str, Any] = {name: partial(factory, name) for name in makers}
    layers: Any = build(num_layers=3, d_model=8, **factories).layers
    assert made.pop("attention") == [layer.self_attention for layer in layers]
    for name, parts in made.items():
        assert parts == [getattr(layer, name) for layer in layers]


@both_builders
def test_parameters_are_never_shared_in_a_stack(build: Builder) -> None:
    norm, activation, layer_norm = QueryKeyNorm(4), nn.PReLU(), nn.LayerNorm(8)

    def tied() -> MultiHeadAttention:
        made = MultiHeadAttention(8, 2)
        made.key_projection.weight = made.query_projection.weight
        return made

    shared: dict[str, dict[str, Any]] = {
        "self_attention.transforms.0.query_norm.weight": {
            "attention": lambda: MultiHeadAttention(8, 2, transforms=[norm])
        },
        "self_attention.query_projection.weight": {"attention": tied},
        "feed_forward.activation.weight": {"activation": activation},
        "self_attention_residual.norm.weight": {
            "residual": lambda d_model, dropout: PreNorm(d_model, norm=layer_norm)
        },
    }
    for name, options in shared.items():
        rule = r"^factories must make a new module at each call, .* got layers\[\d\]"
        with pytest.raises(ValueError, match=rf"{rule}\.\w.* the same as .*{name.split('.')[-1]}$"):
            build(**SIZES | options)


@both_builders
def test_a_function_can_make_the_residuals_and_so_the_last_norm(build: Builder) -> None:
    def with_rms_norm(d_model: int, *, dropout: float) -> Residual:
        return PreNorm(d_model, dropout=dropout, norm=nn.RMSNorm(d_model))

    model = build(**SIZES, residual=with_rms_norm)
    norms = [*(residual.norm for residual in modules_of(Residual, model)), model.norm]
    assert all(isinstance(norm, nn.RMSNorm) for norm in norms)
    assert len({id(norm) for norm in norms}) == len(norms)
