"""The attention layers: projections and heads around an attention function."""

import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from tests.blocks.reference import Array, attention_loop, randomise, to_numpy
from tests.pairs import every_pair
from torch import Tensor, nn

from transformer_blocks import (
    KeyValueCache,
    MultiHeadAttention,
    QueryKeyTransform,
    SingleHeadAttention,
    attention_weights,
    build_encoder,
    fused_attention,
    padding_mask,
    scaled_dot_product_attention,
)
from transformer_blocks.inference import prepare

PADDING = padding_mask(torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]))


def project(linear: nn.Linear, x: Tensor, rows: slice = slice(None)) -> Array:
    """Apply some rows of a linear layer, in numpy."""
    bias = 0.0 if linear.bias is None else to_numpy(linear.bias)[rows]
    return np.asarray(to_numpy(x) @ to_numpy(linear.weight)[rows].T + bias)


@every_pair(
    {
        "widths": [(None, None), (6, None), (None, 5), (6, 5)],
        "options": [{}, {"mask": PADDING}, {"mask": PADDING, "causal": True}],
        "attention_function": [fused_attention, scaled_dot_product_attention],
        "bias": [True, False],
        "d_k": [None, 5],
        "groups": [None, 1],  # of query heads that share keys and values
    }
)
def test_multi_head_attention_equals_the_equation_of_the_paper(
    attention_function: Any,
    bias: bool,
    widths: tuple[int | None, int | None],
    d_k: int | None,
    groups: int | None,
    options: dict[str, Any],
) -> None:
    num_heads = 2 if d_k is None else 3  # which does not divide d_model
    layer = MultiHeadAttention(
        8,
        num_heads,
        num_key_value_heads=groups,
        d_k=d_k,
        key_width=widths[0],
        value_width=widths[1],
        bias=bias,
        attention_function=attention_function,
    ).double()
    randomise(layer)
    query = torch.randn(2, 3, 8, dtype=torch.float64)
    key = torch.randn(2, 5, widths[0] or 8, dtype=torch.float64)
    value = torch.randn(2, 5, widths[1] or 8, dtype=torch.float64)
    heads, size = [], d_k or 4
    for head in range(num_heads):  # which owns the rows from head * size on of projections
        rows = slice(head * size, (head + 1) * size)
        of_keys = slice(0, size) if groups else rows
        q = torch.from_numpy(project(layer.query_projection, query, rows))[:, None]
        k = torch.from_numpy(project(layer.key_projection, key, of_keys))[:, None]
        v = torch.from_numpy(project(layer.value_projection, value, of_keys))[:, None]
        heads.append(attention_loop(q, k, v, **options)[0][:, 0])
    concatenated = torch.from_numpy(np.concatenate(heads, axis=-1))
    expected = project(layer.output_projection, concatenated)
    np.testing.assert_allclose(
        to_numpy(layer(query, key, value, **options)), expected, rtol=0, atol=1e-12
    )


@every_pair(
    {
        "scale": [None, 1.0, 0.1],
        "bias": [True, False],
        "options": [{}, {"mask": PADDING}, {"causal": True}],
    }
)
def test_single_head_attention_multiplies_the_scores_by_its_scale(
    scale: float | None, bias: bool, options: dict[str, Any]
) -> None:
    layer = randomise(SingleHeadAttention(8, scale=scale, bias=bias).double())
    x, memory = (torch.randn(2, length, 8, dtype=torch.float64) for length in (3, 5))
    q = layer.query_projection(x)[:, None]
    k, v = (each(memory)[:, None] for each in (layer.key_projection, layer.value_projection))
    output, weights = attention_loop(q, k, v, scale=scale, **options)
    expected = project(layer.output_projection, torch.from_numpy(output[:, 0]))
    found = to_numpy(layer(x, memory, memory, **options))
    np.testing.assert_allclose(found, expected, atol=1e-12)
    found = to_numpy(layer.attention_weights(x, memory, **options))
    np.testing.assert_allclose(found, weights, atol=1e-12)


@pytest.mark.parametrize("as_pair", [False, True])
def test_any_function_with_these_arguments_can_be_the_attention_function(as_pair: bool) -> None:
    calls: list[dict[str, Any]] = []

    def sum_of_values(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Any:
        calls.append(options)
        output = value.sum(-2, keepdim=True).expand_as(query)
        weights = torch.ones(*query.shape[:3], key.shape[2])
        return (output, weights) if as_pair else output

    layer = MultiHeadAttention(8, 2, dropout=0.25, attention_function=sum_of_values)
    x, mask = torch.randn(2, 5, 8), PADDING
    output = layer(x, x, x, mask=mask, causal=True)
    expected = layer.output_projection(layer.value_projection(x).sum(1, keepdim=True))
    torch.testing.assert_close(output, expected.expand(2, 5, 8))
    layer.eval()(x, x, x)
    assert calls == [
        {"mask": mask, "causal": True, "dropout": 0.25},
        {"mask": None, "causal": False, "dropout": 0.0},
    ]


@torch.no_grad()
def test_the_weights_are_those_that_the_attention_function_returns_or_an_error() -> None:
    returns_weights = partial(scaled_dot_product_attention, scale=3.0)
    layer, x = MultiHeadAttention(8, 2, attention_function=returns_weights), torch.randn(2, 5, 8)
    weights = layer.attention_weights(x, x, mask=PADDING, causal=True)
    output = layer.project_output(weights @ layer.project(x, x)[1], x)
    torch.testing.assert_close(output, layer(x, x, x, mask=PADDING, causal=True))
    layer.attention_function = partial(fused_attention, scale=3.0)
    with pytest.raises(ValueError, match=r"^attention_function must return its weights, or"):
        layer.attention_weights(x, x)


class Affine(QueryKeyTransform):
    """Multiplies by a factor, adds a number, and records the positions that it receives."""

    def __init__(self, factor: float, number: float) -> None:
        super().__init__()
        self.factor, self.number = factor, number
        self.calls: list[tuple[str, int, int]] = []

    def transform_queries(self, queries: Tensor, *, start: int) -> Tensor:
        self.calls.append(("queries", start, start + queries.shape[2]))
        return self.factor * queries + self.number

    def transform_keys(self, keys: Tensor, *, start: int) -> Tensor:
        self.calls.append(("keys", start, start + keys.shape[2]))
        return self.factor * keys - self.number


@torch.no_grad()
def test_each_key_is_transformed_once_before_it_enters_the_cache() -> None:
    first, second = Affine(1, 1), Affine(2, 0)
    layer, cache = MultiHeadAttention(8, 2, transforms=[first, second]), KeyValueCache()
    x = torch.randn(2, 5, 8)
    for part in x.split([3, 1, 1], dim=1):
        layer(part, part, part, causal=True, cache=cache)
    positions = (0, 3), (3, 4), (4, 5)
    assert first.calls == [(name, *each) for each in positions for name in ("keys", "queries")]
    assert second.calls == first.calls
    keys = 2 * (layer.split_heads(layer.key_projection(x)) - 1)  # in the order of the transforms
    torch.testing.assert_close(cache.read()[0], keys)
    queries = 2 * (layer.split_heads(layer.query_projection(x)) + 1)
    weights = layer.attention_weights(x, x)
    torch.testing.assert_close(weights, attention_weights(queries, keys))
    first.calls.clear()
    layer(x[:, :2], cache=cache)
    assert first.calls == [("queries", 3, 5)]


@pytest.mark.parametrize(
    "make",
    [
        lambda **options: MultiHeadAttention(64, 8, **options),
        lambda **options: SingleHeadAttention(64, **options),
        lambda **options: MultiHeadAttention(64, 8, num_key_value_heads=2, **options),
    ],
)
def test_projections_are_initialised_as_xavier_does_and_biases_with_zero(make: Any) -> None:
    biases = 0
    for name, parameter in make().named_parameters():
        if name.endswith("bias"):
            biases += 1
            assert not parameter.any()
        else:
            limit = math.sqrt(6 / sum(parameter.shape))  # Xavier's
            assert 0.95 * limit < float(parameter.detach().abs().max()) <= limit
    assert biases == 4
    assert not any(name.endswith("bias") for name in make(bias=False).state_dict())


@pytest.mark.parametrize(
    ("change", "got"),
    [
        (lambda output: (output,), "tuple"),
        (lambda output: None, "attention_function=None"),
        (lambda output: output.mean(2, keepdim=True), "(3, 2, 1, 4)"),  # which would broadcast
    ],
)
@pytest.mark.parametrize("prepared", [False, True])
def test_a_wrong_return_value_of_the_attention_function_is_refused(
    change: Callable[[Tensor], Any], got: str, prepared: bool
) -> None:
    def attention_function(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Any:
        return change(value)

    model = build_encoder(
        num_layers=1,
        d_model=8,
        d_ff=12,
        attention=lambda: MultiHeadAttention(8, 2, attention_function=attention_function),
    )
    model = prepare(model) if prepared else model
    message = rf"^attention_function must .*, got {re.escape(got)}$"
    with pytest.raises((TypeError, ValueError), match=message), torch.no_grad():
        model(torch.randn(3, 5, 8))
