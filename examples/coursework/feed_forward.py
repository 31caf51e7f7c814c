"""Unit 7: feed-forward network, layer normalisation, residual connections."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from coursework.grader import Mistake, Unit, filled, normal, parameters

X, WEIGHT, BIAS = normal(2, 3, 6), normal(6, seed=1), normal(6, seed=2)


def answer(
    *,
    over: Any = lambda x, b, i: x[b, i],
    root: Any = lambda deviations, eps: (deviations.mean() + eps) ** 0.5,
    shift: float = 1.0,
    activation: Any = torch.relu,
    post: Any = lambda norm, x, f: norm(x + f(x)),
    pre: Any = lambda norm, x, f: x + f(norm(x)),
    drop: Any = lambda module, y: module.dropout(y),
) -> dict[str, Any]:
    """Normalise in float64, one vector at a time."""

    def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float = 1e-5) -> Tensor:
        values, result = x.double().numpy(), np.zeros(x.shape)
        for b, i in np.ndindex(values.shape[:2]):
            mean = over(values, b, i).mean()
            scaled = (values[b, i] - shift * mean) / root((over(values, b, i) - mean) ** 2, eps)
            result[b, i] = scaled * weight.numpy() + bias.numpy()
        return torch.from_numpy(result)

    class FeedForward(nn.Module):
        """Two projections."""

        def __init__(self, d_model: int, d_ff: int) -> None:
            super().__init__()
            self.up_projection = nn.Linear(d_model, d_ff)
            self.down_projection = nn.Linear(d_ff, d_model)

        def forward(self, x: Tensor) -> Tensor:
            """Expand, apply the activation function, and project back."""
            return self.down_projection(activation(self.up_projection(x)))

    class Residual(nn.Module):
        """A norm and a dropout."""

        combine: Any

        def __init__(self, d_model: int, dropout: float = 0.1) -> None:
            super().__init__()
            self.norm, self.dropout = nn.LayerNorm(d_model), nn.Dropout(dropout)

        def forward(self, x: Tensor, sublayer: Any) -> Any:
            """Apply the sublayer."""
            return type(self).combine(self.norm, x, lambda y: drop(self, sublayer(y)))

    classes = (("PostNorm", post), ("PreNorm", pre))
    residuals = {
        name: type(name, (Residual,), {"combine": staticmethod(combine)})
        for name, combine in classes
    }
    return {"layer_norm": layer_norm, "FeedForward": FeedForward, **residuals}


UNIT = Unit(
    "feed-forward network and residual connections",
    answer,
    [
        Mistake(
            "a variance with n - 1",
            {"root": lambda squares, eps: (squares.sum() / (squares.size - 1) + eps) ** 0.5},
        ),
        Mistake(
            "eps is added outside the root", {"root": lambda squares, e: squares.mean() ** 0.5 + e}
        ),
        Mistake(
            "divided by the variance, without a root",
            {"root": lambda squares, eps: squares.mean() + eps},
        ),
        Mistake("statistics over the sequence", {"over": lambda x, b, i: x[b]}),
        Mistake("statistics over the batch", {"over": lambda x, b, i: x[:, i]}),
        Mistake("the mean is not subtracted", {"shift": 0.0}),
        Mistake("no activation function", {"activation": lambda x: x}),
        Mistake("a GELU instead of a ReLU", {"activation": F.gelu}),
        Mistake("the sum is not normalised", {"post": lambda norm, x, f: x + norm(f(x))}),
        Mistake("PreNorm and PostNorm are exchanged", {"post": lambda norm, x, f: x + f(norm(x))}),
        Mistake("no residual connection", {"post": lambda norm, x, f: norm(f(x))}),
        Mistake(
            "the residual stream is normalised", {"pre": lambda norm, x, f: norm(x) + f(norm(x))}
        ),
        Mistake(
            "dropout in evaluation",
            {"drop": lambda module, y: F.dropout(y, module.dropout.p)},
            "dropout_in_evaluation",
        ),
        Mistake("no dropout", {"drop": lambda module, y: y}),
    ],
)


@UNIT.law("layer_norm", "sequence position feature")
def each_vector_is_normalised(my: Any) -> Any:
    """With weights and biases."""
    return my.layer_norm(3 * X + 1, WEIGHT, BIAS)


@UNIT.law(
    "layer_norm",
    "sequence position feature",
    expected=lambda: F.layer_norm(X / 200, (6,), WEIGHT, BIAS),
)
def small_vectors_are_normalised_as_by_torch(my: Any) -> Any:
    """The variance is about as small as eps."""
    return my.layer_norm(X / 200, WEIGHT, BIAS)


@UNIT.law("FeedForward")
def the_projections_have_their_names_and_shapes(my: Any) -> Any:
    """As the docstring lists them."""
    return parameters(my.FeedForward(6, 10))


@UNIT.law("FeedForward", "sequence position feature")
def the_network_is_applied_to_each_position(my: Any) -> Any:
    """Two projections with ReLU between them."""
    return filled(my.FeedForward(6, 10))(X)


@UNIT.law("PostNorm", "sequence position feature")
def the_sum_is_normalised(my: Any) -> Any:
    """Evaluation mode."""
    return filled(my.PostNorm(6, dropout=0.5))(X, lambda x: 2 * x.roll(1, -1))


@UNIT.law("PreNorm", "sequence position feature")
def the_residual_stream_is_not_normalised(my: Any) -> Any:
    """Evaluation mode."""
    return filled(my.PreNorm(6, dropout=0.5))(X, lambda x: 2 * x.roll(1, -1))


@UNIT.law("PostNorm", "sequence position feature")
def dropout_is_applied_to_the_output_of_the_sublayer(my: Any) -> Any:
    """With the probability 1, in training, only the input is left."""
    return filled(my.PostNorm(6, dropout=1.0)).train()(X, lambda x: 2 * x.roll(1, -1))


@UNIT.law("PreNorm", "sequence position feature")
def before_a_norm_too_dropout_is_applied_to_the_output_of_the_sublayer(my: Any) -> Any:
    """With the probability 1, in training, only the input is left."""
    return filled(my.PreNorm(6, dropout=1.0)).train()(X, lambda x: 2 * x.roll(1, -1))
