"""The feed-forward network: equation 2 of the paper, position by position."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.blocks.reference import Array, randomise, to_numpy
from torch import Tensor

from transformer_blocks import FeedForward


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("activation", "nonlinearity"),
    [(F.relu, lambda x: np.maximum(0.0, x)), (torch.tanh, np.tanh)],
    ids=["relu", "tanh"],
)
def test_the_network_is_equation_two(
    bias: bool, activation: Callable[[Tensor], Tensor], nonlinearity: Callable[[Array], Array]
) -> None:
    layer = FeedForward(8, 12, activation=activation, bias=bias).double()
    randomise(layer)
    weights = {name: to_numpy(parameter) for name, parameter in layer.named_parameters()}
    x = torch.randn(2, 3, 8, dtype=torch.float64)
    hidden = nonlinearity(
        to_numpy(x) @ weights["up_projection.weight"].T + weights.get("up_projection.bias", 0.0)
    )
    expected = hidden @ weights["down_projection.weight"].T + weights.get(
        "down_projection.bias", 0.0
    )
    np.testing.assert_allclose(to_numpy(layer(x)), expected, atol=1e-12)
    torch.testing.assert_close(layer(x)[1, 2], layer(x[1, 2]))  # any leading dimensions
    assert ("up_projection.bias" in weights) == ("down_projection.bias" in weights) == bias


def test_relu_is_the_default_nonlinearity() -> None:
    assert FeedForward(8, 12).activation is F.relu


def test_dropout_applies_between_the_projections_in_training_only() -> None:
    layer = FeedForward(8, 200, dropout=0.5, activation=torch.ones_like)
    torch.nn.init.ones_(layer.down_projection.weight)
    x = torch.randn(1, 50, 8)
    # A number that dropout keeps is divided by the keep probability 1 / 2, so it counts 2.
    count = layer(x)[0, :, 0] / 2.0
    assert torch.equal(count, count.round())
    assert 50 < count.min() < count.max() < 150  # 100 of 200 expected, standard deviation 7
    assert (layer.eval()(x) == 200.0).all()


def test_initial_weights_are_xavier_s_and_biases_are_zero() -> None:
    network = FeedForward(64, 256)
    for projection in (network.up_projection, network.down_projection):
        bound = (6 / (64 + 256)) ** 0.5
        assert 0.95 * bound < projection.weight.abs().max() <= bound
        assert not projection.bias.any()
