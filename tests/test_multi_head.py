"""The attention layers: projections and heads around an attention function."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from tests.pairs import every_pair
from tests.reference import Array, attention_loop, to_numpy
from torch import Tensor, nn

from transformer_blocks import (
    EncoderLayer,
    FeedForward,
    KeyValueCache,
    MultiHeadAttention,
    PreNorm,
    QueryKeyTransform,
    SingleHeadAttention,
    attention_weights,
    fused_attention,
    padding_mask,
    scaled_dot_product_attention,
)

PADDING = padding_mask(torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]))


def randomise(module: nn.Module) -> None:
    """Set all parameters to values, unlike zero, with which a mistake would show."""
    for parameter in module.parameters():
        nn.init.normal_(parameter, std=0.5)


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
    }
)
def test_multi_head_attention_equals_the_equation_of_the_paper(
    attention_function: Any,
    bias: bool,
    widths: tuple[int | None, int | None],
    d_k: int | None,
    options: dict[str, Any],
) -> None:
    layer = MultiHeadAttention(
        8,
        2,
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
    for rows in (slice(0, size), slice(size, 2 * size)):  # head i owns the i-th rows of projections
        q = torch.from_numpy(project(layer.query_projection, query, rows))[:, None]
        k = torch.from_numpy(project(layer.key_projection, key, rows))[:, None]
        v = torch.from_numpy(project(layer.value_projection, value, rows))[:, None]
        heads.append(attention_loop(q, k, v, **options)[0][:, 0])
    concatenated = torch.from_numpy(np.concatenate(heads, axis=-1))
    expected = project(layer.output_projection, concatenated)
    np.testing.assert_allclose(
        to_numpy(layer(query, key, value, **options)), expected, rtol=0, atol=1e-12
    )


@pytest.mark.parametrize("options", [{}, {"mask": PADDING}, {"causal": True}])
@pytest.mark.parametrize("bias", [True, False])
def test_multi_head_attention_with_one_head_equals_single_head_attention(
    bias: bool, options: dict[str, Any]
) -> None:
    single = SingleHeadAttention(8, bias=bias).double()
    randomise(single)
    multi = MultiHeadAttention(8, 1, bias=bias).double()
    multi.load_state_dict(single.state_dict())
    query, memory = (torch.randn(2, n, 8, dtype=torch.float64) for n in (3, 5))
    torch.testing.assert_close(
        single(query, memory, memory, **options), multi(query, memory, memory, **options)
    )
    torch.testing.assert_close(
        single.attention_weights(query, memory, **options),
        multi.attention_weights(query, memory, **options),
    )


@pytest.mark.parametrize("scale", [None, 1.0, 0.1])
def test_single_head_attention_multiplies_the_scores_by_its_scale(scale: float | None) -> None:
    layer = SingleHeadAttention(8, scale=scale).double()
    x = torch.randn(2, 4, 8, dtype=torch.float64)
    q, k, v = (
        projection(x)[:, None]
        for projection in (layer.query_projection, layer.key_projection, layer.value_projection)
    )
    output, weights = attention_loop(q, k, v, scale=scale)
    np.testing.assert_allclose(
        to_numpy(layer(x, x, x)),
        project(layer.output_projection, torch.from_numpy(output[:, 0])),
        atol=1e-12,
    )
    np.testing.assert_allclose(to_numpy(layer.attention_weights(x, x)), weights, atol=1e-12)


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


class Recorder(QueryKeyTransform):
    """Records the positions that it receives."""

    def __init__(self, calls: list[tuple[str, int, int]]) -> None:
        super().__init__()
        self.calls = calls

    def transform_queries(self, queries: Tensor, *, start: int) -> Tensor:
        self.calls.append(("queries", start, start + queries.shape[2]))
        return 2 * queries

    def transform_keys(self, keys: Tensor, *, start: int) -> Tensor:
        self.calls.append(("keys", start, start + keys.shape[2]))
        return keys + 1


@torch.no_grad()
def test_each_key_is_transformed_once_before_it_enters_the_cache() -> None:
    calls: list[tuple[str, int, int]] = []
    layer, cache = MultiHeadAttention(8, 2, transforms=[Recorder(calls)]), KeyValueCache()
    x = torch.randn(2, 5, 8)
    for part in x.split([3, 1, 1], dim=1):
        layer(part, part, part, causal=True, cache=cache)
    positions = (0, 3), (3, 4), (4, 5)
    assert calls == [(name, *each) for each in positions for name in ("keys", "queries")]
    torch.testing.assert_close(cache.read()[0], layer.project(x, x)[0])
    calls.clear()
    layer(x[:, :2], cache, cache)
    assert calls == [("queries", 3, 5)]


def test_transforms_are_applied_in_their_order() -> None:
    class Add(QueryKeyTransform):
        def transform_queries(self, queries: Tensor, *, start: int) -> Tensor:
            return queries + 1

    class Double(QueryKeyTransform):
        def transform_queries(self, queries: Tensor, *, start: int) -> Tensor:
            return 2 * queries

    received: list[Tensor] = []

    def attention_function(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Tensor:
        received.append(query)
        return query

    layer = MultiHeadAttention(
        8, 2, attention_function=attention_function, transforms=[Add(), Double()]
    )
    x = torch.randn(2, 5, 8)
    layer(x, x, x)
    queries = layer.query_projection(x).unflatten(-1, (2, 4)).transpose(1, 2)
    torch.testing.assert_close(received[0], 2 * (queries + 1))


def test_the_weights_of_a_layer_are_those_of_its_heads_before_dropout() -> None:
    layer = MultiHeadAttention(8, 2, dropout=0.9)
    query, key = torch.randn(2, 3, 8), torch.randn(2, 5, 8)
    weights = layer.attention_weights(query, key, mask=PADDING)
    assert weights.shape == (2, 2, 3, 5)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 2, 3))
    q, k = layer.query_projection(query), layer.key_projection(key)
    for head, own in enumerate((slice(0, 4), slice(4, 8))):
        expected = attention_weights(q[:, None, :, own], k[:, None, :, own], mask=PADDING)
        torch.testing.assert_close(weights[:, head], expected[:, 0])


@pytest.mark.parametrize(
    "make", [lambda **o: MultiHeadAttention(8, 2, **o), lambda **o: SingleHeadAttention(8, **o)]
)
def test_projections_are_initialised_as_xavier_does_and_biases_with_zero(make: Any) -> None:
    layer = make()
    for name, parameter in layer.named_parameters():
        bound = 0.0 if name.endswith("bias") else (6 / (8 + 8)) ** 0.5  # Xavier's
        assert parameter.abs().max() <= bound
    assert sum(name.endswith("bias") for name in layer.state_dict()) == 4
    assert not any(name.endswith("bias") for name in make(bias=False).state_dict())


@pytest.mark.parametrize("attention_function", [fused_attention, scaled_dot_product_attention])
def test_autocast_accepts_inputs_of_different_dtypes(attention_function: Any) -> None:
    layer = MultiHeadAttention(8, 2, attention_function=attention_function)
    query, memory = torch.randn(2, 3, 8), torch.randn(2, 5, 8, dtype=torch.bfloat16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = layer(query, memory, memory)
    torch.testing.assert_close(
        output.float(), layer(query, memory.float(), memory.float()), rtol=0.05, atol=0.05
    )


@pytest.mark.parametrize(
    "returned",
    [
        lambda output: (output,),
        lambda output: (output, output, output),
        lambda output: [output],
        lambda output: None,
    ],
)
def test_a_wrong_return_value_of_the_attention_function_is_refused(
    returned: Callable[[Tensor], Any],
) -> None:
    def attention_function(query: Tensor, key: Tensor, value: Tensor, **options: Any) -> Any:
        return returned(torch.zeros_like(query))

    x = torch.randn(2, 5, 8)
    with pytest.raises((TypeError, ValueError), match=r"^attention_function must"):
        MultiHeadAttention(8, 2, attention_function=attention_function)(x, x, x)


class UpcastingNorm(nn.Module):
    """An RMSNorm that computes in float32, with weights in float32, in a model of any dtype."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        x32 = x.float()
        return (x32 * x32.square().mean(-1, keepdim=True).rsqrt() * self.weight).to(x.dtype)


class CastingLinear(nn.Linear):
    """A linear layer that converts its input to the dtype of its weights."""

    def forward(self, input: Tensor) -> Tensor:
        return super().forward(input.to(self.weight.dtype))


class Adapted(nn.Module):
    """A linear layer inside another module, which has no attribute for its sizes."""

    def __init__(self, linear: nn.Module) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x: Tensor) -> Tensor:
        return 2 * self.linear(x)


def test_modules_that_convert_their_input_receive_any_dtype() -> None:
    x = torch.randn(2, 5, 8)
    low = EncoderLayer(
        MultiHeadAttention(8, 2),
        FeedForward(8, 16),
        residual=lambda: PreNorm(8, dropout=0.0, norm=nn.LayerNorm(8)),
    ).bfloat16()
    for residual in (low.self_attention_residual, low.feed_forward_residual):
        residual.norm = UpcastingNorm(8)
    assert low(x.bfloat16()).dtype == torch.bfloat16
    attention = MultiHeadAttention(8, 2)
    attention.query_projection = CastingLinear(8, 8)
    keys = torch.randn(2, 3, 8)
    assert attention(x.double(), keys, keys).dtype == torch.float32
    for layer in (attention, FeedForward(8, 16)):
        names = [name for name, part in layer.named_children() if isinstance(part, nn.Linear)]
        for name in names:
            setattr(layer, name, Adapted(getattr(layer, name)))
    assert attention(x, keys, keys).shape == layer(x).shape == (2, 5, 8)
    with pytest.raises(TypeError, match=r"^key must"):
        MultiHeadAttention(8, 2)(x, keys.double(), keys)
