"""Relative position biases against a loop and T5, and one table that all layers share."""

import math
from typing import Any

import pytest
import torch
from tests.blocks.reference import assert_equals_loop_with_biases, to_numpy
from tests.pairs import every_pair
from torch import nn

from transformer_blocks import (
    RelativeBias,
)

SIZES: dict[str, Any] = {"num_buckets": 8, "max_distance": 7}


def with_large_biases(num_heads: int, **options: Any) -> RelativeBias:
    made = RelativeBias(num_heads, **options)
    nn.init.normal_(made.weight)
    return made.double()


def bucket_of(distance: int, count: int, max_distance: int) -> int:
    """Compute the bucket of a distance in one direction, as the equation has it."""
    exact = count // 2
    if distance < exact:
        return distance
    position = math.log(distance / exact) / math.log(max_distance / exact) * (count - exact)
    return min(count - 1, exact + math.floor(position + 1e-9))


@pytest.mark.parametrize("length", [12, 3, 1])
@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_it_equals_the_loop(length: int, bidirectional: bool, causal: bool) -> None:
    attention_function = with_large_biases(3, **SIZES, bidirectional=bidirectional)
    biases = to_numpy(attention_function.weight)

    def bias(distance: int, head: int) -> float:
        if not bidirectional:
            bucket = bucket_of(max(-distance, 0), 8, 7)
        else:
            bucket = bucket_of(abs(distance), 4, 7) + (4 if distance > 0 else 0)
        return float(biases[bucket, head])

    assert_equals_loop_with_biases(attention_function, bias, length, causal=causal)


@every_pair(
    {
        "num_buckets, max_distance": [
            *((32, 128), (4, 2), (4, 128), (6, 4), (16, 20), (20, 100)),
            *((10, 160), (64, 256), (320, 800), (8, 2048)),
        ],
        "bidirectional": [False, True],
        "dtype": [torch.int32, torch.int64],
    }
)
def test_the_buckets_are_those_of_transformers(
    num_buckets: int, max_distance: int, bidirectional: bool, dtype: torch.dtype
) -> None:
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    sizes = {"num_buckets": num_buckets, "max_distance": max_distance}
    if not bidirectional and max_distance <= num_buckets // 2:
        sizes["max_distance"] = num_buckets
    distance = torch.arange(-2500, 2501, dtype=dtype).view(3, -1)
    layer = RelativeBias(1, **sizes, bidirectional=bidirectional)
    with torch.no_grad():
        layer.weight.copy_(torch.arange(num_buckets)[:, None])  # the bias is the bucket
        found = layer.biases(distance, torch.float32)[0].long()
    bucket = t5.T5Attention._relative_position_bucket
    expected = bucket(distance, bidirectional=bidirectional, **sizes)
    assert torch.equal(found, expected.long())
    assert {*found.unique().tolist()} <= {*range(num_buckets)}


def test_a_call_s_scale_takes_the_place_of_the_constructor_s() -> None:
    query, key = torch.randn(2, 1, 2, 5, 4, dtype=torch.float64)
    layer = RelativeBias(2).double()  # the default is 1 / sqrt(4)
    of_scale = {scale: layer.attention_weights(query, key, scale=scale) for scale in (0.5, 3.0)}
    assert torch.equal(layer.attention_weights(query, key), of_scale[0.5])
    layer.scale = 3.0
    assert torch.equal(layer.attention_weights(query, key), of_scale[3.0])
    assert torch.equal(layer.attention_weights(query, key, scale=0.5), of_scale[0.5])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_buckets": 2}, "num_buckets must be an even number of at least 4, got num_buckets=2"),
        ({"num_buckets": 1, "bidirectional": False}, "num_buckets must be at least 2, got"),
        ({"max_distance": 8}, "max_distance must exceed the 8 buckets of single distances, got"),
    ],
)
def test_sizes_without_a_bucket_for_every_distance_are_refused(
    options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        RelativeBias(2, **options)
