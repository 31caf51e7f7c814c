"""The gated feed-forward network: the equation of its paper, and its number of parameters."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.blocks.reference import Array, randomise, to_numpy
from torch import Tensor

from transformer_blocks import GatedFeedForward


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(
    ("activation", "activate"),
    [
        (F.silu, lambda x: x / (1.0 + np.exp(-x))),
        (torch.sigmoid, lambda x: 1.0 / (1.0 + np.exp(-x))),
    ],
    ids=["swiglu", "glu"],
)
def test_the_output_is_that_of_the_equation_of_the_paper(
    bias: bool, activation: Callable[[Tensor], Tensor], activate: Callable[[Array], Array]
) -> None:
    layer = GatedFeedForward(8, 12, activation=activation, bias=bias).double()
    randomise(layer)
    weights = {name: to_numpy(parameter) for name, parameter in layer.named_parameters()}
    assert len(weights) == (6 if bias else 3)

    def linear(x: Array, name: str) -> Array:
        return np.asarray(x @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0))

    x = torch.randn(2, 3, 8, dtype=torch.float64)
    inside = activate(linear(to_numpy(x), "gate_projection")) * linear(to_numpy(x), "up_projection")
    np.testing.assert_allclose(
        to_numpy(layer(x)), linear(inside, "down_projection"), rtol=0, atol=1e-12
    )


def test_dropout_is_applied_in_training_only() -> None:
    layer, x = GatedFeedForward(8, 64, dropout=0.5), torch.randn(1, 3, 8)
    assert not torch.equal(layer(x), layer(x))
    assert torch.equal(layer.eval()(x), layer(x))
