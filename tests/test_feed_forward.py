"""The feed-forward network: equation 2 of the paper, position by position."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.reference import Array, to_numpy
from torch import Tensor

from transformer_blocks import FeedForward, GatedFeedForward


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("activation", "bend"),
    [(F.relu, lambda x: np.maximum(0.0, x)), (torch.tanh, np.tanh)],
    ids=["relu", "tanh"],
)
def test_the_network_is_equation_two(
    bias: bool, activation: Callable[[Tensor], Tensor], bend: Callable[[Array], Array]
) -> None:
    layer = FeedForward(8, 12, activation=activation, bias=bias).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    weights = {name: to_numpy(parameter) for name, parameter in layer.named_parameters()}
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    hidden = bend(to_numpy(x) @ weights["widen.weight"].T + weights.get("widen.bias", 0.0))
    expected = hidden @ weights["narrow.weight"].T + weights.get("narrow.bias", 0.0)
    np.testing.assert_allclose(to_numpy(layer(x)), expected, atol=1e-12)
    assert ("widen.bias" in weights) == ("narrow.bias" in weights) == bias


def test_relu_is_the_default_bend() -> None:
    assert FeedForward(8, 12).activation is F.relu


def test_a_position_does_not_feel_its_neighbours() -> None:
    layer = FeedForward(8, 12).double()
    x = torch.randn(2, 4, 8, dtype=torch.float64, requires_grad=True)
    layer(x)[:, 2].sum().backward()
    assert x.grad is not None
    assert (x.grad[:, [0, 1, 3]] == 0.0).all()
    torch.testing.assert_close(layer(x)[1, 2], layer(x[1, 2]))  # any leading dimensions do


def test_dropout_falls_between_the_maps_and_in_training_only() -> None:
    layer = FeedForward(8, 200, dropout=0.5, activation=torch.ones_like)
    torch.nn.init.ones_(layer.down_projection.weight)
    x = torch.randn(1, 50, 8)
    kept = layer(x)[0, :, 0] / 2.0  # how many of 200 ones were kept, since each kept one counts 2
    assert torch.equal(kept, kept.round())
    assert 50 < kept.min() < kept.max() < 150  # 100 on average, give or take 7
    assert (layer.eval()(x) == 200.0).all()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("activation", "bend"),
    [
        (F.silu, lambda x: x / (1.0 + np.exp(-x))),
        (torch.sigmoid, lambda x: 1.0 / (1.0 + np.exp(-x))),
    ],
    ids=["swiglu", "glu"],
)
def test_the_gated_network_is_the_equation_of_its_paper(
    bias: bool, activation: Callable[[Tensor], Tensor], bend: Callable[[Array], Array]
) -> None:
    layer = GatedFeedForward(8, 12, activation=activation, bias=bias).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter)
    weights = {name: to_numpy(parameter) for name, parameter in layer.named_parameters()}
    assert len(weights) == (6 if bias else 3)

    def linear(x: Array, name: str) -> Array:
        return np.asarray(x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0))

    x = torch.randn(2, 3, 8, dtype=torch.float64)
    inside = bend(linear(to_numpy(x), "gate")) * linear(to_numpy(x), "widen")
    np.testing.assert_allclose(to_numpy(layer(x)), linear(inside, "narrow"), rtol=0, atol=1e-12)


def test_two_thirds_of_the_width_make_as_many_weights() -> None:
    gated, plain = GatedFeedForward(12, 32), FeedForward(12, 48, bias=False)
    sizes = [sum(weight.numel() for weight in part.parameters()) for part in (gated, plain)]
    assert sizes[0] == sizes[1]


def test_the_gated_network_drops_only_in_training() -> None:
    layer, x = GatedFeedForward(8, 64, dropout=0.5), torch.randn(1, 3, 8)
    assert not torch.equal(layer(x), layer(x))
    assert torch.equal(layer.eval()(x), layer(x))
