"""Unit 5: scaled dot-product attention."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from coursework.grader import Mistake, Unit, normal

QUERY, KEY, VALUE = normal(2, 2, 4, 3), normal(2, 2, 4, 3, seed=1), normal(2, 2, 4, 5, seed=2)
FUTURE = torch.ones(4, 4, dtype=torch.bool).triu(1)
PADDING = torch.tensor([[False] * 4, [False, False, True, True]])[:, None, None, :]
NOTHING = torch.tensor([[True] * 4, *[[False] * 3 + [True]] * 3])  # query 0 has no key


def answer(
    *,
    scale: Any = lambda d_k: d_k**-0.5,
    axis: int = -1,
    hide: Any = lambda scores, hidden: np.where(hidden, -np.inf, scores),
    after: Any = lambda weights, hidden: np.where(hidden, 0, weights),
    of: int = 2,
) -> dict[str, Any]:
    """Compute attention in float64, one query and one key at a time."""

    def attention_weights(query: Any, key: Any, mask: Any = None) -> Any:
        q, k = np.asarray(query, np.float64), np.asarray(key, np.float64)
        scores = np.zeros((*q.shape[:3], k.shape[2]))
        for b, h, i, j in np.ndindex(scores.shape):
            scores[b, h, i, j] = sum(q[b, h, i] * k[b, h, j]) * scale(q.shape[-1])
        hidden = np.broadcast_to(False if mask is None else np.asarray(mask), scores.shape)
        scores = hide(scores, hidden) if mask is not None else scores
        exponentials = np.exp(scores - scores.max(axis, keepdims=True))
        return after(exponentials / exponentials.sum(axis, keepdims=True), hidden)

    def scaled_dot_product_attention(query: Any, key: Any, value: Any, mask: Any = None) -> Any:
        weights = attention_weights(query, key, mask)
        return weights @ np.asarray((query, key, value)[of], np.float64), weights

    return {
        "attention_weights": attention_weights,
        "scaled_dot_product_attention": scaled_dot_product_attention,
    }


def _unchanged(weights: Any, hidden: Any) -> Any:
    return weights


UNIT = Unit(
    "scaled dot-product attention",
    answer,
    [
        Mistake("the scores are not scaled", {"scale": lambda d_k: 1.0}),
        Mistake("the scores are divided by d_k", {"scale": lambda d_k: 1 / d_k}),
        Mistake("the scores are multiplied by sqrt(d_k)", {"scale": lambda d_k: d_k**0.5}),
        Mistake("a softmax over the queries", {"axis": -2}, "softmax_over_queries"),
        Mistake("a softmax over the batch", {"axis": 0}, "softmax_over_the_batch"),
        Mistake("a fully masked row is NaN", {"after": _unchanged}, "fully_masked_row"),
        Mistake(
            "a fully masked row has equal weights",
            {"hide": lambda scores, hidden: np.where(hidden, -1e9, scores), "after": _unchanged},
            "fully_masked_row",
        ),
        Mistake(
            "the mask is inverted",
            {
                "hide": lambda scores, hidden: np.where(hidden, scores, -np.inf),
                "after": lambda weights, hidden: np.where(hidden, np.nan_to_num(weights), 0),
            },
            "inverted_padding_mask",
        ),
        Mistake(
            "the weights are masked after the softmax", {"hide": lambda scores, hidden: scores}
        ),
        Mistake(
            "the mask is ignored", {"hide": lambda scores, hidden: scores, "after": _unchanged}
        ),
        Mistake(
            "a boolean mask is added to the scores",
            {"hide": lambda scores, hidden: scores + hidden, "after": _unchanged},
            "boolean_mask_added",
        ),
        Mistake(
            "masked scores are near zero",
            {"hide": lambda scores, hidden: np.where(hidden, 0, scores), "after": _unchanged},
            "masked_scores_near_zero",
        ),
        Mistake(
            "masked scores are left at zero, and the others are lost",
            {"hide": lambda scores, hidden: scores * hidden, "after": _unchanged},
            "scores_multiplied_by_the_mask",
        ),
        Mistake("the weighted sum is one of keys", {"of": 1}),
    ],
)


@UNIT.law("attention_weights", "batch head query key")
def the_weights_are_a_softmax_over_the_keys(my: Any) -> Any:
    """No mask."""
    return my.attention_weights(QUERY, KEY)


@UNIT.law("attention_weights", "batch head query key")
def fewer_queries_than_keys(my: Any) -> Any:
    """Shapes that differ."""
    return my.attention_weights(QUERY[:, :, 1:], KEY)


@UNIT.law("attention_weights", "batch head query key")
def masked_keys_have_the_weight_zero(my: Any) -> Any:
    """A causal mask."""
    return my.attention_weights(QUERY, KEY, FUTURE)


@UNIT.law("attention_weights", "batch head query key")
def the_weights_of_a_fully_masked_query_are_zero(my: Any) -> Any:
    """Query 0 is masked."""
    return my.attention_weights(QUERY, KEY, NOTHING)


@UNIT.law("attention_weights", "batch head query key")
def large_scores_do_not_overflow(my: Any) -> Any:
    """Scores of some hundreds."""
    return my.attention_weights(QUERY * 300, KEY)


@UNIT.law("scaled_dot_product_attention", "batch head query feature")
def each_output_is_the_weighted_sum_of_the_values(my: Any) -> Any:
    """No mask."""
    return my.scaled_dot_product_attention(QUERY, KEY, VALUE)[0]


@UNIT.law("scaled_dot_product_attention", "batch head query key")
def the_weights_are_returned_too(my: Any) -> Any:
    """The second of the pair."""
    return my.scaled_dot_product_attention(QUERY, KEY, VALUE, PADDING)[1]


@UNIT.law(
    "scaled_dot_product_attention",
    "batch head query feature",
    expected=lambda: F.scaled_dot_product_attention(QUERY, KEY, VALUE, attn_mask=~PADDING),
)
def the_output_equals_that_of_torch(my: Any) -> Any:
    """A padding mask."""
    return my.scaled_dot_product_attention(QUERY, KEY, VALUE, PADDING)[0]


@UNIT.law("scaled_dot_product_attention", "batch head query feature")
def no_output_depends_on_a_later_position(my: Any) -> Any:
    """How much outputs change if the last key and value do; the last query attends to them."""
    changed = torch.tensor([0.0, 0, 0, 1])[:, None]
    before = my.scaled_dot_product_attention(QUERY, KEY, VALUE, FUTURE)[0]
    return (
        my.scaled_dot_product_attention(QUERY, KEY + changed, VALUE + changed, FUTURE)[0] - before
    )


@UNIT.law("scaled_dot_product_attention", expected=lambda: True)
def the_gradients_of_a_fully_masked_query_are_finite(my: Any) -> Any:
    """The gradient of the sum."""
    query = QUERY.clone().requires_grad_()
    my.scaled_dot_product_attention(query, KEY, VALUE, NOTHING)[0].sum().backward()
    return query.grad is not None and bool(query.grad.isfinite().all())
