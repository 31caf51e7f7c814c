"""The encoder is the composition of its parts that figure 1 shows."""

import pytest
import torch
from tests.blocks.reference import randomise
from torch import Tensor, nn

from transformer_blocks import (
    Encoder,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    PostNorm,
    PreNorm,
    Residual,
    padding_mask,
)

PADDING = padding_mask(torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]]))


def make_layer(residual: type[Residual] = PostNorm) -> EncoderLayer:
    return EncoderLayer(
        MultiHeadAttention(8, 2), FeedForward(8, 12), residual=lambda: residual(8, dropout=0.0)
    ).double()


def make_input() -> Tensor:
    return torch.randn(2, 4, 8, dtype=torch.float64)


@pytest.mark.parametrize("mask", [None, PADDING])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("residual", [PostNorm, PreNorm])
def test_a_layer_is_self_attention_then_feed_forward_both_with_residual_connections(
    residual: type[Residual], causal: bool, mask: Tensor | None
) -> None:
    layer, x = make_layer(residual), make_input()
    randomise(layer)
    norms = layer.self_attention_residual.norm, layer.feed_forward_residual.norm

    def attend(x: Tensor) -> Tensor:
        return layer.self_attention(x, x, x, mask=mask, causal=causal)

    if residual is PostNorm:
        between = norms[0](x + attend(x))
        expected = norms[1](between + layer.feed_forward(between))
    else:
        between = x + attend(norms[0](x))
        expected = between + layer.feed_forward(norms[1](between))
    torch.testing.assert_close(layer(x, mask=mask, causal=causal), expected)


@pytest.mark.parametrize("norm", [None, nn.LayerNorm(8, dtype=torch.float64)])
def test_a_stack_applies_its_layers_in_turn_and_then_its_norm(norm: nn.LayerNorm | None) -> None:
    layers = [make_layer(), make_layer(), make_layer()]
    encoder, x = Encoder(layers, norm=norm), make_input()
    expected = x
    for layer in layers:
        expected = layer(expected, mask=PADDING, causal=True)
    if norm is not None:
        nn.init.normal_(norm.weight)
        expected = norm(expected)
    assert torch.equal(encoder(x, mask=PADDING, causal=True), expected)


def test_an_encoder_without_layers_is_the_identity() -> None:
    x = make_input()
    assert torch.equal(Encoder([])(x), x)
