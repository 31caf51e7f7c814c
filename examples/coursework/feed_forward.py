"""Unit 7: feed-forward network, layer normalisation, residual connections."""

from typing import Any

import torch.nn.functional as F
from torch import Tensor

from coursework.grader import Unit, filled, normal

X, WEIGHT, BIAS = normal(2, 3, 6), normal(6, seed=1), normal(6, seed=2)
AXES = "sequence position feature"
UNIT = Unit(__name__, "feed-forward network and residual connections")


def _double(x: Tensor) -> Tensor:
    return 2 * x.roll(1, -1)


UNIT.calls("layer_norm", AXES, each_vector_is_normalised=(3 * X + 1, WEIGHT, BIAS))


@UNIT.law("layer_norm", AXES, expected=lambda: F.layer_norm(X / 200, (6,), WEIGHT, BIAS))
def small_vectors_are_normalised_as_by_torch(my: Any) -> Any:
    """Vectors whose variance is about as small as eps."""
    return my.layer_norm(X / 200, WEIGHT, BIAS)


UNIT.calls("FeedForward", AXES, sizes=(6, 10), the_network_is_applied_to_each_position=(X,))
UNIT.calls("PostNorm", AXES, sizes=(6, 0.5), the_sum_is_normalised=(X, _double))
UNIT.calls("PreNorm", AXES, sizes=(6, 0.5), the_residual_stream_is_not_normalised=(X, _double))


@UNIT.law("PostNorm", AXES)
def dropout_is_applied_to_the_output_of_the_sublayer(my: Any) -> Any:
    """In training with dropout=1.0, where only the input is left."""
    return filled(my.PostNorm(6, dropout=1.0)).train()(X, _double)


@UNIT.law("PreNorm", AXES)
def before_a_norm_too_dropout_is_applied_to_the_output_of_the_sublayer(my: Any) -> Any:
    """In training with dropout=1.0, where only the input is left."""
    return filled(my.PreNorm(6, dropout=1.0)).train()(X, _double)
