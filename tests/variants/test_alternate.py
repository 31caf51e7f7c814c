"""Layers of several kinds, made in turn."""

from typing import Any

import pytest
from torch import nn

from transformer_blocks import (
    MultiHeadAttention,
    RotaryPositionalEncoding,
    SlidingWindowAttention,
    alternate,
    build_encoder,
    fused_attention,
)


def near() -> MultiHeadAttention:
    window = SlidingWindowAttention(2)
    rotary = [RotaryPositionalEncoding(4)]
    return MultiHeadAttention(8, 2, attention_function=window, transforms=rotary)


def far() -> MultiHeadAttention:
    return MultiHeadAttention(8, 2)


def test_each_layer_has_the_next_kind_with_parameters_of_its_own() -> None:
    encoder = build_encoder(num_layers=5, d_model=8, attention=alternate(near, near, far))
    layers: list[Any] = [layer.self_attention for layer in encoder.layers]
    assert [each.attention_function is fused_attention for each in layers] == [0, 0, 1, 0, 0]
    assert [len(each.transforms) for each in layers] == [1, 1, 0, 1, 1]
    assert len({id(each.query_projection.weight) for each in layers}) == 5


def test_what_is_no_factory_is_refused() -> None:
    with pytest.raises(TypeError, match="factories must be at least one, got none"):
        alternate()
    layer: nn.Module = far()
    for place in (0, 1):  # each is checked, not only the first
        factories = [near, near]
        factories[place] = layer
        with pytest.raises(
            TypeError, match=rf"^factories\[{place}\] must be a class, or a function"
        ):
            alternate(*factories)
