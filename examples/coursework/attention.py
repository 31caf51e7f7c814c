"""Unit 5: scaled dot-product attention."""

from typing import Any

import torch
import torch.nn.functional as F

from coursework.grader import Unit, kind, normal

QUERY, KEY, VALUE = normal(2, 3, 5, 6), normal(2, 3, 7, 6, seed=1), normal(2, 3, 7, 11, seed=2)
FUTURE = torch.ones(5, 7, dtype=torch.bool).triu(3)
PADDING = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])[:, None, None, :]
NOTHING = torch.tensor([[True] * 7, *[[False] * 6 + [True]] * 4])  # query 0 has no key
UNIT = Unit(__name__, "scaled dot-product attention")
UNIT.calls(
    "attention_weights",
    "batch head query key",
    the_weights_are_a_softmax_over_the_keys=(QUERY, KEY),
    as_many_queries_as_keys=(QUERY, KEY[:, :, 2:]),
    masked_keys_have_the_weight_zero=(QUERY, KEY, FUTURE),
    the_weights_of_a_fully_masked_query_are_zero=(QUERY, KEY, NOTHING),
    large_scores_do_not_overflow=(QUERY * 300, KEY),
)


def _pair(result: Any) -> Any:
    """Return the output and the weights; of a tensor alone, [0] would be its first row."""
    if isinstance(result, tuple | list):
        return result
    raise TypeError(f"the output and the weights must be returned, got {kind(result)}")


@UNIT.law("scaled_dot_product_attention", "batch head query feature")
def each_output_is_the_weighted_sum_of_the_values(my: Any) -> Any:
    """The output without a mask."""
    return _pair(my.scaled_dot_product_attention(QUERY, KEY, VALUE))[0]


@UNIT.law("scaled_dot_product_attention", "batch head query key")
def the_weights_are_returned_too(my: Any) -> Any:
    """The weights with a padding mask."""
    return _pair(my.scaled_dot_product_attention(QUERY, KEY, VALUE, PADDING))[1]


@UNIT.law(
    "scaled_dot_product_attention",
    "batch head query feature",
    expected=lambda: F.scaled_dot_product_attention(QUERY, KEY, VALUE, attn_mask=~PADDING),
)
def the_output_equals_that_of_torch(my: Any) -> Any:
    """The output with a padding mask."""
    return _pair(my.scaled_dot_product_attention(QUERY, KEY, VALUE, PADDING))[0]


def _gradient() -> Any:
    query = QUERY.clone().requires_grad_()
    F.scaled_dot_product_attention(query, KEY, VALUE, ~NOTHING).square().sum().backward()
    return query.grad


@UNIT.law("scaled_dot_product_attention", "batch head query feature")
def no_output_depends_on_a_later_position(my: Any) -> Any:
    """The change of the outputs if only the last key and value change."""
    changed = torch.tensor([0.0] * 6 + [1])[:, None]
    before = _pair(my.scaled_dot_product_attention(QUERY, KEY, VALUE, FUTURE))[0]
    return (
        _pair(my.scaled_dot_product_attention(QUERY, KEY + changed, VALUE + changed, FUTURE))[0]
        - before
    )


@UNIT.law("scaled_dot_product_attention", "batch head query feature", expected=_gradient)
def the_gradients_of_a_fully_masked_query_are_finite(my: Any) -> Any:
    """The gradient of the queries; that of a fully masked one is zero, not NaN."""
    query = QUERY.clone().requires_grad_()
    _pair(my.scaled_dot_product_attention(query, KEY, VALUE, NOTHING))[0].square().sum().backward()
    return query.grad
